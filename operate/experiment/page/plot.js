// Plots of lines. They are SVG, whose colours are the sheet's: dark, light and print need no drawing again.

// overTime are the plots with a time axis of the run: a place chosen in one is marked in all.
const overTime = new Set();

// plot draws series {name, colour, dash, area, points: [x, y] …} as steps: each y holds until the next x.
//   x, y         spans, as axis takes them, with a title
//   read(x)      what is told of a place: {x, head, rows: [{series, y, text}]}
//   stops        the places that keys go through
//   marks        {x, y, text}: places with a name
//   named        the legend is there for one line too
//   words        what the plot shows, for those who do not see it
function plot({ title, words, x, y, series, read, stops, marks = [], high = 250, shared, named }) {
  const shown = series.map(() => true);
  const svg = s("svg", {
    class: "plot",
    role: "img",
    tabindex: 0,
    "aria-label": `${title}. ${words}. Arrow keys read values.`,
  });
  let ax,
    ay,
    cursor,
    width = 0,
    place = -1;

  function draw() {
    if (width < 60) return;
    const bottom = high - 36,
      labels = axis(y, bottom, 10, Math.floor((high - 40) / 44)).ticks;
    const left = 14 + 6.2 * labels.reduce((n, t) => Math.max(n, t.text.length), 0),
      right = width - 16;
    ax = axis(x, left, right, Math.floor((right - left) / 68));
    ay = axis(y, bottom, 22, Math.floor((high - 40) / 44));
    svg.setAttribute("viewBox", `0 0 ${width} ${high}`);
    const parts = [
      s("text", { class: "title", x: 2, y: 10 }, y.title),
      s("text", { class: "title", x: right, y: high - 3, "text-anchor": "end" }, x.title),
    ];
    for (const t of ay.ticks) {
      parts.push(
        s("line", { class: "grid", x1: left, x2: right, y1: ay.at(t.v), y2: ay.at(t.v) }),
        s("text", { class: "tick", x: left - 6, y: ay.at(t.v) + 4, "text-anchor": "end" }, t.text),
      );
    }
    parts.push(...ticksBelow(ax, left, right, bottom, 22));
    series.forEach((one, i) => {
      if (shown[i]) parts.push(...lines(one, bottom));
    });
    if (shown[0]) parts.push(...marks.flatMap(m => mark(m, right)));
    cursor = s("g", { class: "cursor" });
    svg.replaceChildren(...parts, cursor);
  }

  // lines are the steps of a series, and what lies under them.
  function lines(one, bottom) {
    let d = "";
    one.points.forEach(([px, py], i) => {
      d += (i ? `H${ax.at(px).toFixed(1)}V` : `M${ax.at(px).toFixed(1)} `) + ay.at(Math.min(py, y.hi)).toFixed(1);
    });
    const path = s("path", {
      class: `line c${one.colour}${one.strong ? " strong" : ""}`,
      d,
      "stroke-dasharray": one.dash && "5 3",
    });
    return one.area
      ? [s("path", { class: `area c${one.colour}`, d: `${d}V${bottom}H${ax.at(one.points[0][0]).toFixed(1)}Z` }), path]
      : [path];
  }

  // mark is a dot with its name, on the side where there is room.
  function mark(m, right) {
    const px = ax.at(m.x),
      py = ay.at(m.y),
      after = px + 8 + 6.4 * m.text.length < right;
    return [
      s("circle", { class: `dot c${series[0].colour}`, cx: px, cy: py, r: 3.5 }),
      s(
        "text",
        { class: "mark", x: after ? px + 8 : px - 8, y: py + 14, "text-anchor": after ? "start" : "end" },
        m.text,
      ),
    ];
  }

  // point marks what is read at a place, and tells it.
  function point(v, at, spoken) {
    const got = read(v),
      rows = got.rows.filter(r => shown[r.series]);
    rule(got.x, rows);
    if (shared) overTime.forEach(p => p.svg !== svg && p.rule(got.x));
    const frame = svg.getBoundingClientRect();
    tip.show(
      at?.x ?? frame.left + (ax.at(got.x) * frame.width) / width,
      at?.y ?? frame.top + 60,
      got.head,
      rows.map(r => ({ ...series[r.series], text: r.text })),
      spoken,
    );
  }

  function rule(v, rows = []) {
    if (!cursor) return;
    const px = ax.at(Math.min(Math.max(v, x.lo), x.hi));
    cursor.replaceChildren(
      s("line", { x1: px, x2: px, y1: 22, y2: high - 36 }),
      ...rows.map(r =>
        s("circle", { class: `dot c${series[r.series].colour}`, cx: px, cy: ay.at(Math.min(r.y, y.hi)), r: 3.5 }),
      ),
    );
  }

  const off = () => {
    tip.hide();
    place = -1;
    cursor?.replaceChildren();
    if (shared) overTime.forEach(p => p.clear());
  };
  pointing(
    svg,
    (px, at) => point(ax.value((px * width) / svg.getBoundingClientRect().width), at),
    off,
    (step, end) => {
      place = end ? (step < 0 ? 0 : stops.length - 1) : Math.min(Math.max(place + step, 0), stops.length - 1);
      point(stops[place], null, true);
    },
  );
  if (shared) overTime.add({ svg, rule: v => rule(v), clear: () => cursor?.replaceChildren() });
  whenSized(svg, w => {
    width = w;
    draw();
  });
  return h("figure", null, (named || series.length > 1) && legend(series, shown, draw), svg);
}

// ticksBelow are an axis at the bottom. The first and the last label stay within the drawing.
function ticksBelow(ax, left, right, bottom, top) {
  return [
    s("line", { class: "base", x1: left, x2: right, y1: bottom, y2: bottom }),
    ...ax.ticks.flatMap(t => {
      const px = ax.at(t.v),
        wide = 3.1 * t.text.length;
      return [
        s("line", { class: "grid", x1: px, x2: px, y1: top, y2: bottom + 4 }),
        s(
          "text",
          {
            class: "tick",
            x: Math.max(Math.min(px, right + 14 - wide), wide + 1),
            y: bottom + 17,
            "text-anchor": "middle",
          },
          t.text,
        ),
      ];
    }),
  ];
}

// legend names the lines; each can be taken away.
function legend(series, shown, draw) {
  return h(
    "ul",
    { class: "legend" },
    series.map((one, i) => {
      const press = () => {
        shown[i] = !shown[i];
        button.setAttribute("aria-pressed", shown[i]);
        draw();
      };
      const button = h(
        "button",
        { type: "button", "aria-pressed": "true", title: "Show or hide this line", onclick: press },
        swatch(one.colour, one.dash),
        h("span", { class: "name" }, one.name),
      );
      return h("li", null, button);
    }),
  );
}

// stepsOf are keys: how far, whether to the end, and whether up or down.
const stepsOf = {
  ArrowLeft: [-1],
  ArrowRight: [1],
  PageUp: [-10],
  PageDown: [10],
  Home: [-1, true],
  End: [1, true],
  ArrowUp: [-1, false, true],
  ArrowDown: [1, false, true],
};

// pointing is a pointer, or keys, over a drawing.
function pointing(svg, move, leave, step) {
  const moved = e => {
    const r = svg.getBoundingClientRect();
    move(e.clientX - r.left, { x: e.clientX, y: e.clientY }, e.clientY - r.top);
  };
  svg.addEventListener("pointermove", moved);
  svg.addEventListener("pointerdown", moved);
  // A finger that is lifted leaves too, and wants to read what it has pointed at: that goes with the next tap
  // elsewhere.
  svg.addEventListener("pointerleave", e => {
    if (e.pointerType !== "touch") leave();
  });
  svg.addEventListener("blur", leave);
  svg.addEventListener("keydown", e => {
    if (e.key === "Escape") return leave();
    if (!stepsOf[e.key] || e.ctrlKey || e.altKey || e.metaKey) return;
    e.preventDefault();
    step(...stepsOf[e.key]);
  });
}

// whenSized draws at once when the drawing is on the page, and again when it gets another width.
function whenSized(svg, draw) {
  let last = 0;
  new ResizeObserver(() => {
    const w = Math.round(svg.getBoundingClientRect().width);
    if (w && w !== last) {
      last = w;
      draw(w);
    }
  }).observe(svg);
}

// line numbers of colours go round; those of the second round are dashed.
const colours = 8;
const look = i => ({ colour: i % colours, dash: i % (2 * colours) >= colours });
