// The subnet manager: how it is, who else there is, partitions, and what its sweeps took.

import { h, fill, table } from "../dom.js";
import { get } from "../api.js";
import { count, dayClock, span } from "../format.js";
import { live } from "../live.js";
import { card, failed, nodeTo } from "../words.js";

const colours = ["#2f84b0", "#e69f00", "#2fa37c", "#b37bd4", "#d4674a", "#c9b23a", "#5b8def"];

export function smView(root, { model, signal, title }) {
  title("Subnet");
  let last = "";
  async function load() {
    let s;
    try {
      s = await get("sm");
    } catch (e) {
      if (!last && !signal.aborted) fill(root, failed(e));
      return;
    }
    const text = JSON.stringify(s);
    if (signal.aborted || text === last) return;
    last = text;
    const focus = document.activeElement?.dataset?.k;
    fill(root, page(s));
    if (focus) root.querySelector(`[data-k="${CSS.escape(focus)}"]`)?.focus();
  }
  function page(s) {
    // The phases that take the most time have colours of their own; the rest are grey.
    const total = new Map();
    for (const w of s.sweeps)
      for (const p of w.phases) total.set(p.name, (total.get(p.name) ?? 0) + p.took_ms / Math.max(w.took_ms, 1e-9));
    const order = [...total.keys()],
      phases = [...total]
        .sort((a, b) => b[1] - a[1])
        .slice(0, colours.length)
        .map(x => x[0])
        .sort((a, b) => order.indexOf(a) - order.indexOf(b));
    const colour = p => (phases.includes(p) ? colours[phases.indexOf(p)] : "var(--box-line)");
    const longest = Math.max(1e-9, ...s.sweeps.map(w => w.took_ms)),
      sweeps = [...s.sweeps].reverse();
    return h(
      "div",
      { class: "page" },
      h(
        "header",
        null,
        h(
          "div",
          null,
          h("h1", null, "Subnet manager"),
          h(
            "p",
            { class: "dim" },
            s.managed
              ? "softib's own manager looks after this fabric."
              : "Another manager looks after this fabric, or none: softib's own is not running with it.",
          ),
        ),
      ),
      s.managed
        ? h(
            "div",
            { class: "cards" },
            card("State", s.sweeping ? `${s.state}, sweeping` : s.state, "good"),
            card("Routing engine", s.engine || "–"),
            card("Sweeps", count(s.counters.Sweeps)),
            card("Light sweeps", count(s.counters.LightSweeps)),
            card("Datagrams sent", count(s.counters.Sent)),
            card("Traps received", count(s.counters.Traps)),
            card("Problems", count(s.counters.Problems), s.counters.Problems ? "warn" : ""),
          )
        : h(
            "div",
            { class: "box empty-state" },
            h("b", null, "No manager of softib's."),
            "Its state and sweeps are shown here when the fabric is started without --no-sm.",
          ),
      h("h2", null, "Managers"),
      table(
        [
          { title: "Node", cell: x => nodeTo(model, x.node) },
          { title: "State", cell: x => x.state },
          { title: "Priority", cell: x => x.priority, num: true },
          { title: "LID", cell: x => x.lid, num: true },
          { title: "GUID", cell: x => h("span", { class: "mono" }, x.guid) },
        ],
        s.managers ?? [],
        { caption: "Managers", empty: "None is known." },
      ),
      h("h2", null, "Partitions"),
      table(
        [
          { title: "Name", cell: x => x.name },
          { title: "Key", cell: x => h("span", { class: "mono" }, x.key) },
          { title: "Members", cell: x => count(x.members), num: true },
          { title: "Service level", cell: x => x.sl, num: true },
          { title: "IP over InfiniBand", cell: x => (x.ipoib ? "yes" : "no") },
        ],
        s.partitions ?? [],
        { caption: "Partitions", empty: "None is known." },
      ),
      h("h2", null, "Sweeps, newest first"),
      phases.length > 0 &&
        h(
          "ul",
          { class: "phase-key" },
          phases.map(p => h("li", null, h("i", { style: { "--c": colour(p) } }), p)),
          order.length > phases.length && h("li", null, h("i", { style: { "--c": "var(--box-line)" } }), "others"),
        ),
      table(
        [
          { title: "When", cell: w => dayClock(w.at), class: "nowrap" },
          { title: "Why", cell: w => [w.why, !w.full && h("span", { class: "dim" }, " (partial)")] },
          { title: "Took", cell: w => span(w.took_ms), num: true },
          {
            title: "Phases",
            cell: w =>
              h(
                "div",
                {
                  class: "phases",
                  role: "img",
                  "aria-label": w.phases.map(p => `${p.name} ${span(p.took_ms)}`).join(", "),
                  style: { width: `${Math.max(12, (100 * w.took_ms) / longest)}%` },
                },
                w.phases.map(p =>
                  h("i", {
                    title: `${p.name}: ${span(p.took_ms)}, ${count(p.mads)} datagrams`,
                    style: { "--p": `${(100 * p.took_ms) / Math.max(w.took_ms, 1e-9)}%`, "--c": colour(p.name) },
                  }),
                ),
              ),
          },
          { title: "Nodes", cell: w => count(w.nodes), num: true },
          {
            title: "Links",
            cell: w => [count(w.links), w.degraded > 0 && h("span", { class: "warn" }, ` (${count(w.degraded)} slow)`)],
            num: true,
          },
          { title: "Datagrams", cell: w => count(w.mads), num: true },
          { title: "Table blocks", cell: w => count(w.blocks), num: true },
          { title: "Problems", cell: w => h("span", { class: w.problems ? "bad" : "" }, count(w.problems)), num: true },
        ],
        sweeps,
        { caption: "Sweeps", empty: "No sweep is remembered." },
      ),
    );
  }
  live.follow("status", load, signal);
}
