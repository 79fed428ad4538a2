// Reports on the whole fabric: what the doctor finds, whether the cables are where they should be, and what there is.

import { h, fill, table } from "../dom.js";
import { get } from "../api.js";
import { count, plural } from "../format.js";
import { card, nodeTo, tag } from "../words.js";

const NODES_SHOWN = 500;

export function inspectView(root, { model, words, signal, title, go }) {
  title("Checks");
  const kinds = [
    [
      "doctor",
      "Doctor",
      "Asks every node by datagrams, as softib doctor does, watches its counters for two seconds, and judges both " +
        "what they count and what they had counted.",
    ],
    ["wiring", "Wiring", "Holds the links that are up against the fabric that was planned, as softib topo check does."],
    ["inventory", "Inventory", "Every node, and what the fabric is made of."],
  ];
  const what = kinds.find(k => k[0] === words[1]) ?? kinds[0],
    body = h("div", { "aria-live": "polite" });
  const tabs = h(
    "div",
    { class: "segmented", role: "group", "aria-label": "Which report" },
    kinds.map(k =>
      h("button", { type: "button", "aria-pressed": k === what, onclick: () => go(`#/inspect/${k[0]}`) }, k[1]),
    ),
  );
  fill(
    root,
    h(
      "div",
      { class: "page" },
      h("header", null, h("div", null, h("h1", null, what[1]), h("p", { class: "dim" }, what[2]))),
      h(
        "div",
        { class: "filters" },
        tabs,
        h("button", { type: "button", class: "primary", onclick: run }, "Look again"),
        h(
          "a",
          { class: "button", href: `/api/v1/checks/${what[0]}`, download: `${model.name || "fabric"}-${what[0]}.json` },
          "JSON",
        ),
      ),
      body,
    ),
  );
  async function run() {
    const began = performance.now();
    const wait = h("p", { class: "loading" }, "Looking …");
    fill(body, wait);
    const tick = setInterval(() => {
      wait.textContent = `Looking … ${Math.round((performance.now() - began) / 1000)} s`;
    }, 1000);
    try {
      const r = await get(`checks/${what[0]}`);
      if (!signal.aborted) fill(body, { doctor, wiring, inventory }[what[0]](r, model));
    } catch (e) {
      if (!signal.aborted)
        fill(body, h("p", { class: "error", role: "alert" }, e.message), e.next && h("p", { class: "dim" }, e.next));
    } finally {
      clearInterval(tick);
    }
  }
  signal.addEventListener("abort", () => fill(body));
  run();
}

const kind = {
  ok: "good",
  pass: "good",
  note: "",
  info: "",
  warn: "warning",
  warning: "warning",
  fail: "critical",
  error: "critical",
  critical: "critical",
};

function doctor(r, model) {
  const found = r.sections.flatMap(s => (s.findings ?? []).map(f => ({ ...f, title: s.title })));
  return [
    h(
      "div",
      { class: "cards" },
      card("Verdict", r.severity, kind[r.severity] === "good" ? "good" : kind[r.severity] === "critical" ? "bad" : ""),
      card("Hosts", count(r.fabric.hosts)),
      card("Switches", count(r.fabric.switches)),
      card("Cables", count(r.fabric.cables)),
      card("Questions asked", count(r.fabric.questions)),
    ),
    h("h2", null, "What was looked at"),
    table(
      [
        { title: "", cell: s => tag(kind[s.severity] ?? s.severity, s.severity) },
        { title: "Check", cell: s => s.title, class: "nowrap" },
        {
          title: "",
          cell: s => [s.looked ?? s.why ?? "", s.more ? ` and ${plural(s.more, "finding")} more` : ""],
          class: "roomy",
        },
      ],
      r.sections,
      { caption: "Checks" },
    ),
    h("h2", null, found.length ? "Findings" : "Nothing was found."),
    found.length
      ? table(
          [
            { title: "", cell: f => tag(kind[f.severity] ?? f.severity, f.severity) },
            { title: "Where", cell: f => f.objects?.slice(0, 3).join(", ") ?? "", class: "nowrap" },
            {
              title: "What",
              class: "roomy",
              cell: f => [h("div", null, f.measured), f.threshold && h("div", { class: "dim" }, `want ${f.threshold}`)],
            },
            { title: "Next", class: "roomy", cell: f => f.next },
          ],
          found,
          { caption: "Findings" },
        )
      : null,
  ];
}

function wiring(r) {
  return [
    h(
      "div",
      { class: "cards" },
      card("Wiring", r.ok ? "as it should be" : plural(r.findings.length, "finding"), r.ok ? "good" : "bad"),
      card("Kind", r.kind),
      card("Hosts", count(r.hosts)),
      card("Switches", count(r.switches)),
      card("Cables", count(r.cables)),
    ),
    r.levels?.length
      ? [
          h("h2", null, "Levels"),
          table(
            [
              { title: "Level", cell: l => l.name },
              { title: "Switches", cell: l => count(l.switches), num: true },
              { title: "Cables down", cell: l => count(l.down), num: true },
              { title: "Cables up", cell: l => count(l.up), num: true },
              {
                title: "Oversubscription",
                cell: l => (l.oversubscription ? `${l.oversubscription.toFixed(2)} : 1` : "–"),
                num: true,
              },
            ],
            r.levels,
            { caption: "Levels" },
          ),
        ]
      : r.not_a_fat_tree && h("p", { class: "dim" }, r.not_a_fat_tree),
    h("h2", null, r.findings.length ? "Findings" : "Nothing was found."),
    r.findings.length
      ? table(
          [
            { title: "", cell: f => tag(kind[f.severity] ?? f.severity, f.severity) },
            { title: "Where", cell: f => f.node ?? "", class: "nowrap" },
            { title: "What", cell: f => f.text, class: "roomy" },
            { title: "Next", cell: f => f.do ?? "", class: "roomy" },
          ],
          r.findings,
          { caption: "Findings" },
        )
      : null,
  ];
}

function inventory(r, model) {
  const b = r.bill,
    list = h("div"),
    note = h("span", { class: "dim", role: "status" });
  const text = h("input", {
    type: "search",
    placeholder: "filter by name, GUID or description",
    "aria-label": "Filter nodes",
    spellcheck: false,
    oninput: draw,
  });
  function draw() {
    const f = text.value.trim().toLowerCase(),
      fit = r.nodes.filter(
        n => !f || `${n.name} ${n.guid} ${n.system_guid} ${n.description}`.toLowerCase().includes(f),
      );
    note.textContent =
      fit.length > NODES_SHOWN
        ? `the first ${NODES_SHOWN} of ${plural(fit.length, "node")}; the JSON has all`
        : plural(fit.length, "node");
    fill(
      list,
      table(
        [
          { title: "Name", cell: n => nodeTo(model, n.name), sort: n => n.name, class: "nowrap" },
          { title: "Kind", cell: n => n.kind, sort: n => n.kind },
          { title: "GUID", cell: n => h("span", { class: "mono" }, n.guid), class: "nowrap" },
          { title: "LID", cell: n => n.lid || "–", sort: n => n.lid, num: true },
          { title: "Links active", cell: n => `${n.active} / ${n.cables}`, num: true },
          { title: "Ports", cell: n => n.ports, sort: n => n.ports, num: true },
          { title: "Vendor, device", cell: n => `${n.vendor_id}, ${n.device_id}`, class: "nowrap" },
          { title: "Description", cell: n => n.description },
        ],
        fit.slice(0, NODES_SHOWN),
        { caption: "Nodes" },
      ),
    );
  }
  draw();
  return [
    h(
      "div",
      { class: "cards" },
      card("Hosts", count(b.hosts)),
      card("Adapter ports", count(b.adapter_ports)),
      card("Switches", count(b.switch_count)),
      card("Cables", count(b.cable_count)),
      card("Free switch ports", count(b.ports_free)),
      card("Power", `${count(Math.round(b.watts))} W`),
    ),
    h("h2", null, "Made of"),
    table(
      [
        { title: "What", cell: x => x[0] },
        { title: "How many", cell: x => count(x[1]), num: true },
      ],
      [
        ...b.switches.map(s => [`switches of ${s.ports} ports, ${s.speed}`, s.count]),
        ...b.adapters.map(a => [`adapter ports, ${a.speed}`, a.count]),
        ...b.cables.map(c => [`${c.medium} cables of ${c.length_mm / 1000} m, ${c.rate}`, c.count]),
      ],
      { caption: "Bill of materials" },
    ),
    h("p", { class: "dim" }, b.estimate),
    h("h2", null, "Nodes"),
    h("div", { class: "filters" }, text, note),
    list,
  ];
}
