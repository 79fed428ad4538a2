// Plots over time, by uPlot.

import uPlot from "../vendor/uPlot.js";
import { h } from "./dom.js";

const colours = () => {
  const css = getComputedStyle(document.documentElement),
    v = n => css.getPropertyValue(n).trim();
  return {
    lines: [v("--route-there"), v("--route-back"), v("--fault"), v("--good")],
    text: v("--dim"),
    grid: v("--line-soft"),
  };
};

// plot makes one; series are {label, values, dash}; format writes a value with its unit.
// clockTicks writes times as clocks do, with the day where it changes.
function clockTicks(u, ticks) {
  const span = ticks.length > 1 ? ticks[1] - ticks[0] : 60;
  let day = "";
  return ticks.map(t => {
    const d = new Date(t * 1000),
      today = d.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
    const text =
      span >= 86400
        ? today
        : d.toLocaleTimeString("en-GB", {
            hour: "2-digit",
            minute: "2-digit",
            second: span < 60 ? "2-digit" : undefined,
          });
    const first = day && day !== today;
    day = today;
    return first && span < 86400 ? `${text}\n${today}` : text;
  });
}

export function plot(title, format, signal) {
  const wrap = h("figure", { class: "box plot", role: "img", "aria-label": title });
  const body = h("div");
  wrap.append(h("figcaption", null, title), body);
  let u = null,
    last = null,
    shape = "";
  const make = () => {
    const c = colours();
    u?.destroy();
    const width = Math.max(200, wrap.clientWidth - 28);
    const series = last.series.map((s, i) => ({
      label: s.label,
      stroke: c.lines[i % c.lines.length],
      width: 1.5,
      dash: s.dash ? [5, 4] : undefined,
      spanGaps: false,
      points: { show: false },
      fill: i === 0 && !s.dash ? c.lines[0] + "14" : undefined,
      value: (_, v) => (v === null || v === undefined ? "–" : format(v)),
    }));
    const axis = {
      stroke: c.text,
      grid: { stroke: c.grid, width: 1 },
      ticks: { stroke: c.grid, width: 1 },
      font: `11px ${getComputedStyle(document.body).fontFamily}`,
    };
    u = new uPlot(
      {
        width,
        height: 170,
        legend: { live: true, markers: { width: 2 } },
        cursor: { drag: { x: false, y: false }, y: false },
        hooks: { setCursor: [() => settle()] },
        scales: { y: { range: (_, lo, hi) => [0, hi > 0 ? hi * 1.15 : 1] } },
        axes: [
          { ...axis, space: 80, values: clockTicks },
          { ...axis, size: 86, values: (_, ticks) => ticks.map(v => format(v)) },
        ],
        series: [{ value: (_, v) => (v === null ? "" : new Date(v * 1000).toLocaleTimeString("en-GB")) }, ...series],
      },
      data(),
      body,
    );
    settle();
  };
  // Where nobody points, the legend has the latest values.
  const settle = () => {
    if (u && (u.cursor.idx === null || u.cursor.idx === undefined)) u.setLegend({ idx: last.times.length - 1 });
  };
  const data = () => [last.times, ...last.series.map(s => s.values)];
  wrap.update = (times, series) => {
    last = { times, series };
    const now = series.map(s => s.label).join();
    if (!times.length) {
      body.replaceChildren(h("p", { class: "empty-state" }, "No samples in this span yet."));
      u = null;
      return;
    }
    if (!u || now !== shape) {
      body.replaceChildren();
      shape = now;
      make();
    } else {
      u.setData(data());
      settle();
    }
    const peak = Math.max(0, ...series.flatMap(s => s.values.filter(v => v !== null)));
    wrap.setAttribute(
      "aria-label",
      `${title}: ${series.map(s => `${s.label} now ${format(s.values.findLast(v => v !== null) ?? 0)}`).join(", ")}, ` +
        `highest ${format(peak)}`,
    );
  };
  const watch = new ResizeObserver(() => {
    if (u && wrap.clientWidth) u.setSize({ width: Math.max(200, wrap.clientWidth - 28), height: 170 });
  });
  watch.observe(wrap);
  window.addEventListener(
    "themechange",
    () => {
      if (u) {
        body.replaceChildren();
        make();
      }
    },
    { signal },
  );
  signal.addEventListener("abort", () => {
    watch.disconnect();
    u?.destroy();
    u = null;
  });
  return wrap;
}
