// The worst cables, ranked, with why; and the alarms that stand.

import { h, fill, table } from "../dom.js";
import { get } from "../api.js";
import { ago, count, small } from "../format.js";
import { live } from "../live.js";
import { failed, health, linkTo } from "../words.js";

export function cablesView(root, { model, signal, title }) {
  title("Cables");
  const head = h("p", { class: "dim" }), body = h("div"), alarms = h("div");
  const page = h("div", { class: "page" }, h("header", null, h("div", null, h("h1", null, "Cables, worst first"), head)), body, alarms);
  let list = null, standing = null;
  async function load() {
    try {
      const [a, al] = await Promise.all([get("cables?max=500"), get("alarms")]);
      if (signal.aborted) return;
      if (!page.isConnected) fill(root, page);
      head.textContent = a.total ? `${count(a.total)} of ${count(model.cables)} cables need a look, judged by what their counters did in the last minutes.` : `All ${count(model.cables)} cables are fine, judged by what their counters did in the last minutes.`;
      if (!a.cables.length) { list = null; fill(body, h("div", { class: "box empty-state" }, h("b", null, "No cable is bad."), "Errors, flaps, slow and dead links are ranked here as soon as counters show them. Rehearse it: set a fault on a link's page.")); }
      else if (!list) { list = table(columns(model), a.cables, { caption: "Cables, worst first", rowClass: c => c.severity }); fill(body, list); } else if (!list.contains(document.activeElement) || document.activeElement === list) list.update(a.cables);
      if (!al.length) { fill(alarms); standing = null; } else {
        const t = [{ title: "Since", cell: x => ago(x.since), class: "nowrap" }, { title: "", cell: x => health(x.severity) }, { title: "Link", cell: x => linkTo(model, x.link.split(" ")[0], x.link), class: "nowrap" }, { title: "Alarm", class: "roomy", cell: x => x.text }, { title: "Next", class: "roomy", cell: x => x.next }];
        if (!standing) { standing = table(t, al, { caption: "Alarms that stand" }); fill(alarms, h("h2", null, "Alarms that stand"), standing); } else standing.update(al);
      }
    } catch (e) { if (!page.isConnected && !signal.aborted) fill(root, failed(e)); }
  }
  load();
  live.on("links", load, signal);
}

const columns = model => [
  { title: "#", cell: c => c.rank, num: true },
  { title: "Link", cell: c => linkTo(model, c.link.split(" ")[0], c.link), class: "nowrap" },
  { title: "Health", cell: c => health(c.severity) },
  { title: "Why", class: "roomy", cell: c => [c.why?.map(w => h("div", null, w)), c.fault && h("div", { class: "warn" }, `A rehearsal fault is set: ${c.fault}`)] },
  { title: "Bit error rate", cell: c => c.ber ? small(c.ber) : "–", num: true },
];
