// Programs that are attached: their queue pairs, retries and latencies.

import { h, fill, table } from "../dom.js";
import { get } from "../api.js";
import { ago, bytes, count, span } from "../format.js";
import { live } from "../live.js";
import { failed, nodeTo } from "../words.js";

export function programTable(list, model, withHost = true) {
  const warn = v => h("span", { class: v ? "warn" : "" }, count(v));
  return table(
    [
      withHost && { title: "Host", cell: p => nodeTo(model, p.host), sort: p => p.host },
      {
        title: "Program",
        cell: p => [h("b", null, p.name || "?"), h("span", { class: "dim" }, ` ${p.pid}`)],
        sort: p => p.name,
        class: "nowrap",
      },
      { title: "Since", cell: p => ago(p.since), sort: p => p.since, class: "nowrap" },
      {
        title: "Queue pairs",
        cell: p => (p.qp_total ? p.qps.map(x => `${x.count} ${x.type} ${x.state}`).join(", ") : "none"),
        sort: p => p.qp_total,
      },
      { title: "Sent", cell: p => bytes(p.sent_bytes), sort: p => p.sent_bytes, num: true },
      { title: "Received", cell: p => bytes(p.received_bytes), sort: p => p.received_bytes, num: true },
      { title: "Resent", cell: p => warn(p.retransmits), sort: p => p.retransmits, num: true },
      { title: "Timeouts", cell: p => warn(p.timeouts), sort: p => p.timeouts, num: true },
      { title: "RNR NAKs", cell: p => warn(p.rnr_naks), sort: p => p.rnr_naks, num: true },
      {
        title: "Completion errors",
        cell: p => [
          h("span", { class: p.completion_errors ? "bad" : "" }, count(p.completion_errors)),
          p.statuses && h("div", { class: "dim" }, p.statuses.map(s => `${count(s.count)} ${s.status}`).join(", ")),
        ],
        sort: p => p.completion_errors,
        num: true,
      },
      { title: "By IP", cell: p => bytes(p.ipoib_bytes), sort: p => p.ipoib_bytes, num: true },
      { title: "Library", cell: p => h("span", { class: "mono" }, p.library || "–") },
    ].filter(Boolean),
    list,
    { caption: "Programs that are attached", empty: "No program is attached. Run one: softib exec h1 -- ib_send_lat" },
  );
}

export function programsView(root, { model, signal, title }) {
  title("Programs");
  let programs = null,
    paths = null;
  const pathColumns = [
    { title: "From", cell: p => nodeTo(model, p.from), sort: p => p.from },
    { title: "To", cell: p => nodeTo(model, p.to), sort: p => p.to },
    { title: "Requests timed", cell: p => count(p.count), sort: p => p.count, num: true },
    { title: "p50", cell: p => span(p.p50_ms), sort: p => p.p50_ms, num: true },
    { title: "p99", cell: p => span(p.p99_ms), sort: p => p.p99_ms, num: true },
    { title: "p99.9", cell: p => span(p.p999_ms), sort: p => p.p999_ms, num: true },
    { title: "Latest", cell: p => ago(p.latest), class: "nowrap" },
    {
      title: "",
      cell: p => h("a", { href: `#/route/${encodeURIComponent(p.from)}/${encodeURIComponent(p.to)}` }, "route"),
    },
  ];
  async function load() {
    let a;
    try {
      a = await get("programs");
    } catch (e) {
      if (!programs && !signal.aborted) fill(root, failed(e));
      return;
    }
    if (signal.aborted) return;
    if (!programs) {
      programs = programTable(a.programs, model);
      paths = table(pathColumns, a.paths, { caption: "Latency of paths", empty: "No requests were timed yet." });
      fill(
        root,
        h(
          "div",
          { class: "page" },
          h(
            "header",
            null,
            h(
              "div",
              null,
              h("h1", null, "Programs"),
              h("p", { class: "dim" }, "What is attached to the fabric now, and how its requests fare."),
            ),
          ),
          programs,
          h("h2", null, "Latency by path, slowest first"),
          h(
            "p",
            { class: "dim" },
            "From a request's first packet to its acknowledgement, as the sender sees it; a sample of all requests.",
          ),
          paths,
        ),
      );
      return;
    }
    const idle = t => !t.contains(document.activeElement) || document.activeElement === t;
    if (idle(programs)) programs.update(a.programs);
    if (idle(paths)) paths.update(a.paths);
  }
  live.follow("status", load, signal);
}
