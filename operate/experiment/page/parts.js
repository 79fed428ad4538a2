// The plots that a report and a comparison share. A curve is {name, spread}; a course is {name, ends, values} over
// time.

// partAt is the part of all that are no larger than a value: the curve is one of steps.
function partAt(curve, v) {
  let lo = 0,
    hi = curve.length;
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if (curve[mid][0] <= v) lo = mid + 1;
    else hi = mid;
  }
  return lo ? curve[lo - 1][1] : 0;
}

// distribution draws curves as distribution functions; of says what is counted, and axis what the values are.
function distribution({ title, curves, kind, log, axisTitle, of, marks = [], one }) {
  const some = curves.map((c, i) => ({ ...c, look: look(i) })).filter(c => c.spread.curve.length);
  if (!some.length) return empty(`No ${of}: there is nothing to draw.`);
  const x = {
    ...around(
      kind,
      some.flatMap(c => c.spread.curve.map(p => p[0])),
      log,
    ),
    title: axisTitle,
  };
  if (kind === "part") Object.assign(x, { lo: 0, hi: Math.max(1, most(some.map(c => c.spread.max))) });
  const tell = kind === "time" ? v => time(v) : part;
  const points = ({ spread: { curve } }) => [[x.lo, 0], ...curve, [x.hi, curve.at(-1)[1]]];
  const series = some.map((c, i) => ({ name: c.name, ...c.look, strong: i === 0, points: points(c) }));
  return plot({
    title,
    x,
    y: { kind: "part", lo: 0, hi: 1, title: `share of ${of}` },
    series,
    named: curves.length > 1,
    marks: quantiles(some[0].spread, marks, tell),
    stops: [...new Set(some.flatMap(c => c.spread.curve.map(p => p[0])))].sort((a, b) => a - b),
    words: some
      .map(
        ({ name, spread: d }) =>
          `${name}: half up to ${tell(d.p50)}, 99 % up to ${tell(d.p99)}, all up to ${tell(d.max)}`,
      )
      .join("; "),
    read: v => ({
      x: v,
      head: `≤ ${tell(v)}`,
      rows: some.map((c, i) => {
        const y = partAt(c.spread.curve, v);
        return {
          series: i,
          y,
          text: one ? `${part(y)} · ${count(Math.round(y * c.spread.count))} of ${count(c.spread.count)}` : part(y),
        };
      }),
    }),
  });
}

// quantiles are marks of a curve, such as 0.5 and 0.99.
const quantiles = (spread, list, tell) =>
  list.map(q => ({ x: spread[`p${q * 100}`], y: q, text: `p${q * 100} ${tell(spread[`p${q * 100}`])}` }));

// courses draws values over intervals; lists may be of different lengths, as those of runs that ended at different
// times are.
function courses({ title, list, y, tell, high, shared }) {
  const some = list.filter(c => c.ends.length && c.values.length);
  if (!some.length)
    return empty("Nothing was measured over time: the run was too short, or was stopped before its first interval.");
  const end = most(some.map(c => c.ends.at(-1))) || 1e-9,
    begin = (c, i) => (i ? c.ends[i - 1] : 0);
  const at = (c, v) =>
    Math.min(
      c.ends.findIndex(e => v <= e),
      c.values.length - 1,
    );
  const series = some.map((c, i) => ({
    name: c.name,
    ...look(i),
    ...c.look,
    points: [
      ...c.values.slice(0, c.ends.length).map((v, k) => [begin(c, k), v]),
      [c.ends[Math.min(c.ends.length, c.values.length) - 1], c.values.at(-1)],
    ],
  }));
  return plot({
    title,
    x: { kind: "time", lo: 0, hi: end, title: "virtual time" },
    y,
    series,
    high,
    shared,
    named: list.length > 1,
    stops: some[0].ends.map((e, i) => (begin(some[0], i) + e) / 2),
    words: some.map(c => `${c.name}: on average ${tell(average(c))}, at most ${tell(most(c.values))}`).join("; "),
    read: v => {
      const rows = some.flatMap((c, i) => {
        const k = at(c, v);
        return k < 0 ? [] : [{ series: i, y: c.values[k], text: tell(c.values[k]) }];
      });
      const first = some.find(c => at(c, v) >= 0) ?? some[0],
        k = Math.max(at(first, v), 0);
      return { x: v, head: between(begin(first, k), first.ends[k]), rows };
    },
  });
}

// average is over time: intervals need not be of one length.
function average({ ends, values }) {
  const n = Math.min(ends.length, values.length);
  let sum = 0;
  for (let i = 0; i < n; i++) sum += values[i] * (ends[i] - (i ? ends[i - 1] : 0));
  return n && ends[n - 1] > 0 ? sum / ends[n - 1] : (values[0] ?? 0);
}

// spreadColumns are a table's, for rows {name, spread}.
const spreadColumns = (what, of, tell) => [
  { title: what, text: r => r.name, class: "name" },
  { title: of, num: true, text: r => count(r.spread.count) },
  ...[
    ["mean", "mean"],
    ["min", "min"],
    ["p10", "p10"],
    ["p50", "p50"],
    ["p90", "p90"],
    ["p99", "p99"],
    ["p99.9", "p999"],
    ["max", "max"],
  ].map(([title, key]) => ({ title, num: true, text: r => (r.spread.count ? tell(r.spread[key]) : "–") })),
];

// rateOf is what all hosts sent in a second, over the whole run.
const rateOf = r => (r.end_s > 0 ? r.load.bytes / r.end_s : 0);

// noSpread is a distribution of nothing.
const noSpread = { count: 0, mean: 0, min: 0, p1: 0, p10: 0, p50: 0, p90: 0, p99: 0, p999: 0, max: 0, curve: [] };
const allMessages = r => r.messages[0]?.took_s ?? noSpread;

// whole has a list wherever a report may have none.
function whole(r) {
  const spread = d => ({ ...noSpread, ...d, curve: d.curve ?? [] });
  return {
    ...r,
    times_s: r.times_s ?? [],
    sent_Bps: r.sent_Bps ?? [],
    links: r.links ?? [],
    ranks: spread(r.ranks),
    speed: spread(r.speed),
    messages: (r.messages ?? []).map(m => ({ ...m, took_s: spread(m.took_s) })),
    tiers: (r.tiers ?? []).map(t => ({ ...t, mean: t.mean ?? [], max: t.max ?? [], use: spread(t.use) })),
    heat: (r.heat ?? []).map(row => ({ ...row, use: row.use ?? [] })),
  };
}

// masthead and footer are the top and the end of a page.
const masthead = (title, sentence) =>
  h(
    "header",
    { class: "top" },
    h("p", { class: "brand" }, brand(), "softib", h("span", { class: "dim" }, "experiment in virtual time")),
    h("h1", null, title),
    h("p", { class: "sentence" }, sentence),
  );
const footer = () =>
  h(
    "footer",
    null,
    "Times are virtual, but for the wall time. Use is the part of what a link could carry in that time.",
  );

const brand = () =>
  s(
    "svg",
    { viewBox: "0 0 32 32", width: 18, height: 18, "aria-hidden": "true" },
    s("rect", { width: 32, height: 32, rx: 7, class: "brand-back" }),
    s("path", { class: "brand-lines", d: "M11 9L8 22M11 9l5 13M11 9l13 13M21 9L8 22M21 9l-5 13M21 9l3 13" }),
    ...[
      [11, 9],
      [21, 9],
      [8, 23],
      [16, 23],
      [24, 23],
    ].map(([cx, cy]) => s("circle", { class: "brand-dot", cx, cy, r: 3 })),
  );

// stopped says that a run has no end.
const stopped = (r, name) =>
  r.whole
    ? null
    : h(
        "div",
        { class: "banner", role: "alert" },
        h("b", null, `${name ?? "This run"} was stopped before its end`),
        h("span", null, r.stopped ? `${r.stopped}.`.replace(/\.\.$/, ".") : "The report does not say why."),
        h(
          "span",
          null,
          "What is told here is of what happened until then: messages under way are not counted, and later times are " +
            "missing.",
        ),
      );

// repeat is a command in a box, to be copied.
function repeat(r, name) {
  // A line ends between words, not after a hyphen.
  const words = (r.command || "The report has no command.").split(/(\s+)/);
  const code = h(
    "code",
    { tabindex: 0 },
    words.map((w, i) => (i % 2 ? w : h("span", null, w))),
  );
  const button = h(
    "button",
    {
      type: "button",
      class: "copy",
      onclick: async () => {
        let done = false;
        try {
          await navigator.clipboard.writeText(r.command);
          done = true;
        } catch {
          getSelection().selectAllChildren(code);
        }
        button.textContent = done ? "Copied" : "Selected: press Ctrl+C";
        setTimeout(() => {
          button.textContent = "Copy";
        }, 2500);
      },
    },
    "Copy",
  );
  return h(
    "section",
    { class: "box repeat" },
    h("h2", null, name ? `Repeat ${name}` : "Repeat it"),
    h("div", { class: "command" }, code, r.command && button),
    h("p", { class: "note" }, "The same command gives the same hash: ", h("code", { class: "hash" }, r.hash || "none")),
  );
}
