// Counters of a port or of a node over time: spans to choose from or one of one's own, plots that follow, and the same
// as a table.

import { h, fill } from "./dom.js";
import { get, q } from "./api.js";
import { bitRate, percent, perSecond } from "./format.js";
import { live } from "./live.js";
import { plot } from "./plot.js";

const spans = [
  ["10 min", 600],
  ["1 h", 3600],
  ["6 h", 6 * 3600],
  ["24 h", 86400],
  ["7 d", 7 * 86400],
];

// spanChooser lets people say which time they look at. query is that as the API wants it; last is how many seconds it
// is, or 0 where both ends are fixed. changed is called after each choice.
export function spanChooser(changed) {
  let seconds = 600,
    from = "",
    to = "";
  const problem = h("span", { class: "error", role: "alert" });
  const field = label => h("input", { type: "datetime-local", step: 1, "aria-label": label });
  const begin = field("From"),
    end = field("To");
  const press = on => {
    for (const b of choose.children) b.setAttribute("aria-pressed", b === on);
  };
  const choose = h(
    "div",
    { class: "segmented", role: "group", "aria-label": "Span of time" },
    spans.map(([name, s]) =>
      h(
        "button",
        {
          type: "button",
          "aria-pressed": s === seconds,
          onclick: e => {
            seconds = s;
            from = to = "";
            problem.textContent = "";
            press(e.currentTarget);
            changed();
          },
        },
        name,
      ),
    ),
  );
  const own = h(
    "form",
    {
      class: "row own-span",
      "aria-label": "A time of one's own",
      onsubmit: e => {
        e.preventDefault();
        if (!begin.value || !end.value || begin.value >= end.value) {
          problem.textContent = "From has to be before to.";
          return;
        }
        problem.textContent = "";
        from = new Date(begin.value).toISOString();
        to = new Date(end.value).toISOString();
        press(null);
        changed();
      },
    },
    begin,
    "to",
    end,
    h("button", { type: "submit" }, "Show"),
    problem,
  );
  return {
    elements: [choose, own],
    get query() {
      return from ? `from=${q(from)}&to=${q(to)}` : `seconds=${seconds}`;
    },
    get last() {
      return from ? 0 : seconds;
    },
  };
}

// follow calls load, and again as often as it matters to what is looked at.
export function follow(span, load, signal) {
  let drawn = performance.now();
  live.follow("links", load, signal, () => {
    const now = performance.now();
    if (!span.last || now - drawn <= (span.last > 3600 ? 30000 : 2500)) return false;
    drawn = now;
    return true;
  });
}

export const stepText = ms => `One point is ${ms >= 60000 ? `${ms / 60000} min` : `${ms / 1000} s`}.`;

// historyPlots shows ports or nodes together, each a line: [{port or node, label}].
export function historyPlots(of, signal) {
  let asked = 0;
  const alone = of.length === 1,
    node = alone && !!of[0].node;
  // Of a cable's two ends, what one sends is what the other receives.
  const both = (sent, received) =>
    alone
      ? [
          [sent, "sent"],
          [received, "received"],
        ]
      : [[sent, "sent"]];
  const metrics = [
    { title: "Traffic", keys: both("xmit_bytes", "rcv_bytes"), format: bitRate, always: true },
    { title: "Packets", keys: both("xmit_pkts", "rcv_pkts"), format: v => perSecond(v, "pkt"), always: true },
    {
      title: "Waiting for credit (XmitWait)",
      keys: [["xmit_wait", node ? "mean of the ports" : "waits"]],
      format: percent,
      top: node ? "worst port" : "highest",
    },
    {
      title: "Errors, and times that the link went down",
      keys: [
        ["errors", "errors"],
        ["link_downed", "link downed"],
      ],
      format: v => perSecond(v, ""),
    },
    { title: "Discarded and refused packets", keys: [["discards", "discards"]], format: v => perSecond(v, "pkt") },
  ];
  const plots = metrics.map(m => plot(m.title, m.format, signal));
  const span = spanChooser(() => load());
  const note = h("p", { class: "dim", role: "status" });
  const name = o => (o.node ? `node=${q(o.node)}` : `port=${q(o.port)}`);
  const tables = h("span", { class: "row" });
  async function load() {
    const mine = ++asked;
    fill(
      tables,
      of.map(o =>
        h(
          "a",
          { class: "button", download: "", href: `/api/v1/history.csv?${name(o)}&${span.query}&points=5000` },
          alone ? "CSV" : `CSV of ${o.label}`,
        ),
      ),
    );
    try {
      const answers = await Promise.all(of.map(o => get(`history?${name(o)}&${span.query}&points=300`)));
      if (mine !== asked || signal.aborted) return;
      const times = answers[0].times.map(t => t / 1000);
      metrics.forEach((m, i) => {
        const series = [];
        answers.forEach((a, n) =>
          m.keys.forEach(([key, label]) => {
            const s = a.series[key];
            if (!s) return;
            if (m.keys.length > 1 && !m.always && n + series.length > 0 && !s.max.some(v => v > 0)) return;
            series.push({ label: alone ? label : `${of[n].label} ${label}`, values: s.avg, dash: n > 0 });
            if (m.top && alone) series.push({ label: m.top, values: s.max, dash: true });
          }),
        );
        plots[i].update(times, series);
      });
      fill(note, stepText(answers[0].step_ms));
    } catch (e) {
      if (mine === asked && !signal.aborted) fill(note, h("span", { class: "error" }, e.message));
    }
  }
  follow(span, load, signal);
  return h(
    "section",
    { "aria-label": "Counters over time" },
    h("div", { class: "filters" }, h("h2", { style: { margin: "0" } }, "Over time"), span.elements, tables, note),
    h("div", { class: "plots" }, plots),
  );
}
