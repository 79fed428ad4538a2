// What happened, as it happens.

import { h, fill } from "../dom.js";
import { get } from "../api.js";
import { clock, plural } from "../format.js";
import { live } from "../live.js";

export function eventsView(root, { model, params, signal, title, go }) {
  title("Events");
  const shownMax = 500;
  let all = [],
    held = false;
  const text = h("input", {
    type: "search",
    placeholder: "filter by text",
    "aria-label": "Filter events by text",
    value: params.q ?? "",
    oninput: draw,
    spellcheck: false,
  });
  const kind = h("select", { "aria-label": "Kind of event", onchange: draw }, h("option", { value: "" }, "every kind"));
  const severity = h(
    "select",
    { "aria-label": "Severity", onchange: draw },
    ["info", "warning", "critical"].map((s, i) => h("option", { value: i }, i ? `${s} or worse` : "every severity")),
  );
  const hold = h(
    "button",
    {
      type: "button",
      "aria-pressed": "false",
      onclick: () => {
        held = !held;
        hold.setAttribute("aria-pressed", held);
        hold.textContent = held ? "Go on" : "Hold";
        if (!held) {
          merge(live.events);
          draw();
        }
      },
    },
    "Hold",
  );
  const list = h("div", {
      class: "box",
      role: "log",
      "aria-label": "Events, newest first",
      style: { padding: "4px 0" },
    }),
    note = h("span", { class: "dim", role: "status" });
  fill(
    root,
    h(
      "div",
      { class: "page" },
      h("header", null, h("div", null, h("h1", null, "Events"))),
      h("div", { class: "filters" }, text, kind, severity, hold, note),
      list,
    ),
  );
  const level = { info: 0, warning: 1, critical: 2 };

  function merge(news) {
    const last = all.length ? all[all.length - 1].id : 0;
    all.push(...news.filter(e => e.id > last));
    if (all.length > 5000) all = all.slice(-5000);
    const kinds = [...new Set(all.map(e => e.kind))].sort();
    if (kinds.length + 1 !== kind.options.length) {
      const v = kind.value;
      fill(
        kind,
        h("option", { value: "" }, "every kind"),
        kinds.map(k => h("option", { value: k }, k)),
      );
      kind.value = v;
    }
  }
  function line(e, fresh) {
    const where = e.object && objectPage(e.object);
    return h(
      "div",
      { class: `event ${e.severity} ${fresh ? "new" : ""}`, dataset: { id: e.id } },
      h("time", { dateTime: e.at, title: new Date(e.at).toLocaleString("en-GB") }, clock(e.at)),
      h(
        "span",
        { class: "kind" },
        e.severity === "info" ? e.kind : `${e.severity === "critical" ? "✕" : "▲"} ${e.kind}`,
      ),
      h("p", null, e.text, where && [" ", h("a", { href: where }, "show")]),
    );
  }
  function objectPage(o) {
    const name = o.split(" ")[0],
      node = name.replace(/\[\d+\]$/, "");
    if (model.index.has(name)) return model.page(model.index.get(name));
    return model.index.has(node) && name !== node ? `#/link/${encodeURIComponent(name)}` : null;
  }
  const fits = e =>
    (!kind.value || e.kind === kind.value) &&
    level[e.severity] >= Number(severity.value) &&
    (!text.value || `${e.text} ${e.object ?? ""} ${e.kind}`.toLowerCase().includes(text.value.toLowerCase()));
  function draw() {
    const fit = all.filter(fits),
      some = fit.slice(-shownMax).reverse();
    fill(
      list,
      some.length
        ? some.map(e => line(e))
        : h(
            "div",
            { class: "empty-state" },
            h("b", null, all.length ? "No event fits the filter." : "Nothing has happened yet."),
            all.length ? "" : "Links, sweeps, faults, tenants and alarms are written down here as they come.",
          ),
    );
    note.textContent =
      fit.length > shownMax ? `the newest ${shownMax} of ${plural(fit.length, "event")}` : plural(fit.length, "event");
  }
  get("events?max=2000")
    .then(e => {
      if (!signal.aborted) {
        all = [];
        merge(e);
        merge(live.events);
        draw();
      }
    })
    .catch(e => fill(list, h("p", { class: "error empty-state" }, e.message)));
  live.on(
    "events",
    news => {
      if (held) return;
      merge(news);
      const fresh = news.filter(fits);
      if (!fresh.length) return;
      list.querySelector(".empty-state")?.remove();
      list.prepend(...fresh.reverse().map(e => line(e, true)));
      while (list.children.length > shownMax) list.lastChild.remove();
      note.textContent = plural(all.filter(fits).length, "event");
    },
    signal,
  );
}
