// Tenants: who they are, and every change to them.

import { h, fill, toast } from "../dom.js";
import { del, post, q } from "../api.js";
import { plural } from "../format.js";
import { tenants } from "../tenants.js";
import { palette, tenantColor } from "../map/scales.js";
import { nodeTo } from "../words.js";

const hostWords = text => text.split(/[\s,]+/).filter(Boolean);

export function tenantsView(root, { model, signal, title }) {
  title("Tenants");
  const list = h("div"),
    trouble = h("p", { class: "warn", role: "alert", hidden: true });

  // A form that shows what was refused at the field it was refused for.
  function form(label, fields, button, act, danger) {
    const problem = h("p", { class: "form-error", role: "alert", hidden: true });
    const submit = h("button", { type: "submit", class: danger ? "danger" : "primary" }, button);
    const f = h(
      "form",
      {
        class: "row",
        "aria-label": label,
        onsubmit: async e => {
          e.preventDefault();
          problem.hidden = true;
          for (const i of f.elements) i.removeAttribute("aria-invalid");
          submit.disabled = true;
          const before = submit.textContent;
          submit.textContent = "Proving …";
          try {
            await act(new FormData(f));
            f.reset();
            await tenants.refresh();
          } catch (err) {
            fill(problem, err.message, err.next && h("small", null, err.next));
            problem.hidden = false;
            const bad = f.elements[err.field] ?? (["add", "remove"].includes(err.field) ? f.elements.hosts : null);
            bad?.setAttribute("aria-invalid", "true");
            bad?.focus();
          }
          submit.disabled = false;
          submit.textContent = before;
        },
      },
      fields,
      submit,
    );
    return h("div", null, f, problem);
  }

  const create = form(
    "Create a tenant",
    [
      h(
        "label",
        null,
        "name",
        h("input", { name: "name", required: true, size: 12, maxLength: 64, autocomplete: "off", spellcheck: false }),
      ),
      h(
        "label",
        { class: "grow" },
        "hosts (h1 h2, or h1-h8)",
        h("input", { name: "hosts", autocomplete: "off", spellcheck: false }),
      ),
      h(
        "label",
        null,
        "key, if it matters",
        h("input", { name: "key", size: 8, placeholder: "0x11", autocomplete: "off", spellcheck: false }),
      ),
      h(
        "label",
        null,
        "service level",
        h("input", { name: "sl", size: 3, inputMode: "numeric", placeholder: "any", autocomplete: "off" }),
      ),
      h(
        "label",
        null,
        "at most, Gb/s",
        h("input", { name: "gbps", size: 5, inputMode: "decimal", placeholder: "any", autocomplete: "off" }),
      ),
      h("label", { class: "check" }, h("input", { type: "checkbox", name: "limited" }), "limited"),
      h("label", { class: "check" }, h("input", { type: "checkbox", name: "ipoib" }), "IP over InfiniBand"),
    ],
    "Create",
    async f => {
      const number = (field, name) => {
        const text = String(f.get(field)).trim();
        if (text === "") return undefined;
        if (!Number.isFinite(Number(text)))
          throw Object.assign(new Error(`The ${name} is no number: ${text}`), { field });
        return Number(text);
      };
      const t = await post("tenants", {
        sl: number("sl", "service level"),
        gbps: number("gbps", "rate"),
        name: String(f.get("name")).trim(),
        hosts: hostWords(String(f.get("hosts"))),
        key: String(f.get("key")).trim(),
        limited: f.has("limited"),
        ipoib: f.has("ipoib"),
      });
      toast(`${t.name} is in force, with partition ${t.key}.`);
    },
  );
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
          h("h1", null, "Tenants"),
          h(
            "p",
            { class: "dim" },
            "Hosts of a tenant reach each other and nobody else. A change is in force, and proved by probes, when it " +
              "is answered; one that any node refuses is undone as a whole.",
          ),
        ),
        h("div", { class: "actions" }, h("a", { class: "button", href: "#/map?color=tenant" }, "On the map")),
      ),
      trouble,
      h("div", { class: "box" }, h("h2", null, "New tenant"), create),
      list,
    ),
  );

  function card(t, n) {
    const remove = async host => {
      try {
        await post(`tenants/${q(t.name)}/hosts`, { remove: [host] });
        toast(`${host} is out of ${t.name}.`);
        await tenants.refresh();
      } catch (e) {
        toast(`${e.message}. ${e.next ?? ""}`, true);
      }
    };
    const chip = (name, elsewhere) =>
      h(
        "li",
        null,
        elsewhere ? h("span", { class: "mono", title: "not in this fabric" }, name) : nodeTo(model, name),
        t.limited.includes(name) && h("span", { class: "dim" }, " limited"),
        " ",
        h(
          "button",
          {
            type: "button",
            class: "x",
            "aria-label": `Remove ${name} from ${t.name}`,
            title: "Remove",
            onclick: () => remove(name),
          },
          "×",
        ),
      );
    const shown = t.hosts.slice(0, 120);
    return h(
      "section",
      { class: "box tenant", "aria-label": `Tenant ${t.name}` },
      h(
        "div",
        { class: "filters" },
        h("i", { class: "dot", style: { background: tenantColor(palette(), n) } }),
        h("h2", { style: { margin: "0" } }, t.name),
        h(
          "span",
          { class: "dim" },
          [
            `partition ${t.key}`,
            plural(t.hosts.length, "host"),
            t.sl !== undefined && `SL ${t.sl}`,
            t.rate,
            t.mtu && `MTU ${t.mtu}`,
            t.ipoib && "IP over InfiniBand",
          ]
            .filter(Boolean)
            .join(" · "),
        ),
        h(
          "button",
          { type: "button", class: "danger", style: { "margin-left": "auto" }, onclick: () => ask(t) },
          "Delete …",
        ),
      ),
      t.hosts.length + t.elsewhere.length
        ? h(
            "ul",
            { class: "chips" },
            shown.map(x => chip(x)),
            t.elsewhere.slice(0, 40).map(x => chip(x, true)),
            t.hosts.length > shown.length && h("li", { class: "dim" }, `and ${t.hosts.length - shown.length} more`),
          )
        : h("p", { class: "dim" }, "No hosts yet."),
      h(
        "div",
        { style: { "margin-top": "10px" } },
        form(
          `Hosts of ${t.name}`,
          [
            h(
              "label",
              { class: "grow" },
              "add hosts (h1 h2, or h1-h8)",
              h("input", { name: "hosts", required: true, autocomplete: "off", spellcheck: false }),
            ),
            h("label", { class: "check" }, h("input", { type: "checkbox", name: "limited" }), "limited"),
          ],
          "Add",
          async f => {
            await post(`tenants/${q(t.name)}/hosts`, {
              add: hostWords(String(f.get("hosts"))),
              limited: f.has("limited"),
            });
            toast(`${t.name} has its new hosts.`);
          },
        ),
      ),
    );
  }
  function ask(t) {
    const d = h(
      "dialog",
      {
        "aria-label": `Delete ${t.name}`,
        onclose: async () => {
          d.remove();
          if (d.returnValue !== "yes") return;
          try {
            await del(`tenants/${q(t.name)}`);
            toast(`${t.name} is gone.`);
            await tenants.refresh();
          } catch (e) {
            toast(`${e.message}. ${e.next ?? ""}`, true);
          }
        },
      },
      h(
        "form",
        { method: "dialog" },
        h("h2", null, `Delete ${t.name}?`),
        h("p", null, `Its ${plural(t.hosts.length, "host")} lose partition ${t.key} at once.`),
        h(
          "p",
          { class: "actions" },
          h("button", { value: "no", autofocus: true }, "Keep"),
          h("button", { value: "yes", class: "danger" }, "Delete"),
        ),
      ),
    );
    document.body.append(d);
    d.showModal();
  }

  let drawn = "";
  function draw() {
    trouble.hidden = !tenants.problem;
    trouble.textContent = tenants.problem ?? "";
    const now = JSON.stringify(tenants.list);
    if (now === drawn) return;
    drawn = now;
    fill(
      list,
      tenants.list.length
        ? tenants.list.map(card)
        : h(
            "div",
            { class: "box empty-state" },
            h("b", null, "No tenants."),
            "All hosts share the default partition and reach each other.",
          ),
    );
  }
  tenants.addEventListener("change", draw, { signal });
  draw();
  tenants.refresh();
}
