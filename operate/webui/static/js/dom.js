// Elements without markup in strings: nothing that a fabric says can become a tag.

// h makes an element. Props that start with "on" are listeners, "class", "dataset" and "style" (an object) do as they
// say, false and null are left out.
export function h(tag, props, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(props ?? {})) {
    if (k.startsWith("aria-") && typeof v === "boolean") {
      e.setAttribute(k, String(v));
      continue;
    } // there "false" is a word
    if (v === null || v === undefined || v === false) continue;
    if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
    else if (k === "class") e.className = v;
    else if (k === "dataset") Object.assign(e.dataset, v);
    else if (k === "style") for (const [p, w] of Object.entries(v)) e.style.setProperty(p, w);
    else if (k in e && k !== "list" && k !== "role" && !k.startsWith("aria")) e[k] = v;
    else e.setAttribute(k, v === true ? "" : v);
  }
  e.append(...children.flat(Infinity).filter(c => c !== null && c !== undefined && c !== false));
  return e;
}

// fill replaces what is in an element.
export function fill(e, ...children) {
  e.replaceChildren(...children.flat(Infinity).filter(c => c !== null && c !== undefined && c !== false));
  return e;
}

// table makes a table; columns are {title, cell(row), num, sort(row)}. Rows may be sorted by their heads.
export function table(
  columns,
  rows,
  { caption, empty = "Nothing here.", sortBy = -1, desc = false, rowClass, key } = {},
) {
  const wrap = h("div", { class: "table-wrap", tabIndex: 0, role: "region", "aria-label": caption });
  const draw = () => {
    if (sortBy >= 0 && columns[sortBy].sort) {
      const by = columns[sortBy].sort;
      rows = [...rows].sort((a, b) => {
        const x = by(a),
          y = by(b);
        return (x < y ? -1 : x > y ? 1 : 0) * (desc ? -1 : 1);
      });
    }
    const head = h(
      "tr",
      null,
      columns.map((c, i) =>
        h(
          "th",
          {
            scope: "col",
            class: c.num ? "num" : "",
            "aria-sort": i === sortBy ? (desc ? "descending" : "ascending") : null,
          },
          c.sort
            ? h(
                "button",
                {
                  type: "button",
                  class: "sort",
                  onclick: () => {
                    if (sortBy === i) desc = !desc;
                    else {
                      sortBy = i;
                      desc = !!c.num;
                    }
                    draw();
                    wrap
                      .querySelectorAll("th button")
                      [[...columns.keys()].filter(k => columns[k].sort).indexOf(i)]?.focus();
                  },
                },
                c.title,
              )
            : c.title,
        ),
      ),
    );
    const body = rows.length
      ? rows.map(r =>
          h(
            "tr",
            { class: rowClass?.(r) ?? "", dataset: key ? { key: key(r) } : {} },
            columns.map(c => h("td", { class: c.num ? "num" : (c.class ?? "") }, c.cell(r))),
          ),
        )
      : [h("tr", null, h("td", { colSpan: columns.length, class: "empty" }, empty))];
    fill(
      wrap,
      h(
        "table",
        null,
        caption && h("caption", { class: "sr" }, caption),
        h("thead", null, head),
        h("tbody", null, body),
      ),
    );
  };
  draw();
  wrap.update = next => {
    rows = next;
    const top = wrap.scrollTop;
    const act = document.activeElement?.dataset?.k;
    draw();
    wrap.scrollTop = top;
    if (act) wrap.querySelector(`[data-k="${CSS.escape(act)}"]`)?.focus();
  };
  return wrap;
}

let toastTimer = 0;
export function toast(text, bad) {
  const t = document.getElementById("toast");
  t.textContent = text;
  t.className = bad ? "shown bad" : "shown";
  clearTimeout(toastTimer);
  toastTimer = setTimeout(
    () => {
      t.className = "";
    },
    bad ? 9000 : 4000,
  );
}
