// Faults that are set for a rehearsal, and where to set more.

import { h, fill, table, toast } from "../dom.js";
import { del, get, q } from "../api.js";
import { ago, count } from "../format.js";
import { live } from "../live.js";
import { failed, linkTo } from "../words.js";
import { faultForm } from "./link.js";

export function faultsView(root, { model, signal, title, go }) {
  title("Faults");
  let list = null;
  const where = h("input", {
    name: "link",
    placeholder: "leaf1[5]",
    required: true,
    size: 14,
    autocomplete: "off",
    spellcheck: false,
  });
  const place = h("div"),
    problem = h("p", { class: "form-error", role: "alert", hidden: true });
  const choose = h(
    "form",
    {
      class: "row",
      "aria-label": "Choose a link",
      onsubmit: async e => {
        e.preventDefault();
        problem.hidden = true;
        try {
          const l = await get(`link?port=${q(where.value.trim())}`);
          const form = faultForm(l.name, again, signal);
          form.draw(!!l.fault);
          fill(place, h("h3", null, `A fault for ${l.name}`), form.element);
          place.querySelector("input")?.focus();
        } catch (err) {
          fill(problem, err.message, err.next && h("small", null, err.next));
          problem.hidden = false;
          where.setAttribute("aria-invalid", "true");
          fill(place);
          return;
        }
        where.removeAttribute("aria-invalid");
      },
    },
    h("label", null, "link, by a port", where),
    h("button", { type: "submit" }, "Choose"),
  );
  const all = h(
    "button",
    {
      type: "button",
      class: "danger",
      onclick: async () => {
        try {
          await del("faults");
          toast("All faults are lifted.");
          again();
        } catch (e) {
          toast(e.message, true);
        }
      },
    },
    "Lift all",
  );
  const body = h("div");
  const lift = async f => {
    try {
      await del(`faults?link=${q(f.link)}`);
      toast(`${f.link} is a good cable again.`);
      again();
    } catch (e) {
      toast(e.message, true);
    }
  };
  const columns = [
    { title: "Link", cell: f => linkTo(model, f.link.split(" ")[0], f.link), class: "nowrap" },
    { title: "Fault", cell: f => h("span", { class: "mono" }, f.fault) },
    { title: "Set", cell: f => ago(f.since), class: "nowrap" },
    { title: "Packets lost", cell: f => count(f.dropped), num: true },
    { title: "Packets damaged", cell: f => count(f.corrupted), num: true },
    {
      title: "",
      cell: f => h("button", { type: "button", dataset: { k: `lift ${f.link}` }, onclick: () => lift(f) }, "Lift"),
    },
  ];
  async function load() {
    let a;
    try {
      a = await get("faults");
    } catch (e) {
      if (!list && !signal.aborted) fill(root, failed(e));
      return;
    }
    if (signal.aborted) return;
    all.hidden = !a.length;
    if (!list) {
      list = table(columns, a, {
        caption: "Faults that are set",
        empty: "No fault is set. The fabric is as good as its cables.",
      });
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
              h("h1", null, "Rehearsal faults"),
              h(
                "p",
                { class: "dim" },
                "Bad cables on purpose: what is set here happens to programs' packets, and alarms, metrics and " +
                  "routing react as they would to a real one.",
              ),
            ),
            h("div", { class: "actions" }, all),
          ),
          list,
          h("div", { class: "box" }, h("h2", null, "Set another"), choose, problem, place),
        ),
      );
    } else if (!list.contains(document.activeElement) || document.activeElement === list) list.update(a);
  }
  const again = live.follow("status", load, signal);
}
