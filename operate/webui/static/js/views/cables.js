// The worst cables, ranked, with why; and the alarms that stand.

import { h, fill, table } from "../dom.js";
import { get } from "../api.js";
import { count, small } from "../format.js";
import { live } from "../live.js";
import { failed, health, linkTo } from "../words.js";
import { alarmTable, muteList } from "../alarms.js";

export function cablesView(root, { model, signal, title }) {
  title("Cables");
  const head = h("p", { class: "dim" }),
    body = h("div"),
    alarms = h("div"),
    muted = h("div");
  const page = h(
    "div",
    { class: "page" },
    h("header", null, h("div", null, h("h1", null, "Cables, worst first"), head)),
    alarms,
    muted,
    body,
  );
  let list = null,
    standing = null;
  async function load() {
    try {
      const [a, al] = await Promise.all([get("cables?max=500"), get("alarms")]);
      if (signal.aborted) return;
      if (!page.isConnected) fill(root, page);
      head.textContent = a.alarmed
        ? `${count(a.alarmed)} of ${count(model.cables)} cables ${a.alarmed === 1 ? "has" : "have"} an alarm. Below ` +
          "they are ranked by what their counters did in the last minutes."
        : `No cable has an alarm. Below they are ranked by what their counters did in the last minutes.`;
      if (!a.cables.length) {
        list = null;
        fill(
          body,
          h(
            "div",
            { class: "box empty-state" },
            h("b", null, "No cable is bad."),
            "Errors, flaps, slow and dead links are ranked here as soon as counters show them. Rehearse it: set a " +
              "fault on a link's page.",
          ),
        );
      } else if (!list) {
        list = table(columns(model), a.cables, { caption: "Cables, worst first", rowClass: c => c.severity });
        fill(body, list);
      } else if (!list.contains(document.activeElement) || document.activeElement === list) list.update(a.cables);
      if (!al.length) {
        fill(alarms);
        standing = null;
      } else if (!standing) {
        standing = alarmTable(model, al, again);
        fill(alarms, h("h2", null, "Alarms that stand"), standing);
      } else if (!standing.contains(document.activeElement) || document.activeElement === standing) standing.update(al);
      if (!muted.contains(document.activeElement)) await muteList(muted, again);
    } catch (e) {
      if (!page.isConnected && !signal.aborted) fill(root, failed(e));
    }
  }
  const again = live.follow("links", load, signal);
}

const columns = model => [
  { title: "#", cell: c => c.rank, num: true },
  { title: "Link", cell: c => linkTo(model, c.link.split(" ")[0], c.link), class: "nowrap" },
  { title: "Health", cell: c => health(c.severity) },
  {
    title: "Why",
    class: "roomy",
    cell: c => [
      c.why?.map(w => h("div", null, w)),
      c.fault && h("div", { class: "warn" }, `A rehearsal fault is set: ${c.fault}`),
    ],
  },
  { title: "Bit error rate", cell: c => (c.ber ? small(c.ber) : "–"), num: true },
];
