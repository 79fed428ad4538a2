// The whole fabric at a glance: what it carries, who sends most, what is wrong.

import { h, fill, table } from "../dom.js";
import { get } from "../api.js";
import { bitRate, count, plural } from "../format.js";
import { live } from "../live.js";
import { card, failed, health, linkTo, nodeTo, usage } from "../words.js";
import { follow, spanChooser, stepText } from "../history.js";
import { plot } from "../plot.js";
import { alarmTable } from "../alarms.js";

export function overviewView(root, { model, signal, title }) {
  title("Overview");
  const cards = h("div", { class: "cards" }),
    alarms = h("div"),
    cables = h("div"),
    talkers = h("div"),
    note = h("p", { class: "dim", role: "status" });
  const traffic = plot("Traffic of all hosts", bitRate, signal),
    down = plot("Links that are down", v => count(Math.round(v * 10) / 10), signal);
  const span = spanChooser(() => load());
  const page = h(
    "div",
    { class: "page" },
    h("header", null, h("div", null, h("h1", null, "Overview"), h("p", { class: "dim" }, model.kind))),
    cards,
    alarms,
    h(
      "section",
      { "aria-label": "The fabric over time" },
      h("div", { class: "filters" }, h("h2", { style: { margin: "0" } }, "Over time"), span.elements, note),
      h("div", { class: "plots" }, traffic, down),
    ),
    h(
      "div",
      { class: "two" },
      h("div", null, h("h2", null, "Who sends and receives most"), talkers),
      h("div", null, h("h2", null, "Worst cables"), cables),
    ),
  );
  let asked = 0,
    standing = null;
  async function load() {
    const mine = ++asked;
    let o;
    try {
      o = await get(`overview?${span.query}&points=300`);
    } catch (e) {
      if (!page.isConnected && !signal.aborted) fill(root, failed(e));
      return;
    }
    if (mine !== asked || signal.aborted) return;
    if (!page.isConnected) fill(root, page);
    const times = o.traffic.times.map(t => t / 1000),
      s = o.traffic.series;
    traffic.update(times, [
      { label: "sent", values: s.hosts_xmit_bytes.avg },
      { label: "highest", values: s.hosts_xmit_bytes.max, dash: true },
    ]);
    down.update(times, [{ label: "down", values: s.links_down.max }]);
    fill(note, stepText(o.traffic.step_ms));
    fill(
      talkers,
      table(
        [
          { title: "Host", cell: t => nodeTo(model, t.host) },
          { title: "Sends", cell: t => usage(t.sent_Bps, t.mbps), num: true },
          { title: "Receives", cell: t => usage(t.received_Bps, t.mbps), num: true },
        ],
        o.talkers,
        { caption: "Hosts that send and receive most", empty: "No host sends or receives anything." },
      ),
    );
    fill(
      cables,
      table(
        [
          { title: "Link", cell: c => linkTo(model, c.link.split(" ")[0], c.link), class: "nowrap" },
          { title: "", cell: c => health(c.severity) },
          { title: "Why", cell: c => c.why?.[0] ?? "", class: "roomy" },
        ],
        o.cables,
        { caption: "Worst cables", empty: "All cables are fine." },
      ),
    );
    if (!o.alarms.length) {
      standing = null;
      fill(alarms);
    } else if (!standing) {
      standing = alarmTable(model, o.alarms, load);
      fill(
        alarms,
        h("h2", null, "Alarms that stand"),
        standing,
        h("p", null, h("a", { href: "#/cables" }, "All alarms and cables")),
      );
    } else if (!standing.contains(document.activeElement) || document.activeElement === standing)
      standing.update(o.alarms);
  }
  function facts() {
    const s = live.status;
    if (!s) return;
    fill(
      cards,
      card("Hosts", count(s.hosts)),
      card("Switches", count(s.switches)),
      card("Links active", `${count(s.active)} / ${count(s.cables)}`, s.active < s.cables ? "bad" : "good"),
      card("Hosts send", bitRate(s.sent_Bps)),
      card("Hosts receive", bitRate(s.received_Bps)),
      card("Cables to look at", count(s.alarmed), s.alarmed ? "warn" : "good"),
      card("Programs", count(s.programs)),
      card("Tenants", count(s.tenants)),
      card("Subnet manager", s.manager),
    );
    page.setAttribute("aria-label", `${plural(s.alarmed, "cable")} to look at`);
  }
  facts();
  live.on("status", facts, signal);
  follow(span, load, signal);
}
