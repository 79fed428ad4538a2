// The map as a table: everything on it, to be read, sorted and filtered without seeing or pointing.

import { h, fill, table } from "../dom.js";
import { count, percent, plural } from "../format.js";
import { live, STATE } from "../live.js";

const PER_PAGE = 100;

export function tableView(root, { model, signal, title }) {
  title("Table");
  let what = "switches",
    page = 0;
  const text = h("input", {
    type: "search",
    placeholder: "filter by name",
    "aria-label": "Filter by name",
    spellcheck: false,
    oninput: () => {
      page = 0;
      draw();
    },
  });
  const kinds = [
    ["groups", "Groups"],
    ["switches", "Switches"],
    ["hosts", "Hosts"],
    ["links", "Links"],
  ].filter(([k]) => k !== "groups" || model.groups.length);
  const tabs = h(
    "div",
    { class: "segmented", role: "group", "aria-label": "What to list" },
    kinds.map(([k, t]) =>
      h(
        "button",
        {
          type: "button",
          dataset: { kind: k },
          onclick: () => {
            what = k;
            page = 0;
            draw();
          },
        },
        t,
      ),
    ),
  );
  const order = h(
    "select",
    {
      "aria-label": "Order",
      onchange: () => {
        page = 0;
        draw();
      },
    },
    [
      ["name", "in the map's order"],
      ["util", "busiest first"],
      ["errors", "most errors first"],
      ["wait", "most waiting first"],
    ].map(([v, t]) => h("option", { value: v }, t)),
  );
  const body = h("div"),
    pager = h("div", { class: "pager" });
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
          h("p", { class: "crumbs" }, h("a", { href: "#/map" }, "Map"), " / table"),
          h("h1", null, "The map as a table"),
          h("p", { class: "dim" }, model.kind),
        ),
      ),
      h("div", { class: "filters" }, tabs, text, order, pager),
      body,
    ),
  );

  function facts(cables) {
    let up = 0,
      util = 0,
      errors = 0,
      wait = 0;
    for (const k of cables) {
      if (!(live.state[k] & STATE.notActive)) up++;
      util = Math.max(util, live.util[2 * k], live.util[2 * k + 1]);
      wait = Math.max(wait, live.wait[2 * k], live.wait[2 * k + 1]);
      errors += (live.errors[2 * k] + live.errors[2 * k + 1]) / 10;
    }
    return { up, all: cables.length, util, errors, wait };
  }
  function rows() {
    const f = text.value.trim().toLowerCase(),
      list = [];
    if (what === "groups") {
      const of = model.groups.map(() => []);
      for (let k = 0; k < model.cables; k++) {
        const p = model.group[model.a[k]],
          q = model.group[model.b[k]];
        if (p >= 0) of[p].push(k);
        if (q >= 0 && q !== p) of[q].push(k);
      }
      model.groups.forEach((g, i) => {
        if (g.name.includes(f))
          list.push({
            name: g.name,
            href: "#/map",
            extra: `${plural(g.hosts, "host")}, ${plural(g.switches, "switch", "switches")}`,
            ...facts(of[i]),
          });
      });
    } else if (what === "links") {
      for (let k = 0; k < model.cables; k++) {
        const name = model.linkName(k);
        if (!f || name.includes(f))
          list.push({ name, href: model.linkPage(k), extra: model.rates[model.rate[k]].text, ...facts([k]) });
      }
    } else {
      for (let i = 0; i < model.count; i++) {
        if (model.isSwitch(i) !== (what === "switches") || (f && !model.names[i].toLowerCase().includes(f))) continue;
        list.push({
          name: model.names[i],
          href: model.page(i),
          extra: [
            model.isSwitch(i) && model.tree ? `level ${model.level[i]}` : "",
            model.group[i] >= 0 ? model.groups[model.group[i]].name : "",
          ]
            .filter(Boolean)
            .join(", "),
          ...facts(model.cablesOf(i)),
        });
      }
    }
    if (order.value !== "name") list.sort((a, b) => b[order.value] - a[order.value]);
    return list;
  }
  function draw() {
    for (const b of tabs.children) b.setAttribute("aria-pressed", b.dataset.kind === what);
    const all = rows(),
      pages = Math.max(1, Math.ceil(all.length / PER_PAGE));
    page = Math.min(page, pages - 1);
    fill(
      body,
      table(
        [
          { title: "Name", cell: r => h("a", { href: r.href, dataset: { k: r.name } }, r.name), class: "nowrap" },
          { title: "", cell: r => h("span", { class: "dim" }, r.extra) },
          {
            title: "Links active",
            cell: r => h("span", { class: r.up < r.all ? "bad" : "" }, `${count(r.up)} / ${count(r.all)}`),
            num: true,
          },
          { title: "Busiest", cell: r => percent(r.util / 1000), num: true },
          { title: "Waiting", cell: r => percent(r.wait / 1000), num: true },
          { title: "Errors a minute", cell: r => (r.errors ? r.errors.toFixed(1) : "0"), num: true },
        ],
        all.slice(page * PER_PAGE, (page + 1) * PER_PAGE),
        { caption: `${what}`, empty: "Nothing fits." },
      ),
    );
    fill(
      pager,
      h(
        "button",
        {
          type: "button",
          disabled: page === 0,
          onclick: () => {
            page--;
            draw();
          },
        },
        "Before",
      ),
      h("span", { class: "dim", role: "status" }, `${plural(all.length, "row")}, page ${page + 1} of ${pages}`),
      h(
        "button",
        {
          type: "button",
          disabled: page >= pages - 1,
          onclick: () => {
            page++;
            draw();
          },
        },
        "Next",
      ),
    );
  }
  draw();
  live.on(
    "links",
    () => {
      if (!body.contains(document.activeElement) && !root.querySelector("select:focus")) draw();
    },
    signal,
  );
}
