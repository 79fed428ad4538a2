// The heat map: use of links over time. Cells of one colour are one path, so that a map of many cells is a handful of
// elements.

const heatSteps = 10;

// heatMap draws rows {name, tier, use}, grouped by tier; ends are those of the intervals.
function heatMap(rows, ends) {
  const tiers = [...new Set(rows.map(r => r.tier))];
  const groups = tiers.map(tier => ({ tier, rows: rows.filter(r => r.tier === tier) }));
  const top = useTop(most(rows.map(r => most(r.use)))),
    head = 20;
  const cell =
    [
      [160, 4],
      [96, 5],
      [40, 7],
      [16, 10],
    ].find(([n]) => rows.length > n)?.[1] ?? 16;
  const placed = []; // {row, y} in the order that is drawn
  let bottom = 4;
  for (const g of groups) {
    g.y = bottom;
    bottom += head;
    for (const row of g.rows) {
      placed.push({ row, y: bottom });
      bottom += cell;
    }
  }
  const high = bottom + 36;

  const label = `Use of links over time. ${words()} Arrow keys read values.`;
  const svg = s("svg", { class: "plot heat", role: "img", tabindex: 0, "aria-label": label });
  let width = 0,
    ax,
    cursor,
    chosen = { row: -1, column: -1 };
  const left = 2,
    begin = i => (i ? ends[i - 1] : 0);
  const bin = v => (v > 0 ? Math.min(Math.ceil((v / top) * heatSteps - 1e-9), heatSteps) : 0);

  // words are the map in a few words, for those who do not see it.
  function words() {
    return groups
      .map(g => {
        const busiest = g.rows.reduce((a, b) => (most(b.use) > most(a.use) ? b : a));
        return `${g.tier}: up to ${part(most(busiest.use))} on ${busiest.name}.`;
      })
      .join(" ");
  }

  function draw() {
    if (width < 60) return;
    const right = width - 16,
      paths = Array(heatSteps + 1).fill("");
    ax = axis({ kind: "time", lo: 0, hi: ends.at(-1) || 1e-9 }, left, right, Math.floor((right - left) / 68));
    const gap = cell > 5 ? 1 : 0;
    for (const { row, y } of placed) {
      for (let i = 0, n = Math.min(row.use.length, ends.length); i < n;) {
        const b = bin(row.use[i]),
          from = ax.at(begin(i)).toFixed(1);
        while (i < n && bin(row.use[i]) === b) i++;
        paths[b] += `M${from} ${y}H${ax.at(ends[i - 1]).toFixed(1)}v${cell - gap}H${from}z`;
      }
    }
    cursor = s("g", { class: "cursor" });
    svg.setAttribute("viewBox", `0 0 ${width} ${high}`);
    svg.replaceChildren(
      ...paths.map((d, b) => d && s("path", { class: `heat${b}`, d })).filter(Boolean),
      ...groups.map(g =>
        s(
          "text",
          { class: "group", x: left, y: g.y + 14 },
          `${g.tier} `,
          s("tspan", { class: "dim" }, plural(g.rows.length, "row")),
        ),
      ),
      ...ticksBelow(ax, left, right, bottom, bottom),
      s("text", { class: "title", x: right, y: high - 3, "text-anchor": "end" }, "virtual time"),
      cursor,
    );
  }

  function point(row, column, at, spoken) {
    const { row: r, y } = placed[row],
      x0 = ax.at(begin(column)),
      x1 = ax.at(ends[column]);
    chosen = { row, column };
    overTime.forEach(p => p.rule((begin(column) + ends[column]) / 2));
    cursor.replaceChildren(s("rect", { x: x0, y: y - 1, width: Math.max(x1 - x0, 1), height: cell + 1 }));
    const frame = svg.getBoundingClientRect(),
      zoom = frame.width / width;
    tip.show(
      at?.x ?? frame.left + x1 * zoom,
      at?.y ?? frame.top + y * zoom,
      r.name,
      [
        { name: r.tier, text: part(r.use[column] ?? 0) },
        { name: "virtual time", text: between(begin(column), ends[column]) },
      ],
      spoken,
    );
  }

  const off = () => {
    tip.hide();
    chosen = { row: -1, column: -1 };
    overTime.forEach(p => p.clear());
  };
  pointing(
    svg,
    (px, at, py) => {
      const zoom = width / svg.getBoundingClientRect().width,
        v = ax.value(px * zoom);
      const row = placed.findIndex(p => py * zoom >= p.y && py * zoom < p.y + cell),
        column = ends.findIndex(e => v <= e);
      if (row < 0) return off();
      point(row, column < 0 ? ends.length - 1 : column, at);
    },
    off,
    (step, end, upright) => {
      const row = chosen.row + (upright ? step : 0);
      const column = upright ? chosen.column : end ? (step < 0 ? 0 : ends.length - 1) : chosen.column + step;
      point(Math.min(Math.max(row, 0), placed.length - 1), Math.min(Math.max(column, 0), ends.length - 1), null, true);
    },
  );
  const rule = v => {
    if (ax) cursor.replaceChildren(s("line", { x1: ax.at(v), x2: ax.at(v), y1: 4, y2: bottom }));
  };
  overTime.add({ svg, rule, clear: () => cursor?.replaceChildren() });
  whenSized(svg, w => {
    width = w;
    draw();
  });
  return h("figure", null, scale(top), svg);
}

// scale says what the colours are.
function scale(top) {
  const steps = Array.from({ length: heatSteps }, (_, i) =>
    s("rect", { class: `heat${i + 1}`, x: 46 + i * 20, y: 0, width: 20, height: 10 }),
  );
  const words = [
    [0, "idle", "start"],
    [46, "> 0", "start"],
    [146, part(top / 2), "middle"],
    [246, part(top), "end"],
  ];
  return s(
    "svg",
    { class: "key", role: "img", width: 250, height: 26, "aria-label": `Colours run from idle to ${part(top)}` },
    s("rect", { class: "heat0", x: 0, y: 0, width: 32, height: 10 }),
    ...steps,
    ...words.map(([x, text, anchor]) => s("text", { class: "tick", x, y: 23, "text-anchor": anchor }, text)),
  );
}

// between is an interval in one unit.
function between(from, to) {
  const [unit, size] = unitOf("time", to);
  const digits = Math.min(Math.max(1, 2 - Math.floor(Math.log10((to - from) / size || 1))), 6);
  return `${(from / size).toFixed(digits)} – ${(to / size).toFixed(digits)} ${unit}`;
}
