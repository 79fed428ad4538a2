// Elements, tables and the read-out. Text is only ever set as text: what a report says can not become markup.

const SVG = "http://www.w3.org/2000/svg";

function dress(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter(c => c !== null && c !== undefined && c !== false));
  return element;
}

const h = (tag, attributes, ...children) => dress(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) => dress(document.createElementNS(SVG, tag), attributes, children);

// box is a section of the page with a title and a line that says how to read it.
const box = (title, note, ...children) =>
  h("section", { class: "box" }, h("h2", null, title), note && h("p", { class: "note" }, note), ...children);

const empty = text => h("p", { class: "empty" }, text);

// framed is a table that scrolls by itself where it is wider than the page, by keys too.
const framed = (caption, heads, body, style) =>
  h(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h(
      "table",
      { class: style },
      h("caption", { class: "unseen" }, caption),
      h("thead", null, h("tr", null, heads)),
      body,
    ),
  );

// table has columns {title, text, value, num}: text writes a row's cell, value is what the column is sorted by.
const table = (caption, columns, rows) =>
  framed(
    caption,
    columns.map(c => h("th", { scope: "col", class: c.num && "num" }, c.title)),
    h(
      "tbody",
      null,
      rows.map(row => line(columns, row)),
    ),
  );

const line = (columns, row) =>
  h(
    "tr",
    null,
    columns.map(c => h("td", { class: c.num ? "num" : c.class }, c.text(row))),
  );

// folded is a table that is made when it is asked for: those over time are long.
function folded(title, make) {
  const fill = () => {
    if (details.open && details.children.length === 1) details.append(make());
  };
  const details = h("details", { ontoggle: fill }, h("summary", null, title));
  return details;
}

// sortable is a table whose heads are buttons. It shows some rows, until all are asked for.
function sortable(caption, columns, rows, by, few) {
  let column = by,
    down = true,
    all = rows.length <= few;
  const sort = (c, i) => {
    down = column === i ? !down : !!c.num;
    column = i;
    fill();
  };
  const heads = columns.map((c, i) =>
    h(
      "th",
      { scope: "col", class: c.num && "num" },
      h("button", { type: "button", class: "sort", onclick: () => sort(c, i) }, c.title),
    ),
  );
  const body = h("tbody"),
    frame = framed(caption, heads, body);
  const unfold = () => {
    all = true;
    fill();
    frame.classList.add("long");
  };
  const more = h("button", { type: "button", class: "more", onclick: unfold }, `Show all ${count(rows.length)}`);
  const fill = () => {
    const c = columns[column],
      sign = down ? -1 : 1;
    const compare = (a, b) => {
      const x = c.value(a),
        y = c.value(b);
      return c.num ? x - y : x.localeCompare(y, "en", { numeric: true });
    };
    const sorted = rows.slice().sort((a, b) => sign * compare(a, b));
    heads.forEach(th => th.removeAttribute("aria-sort"));
    heads[column].setAttribute("aria-sort", down ? "descending" : "ascending");
    body.replaceChildren(...(all ? sorted : sorted.slice(0, few)).map(row => line(columns, row)));
    more.hidden = all;
  };
  fill();
  return h("div", null, frame, more);
}

// meter is a bar behind a part of a whole.
function meter(v) {
  const bar = h("i", { class: "bar" });
  bar.style.setProperty("--part", `${Math.min(Math.max(v, 0), 1) * 100}%`);
  return h("span", { class: "meter" }, part(v), bar);
}

// tip is the one read-out of the page: it follows the pointer, or the place that keys have chosen.
const tip = {
  element: h("div", { class: "tip", hidden: true }),
  show(x, y, head, rows, spoken) {
    const t = this.element;
    t.setAttribute("aria-live", spoken ? "polite" : "off");
    t.replaceChildren(
      h("b", null, head),
      ...rows.map(r =>
        h(
          "div",
          { class: "row" },
          swatch(r.colour, r.dash),
          h("span", null, r.name),
          h("span", { class: "num" }, r.text),
        ),
      ),
    );
    t.hidden = false;
    const w = t.offsetWidth,
      high = t.offsetHeight;
    t.style.left = `${Math.max(4, x + 14 + w > innerWidth - 4 ? x - 14 - w : x + 14)}px`;
    t.style.top = `${Math.max(4, Math.min(y - high - 10, innerHeight - high - 4))}px`;
  },
  hide() {
    this.element.hidden = true;
  },
};

// swatch is a short piece of a line, as it is drawn.
const swatch = (colour, dash) =>
  colour === undefined
    ? null
    : s(
        "svg",
        { class: "swatch", width: 16, height: 8, "aria-hidden": "true" },
        s("line", { x1: 0, x2: 16, y1: 4, y2: 4, class: `line c${colour}`, "stroke-dasharray": dash && "4 3" }),
      );
