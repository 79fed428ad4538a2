// A host's or a switch's own page.

import { h, fill, table } from "../dom.js";
import { get, q } from "../api.js";
import { bitRate, count, percent, plural } from "../format.js";
import { live } from "../live.js";
import { card, failed, health, linkTo, nodeTo, tag, usage } from "../words.js";
import { historyPlots } from "../history.js";
import { programTable } from "./programs.js";

export function nodeView(root, { model, words, signal, title, go }) {
  const name = words[1] ?? "";
  title(name);
  fill(root, h("div", { class: "loading" }, `Looking at ${name} …`));
  let page = null,
    parts = null;

  async function load() {
    let n,
      programs = null;
    try {
      n = await get(`node?name=${q(name)}`);
      if (n.kind === "host") programs = await get(`programs?host=${q(n.name)}`).catch(() => null);
    } catch (e) {
      if (!page && !signal.aborted) fill(root, failed(e));
      return;
    }
    if (signal.aborted) return;
    if (!page) build(n);
    update(n, programs);
  }

  const columns = [
    {
      title: "Port",
      cell: p => (p.peer ? linkTo(model, p.name, String(p.port)) : String(p.port)),
      sort: p => p.port,
      num: true,
    },
    {
      title: "To",
      cell: p => (p.peer ? [nodeTo(model, p.peer), `[${p.peer_port}]`] : h("span", { class: "dim" }, "no cable")),
      sort: p => p.peer ?? "~",
      class: "nowrap",
    },
    { title: "State", cell: p => (p.peer ? tag(p.state) : ""), sort: p => p.state },
    {
      title: "Rate",
      cell: p => (p.rate ? [p.rate, p.could_be && h("span", { class: "warn" }, ` (could be ${p.could_be})`)] : "–"),
      sort: p => p.mbps ?? 0,
      class: "nowrap",
    },
    { title: "Sent", cell: p => (p.peer ? usage(p.sent_Bps, p.mbps) : ""), sort: p => p.sent_Bps, num: true },
    {
      title: "Received",
      cell: p => (p.peer ? usage(p.received_Bps, p.mbps) : ""),
      sort: p => p.received_Bps,
      num: true,
    },
    { title: "Waits", cell: p => (p.peer ? percent(p.wait) : ""), sort: p => p.wait, num: true },
    {
      title: "Errors",
      cell: p => (p.peer ? h("span", { class: p.errors_ps > 0 ? "bad" : "" }, count(p.errors)) : ""),
      sort: p => p.errors,
      num: true,
    },
    { title: "Discards", cell: p => (p.peer ? count(p.discards) : ""), sort: p => p.discards, num: true },
    {
      title: "Health",
      cell: p =>
        p.peer
          ? [
              health(p.health),
              p.fault && h("div", { class: "warn" }, `fault: ${p.fault}`),
              p.why?.[0] && h("div", { class: "dim" }, p.why[0]),
            ]
          : "",
      sort: p => p.health,
    },
  ];

  function build(n) {
    const i = model.index.get(n.name),
      first = n.ports.find(p => p.peer);
    parts = {
      cards: h("div", { class: "cards" }),
      ports: table(columns, n.ports, { caption: `Ports of ${n.name}`, sortBy: 0 }),
      programs: h("div"),
      counters: h("div"),
    };
    const routeForm =
      n.kind === "host" &&
      h(
        "form",
        {
          class: "row",
          onsubmit: e => {
            e.preventDefault();
            go(`#/route/${q(n.name)}/${q(String(new FormData(e.target).get("to")).trim())}`);
          },
        },
        h("input", {
          name: "to",
          required: true,
          size: 10,
          placeholder: "to host",
          "aria-label": `Route from ${n.name} to host`,
          spellcheck: false,
          autocomplete: "off",
        }),
        h("button", { type: "submit" }, "Route"),
      );
    page = h(
      "div",
      { class: "page" },
      h(
        "header",
        null,
        h(
          "p",
          { class: "crumbs" },
          h("a", { href: "#/map" }, "Map"),
          " / ",
          n.kind,
          model.group[i] >= 0 && [" in ", model.groups[model.group[i]].name],
        ),
        h(
          "div",
          null,
          h("h1", null, n.name),
          h(
            "p",
            { class: "dim" },
            [
              n.description !== n.name && n.description,
              plural(n.ports.length, "port"),
              n.tenants?.length && `tenant ${n.tenants.join(", ")}`,
            ]
              .filter(Boolean)
              .join(" · "),
          ),
        ),
        h(
          "div",
          { class: "actions" },
          routeForm,
          h("a", { class: "button", href: `#/map?sel=${q(n.name)}` }, "On the map"),
        ),
      ),
      parts.cards,
      first && historyPlots([n.cables > 1 ? { node: n.name, label: "" } : { port: first.name, label: "" }], signal),
      h("h2", null, "Ports"),
      parts.ports,
      parts.programs,
      parts.counters,
    );
    fill(root, page);
  }

  function update(n, programs) {
    const cabled = n.ports.filter(p => p.peer),
      up = cabled.filter(p => p.state === "Active").length;
    const sum = k => cabled.reduce((s, p) => s + p[k], 0),
      errors = sum("errors");
    fill(
      parts.cards,
      card("GUID", h("span", { class: "mono" }, n.guid)),
      card("LID", n.lid || "none yet"),
      card("Links active", `${up} / ${cabled.length}`, up < cabled.length ? "bad" : "good"),
      card("Sent", bitRate(sum("sent_Bps"))),
      card("Received", bitRate(sum("received_Bps"))),
      card("Worst wait", percent(Math.max(0, ...cabled.map(p => p.wait)))),
      card("Errors counted", count(errors), sum("errors_ps") > 0 ? "bad" : ""),
      card("Packets discarded", count(sum("discards"))),
    );
    if (!parts.ports.contains(document.activeElement) || document.activeElement === parts.ports)
      parts.ports.update(n.ports);
    if (n.kind !== "host") return;
    fill(
      parts.programs,
      h("h2", null, "Programs on this host"),
      programs
        ? programTable(programs.programs, model, false)
        : h("p", { class: "dim" }, "Nothing is known of programs."),
    );
    const p = cabled[0];
    if (p?.counters)
      fill(
        parts.counters,
        h("h2", null, `Counters of ${p.name}`),
        counterTable(p.counters),
        p.pkeys && h("p", { class: "dim" }, "Partitions: ", h("span", { class: "mono" }, p.pkeys.join(" "))),
      );
  }
  live.follow("links", load, signal);
}

// What a link itself has done wrong. Discards are none: they say that packets had nowhere to go.
const trouble = new Set([
  "SymbolErrorCounter",
  "LinkErrorRecoveryCounter",
  "LinkDownedCounter",
  "PortRcvErrors",
  "LocalLinkIntegrityErrors",
  "ExcessiveBufferOverrunErrors",
]);

export function counterTable(list) {
  return table(
    [
      { title: "Counter", cell: c => c.name, class: "nowrap" },
      {
        title: "Total",
        cell: c => h("span", { class: trouble.has(c.name) && c.value ? "bad" : "" }, count(c.value)),
        num: true,
      },
      { title: "What it counts", cell: c => h("span", { class: "dim" }, c.means ?? "") },
    ],
    list,
    { caption: "Counters since the fabric began" },
  );
}
