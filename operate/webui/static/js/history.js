// Counters of a port over time: spans to choose from, plots that follow.

import { h, fill } from "./dom.js";
import { get, q } from "./api.js";
import { bitRate, percent, perSecond } from "./format.js";
import { live } from "./live.js";
import { plot } from "./plot.js";

const spans = [["10 min", 600], ["1 h", 3600], ["6 h", 6 * 3600], ["24 h", 86400], ["7 d", 7 * 86400]];

// historyPlots shows ports together, each a line: [{port, label}].
export function historyPlots(ports, signal) {
  let seconds = 600, asked = 0, timer = 0;
  const metrics = [
    { title: "Traffic", keys: [["xmit_bytes", "sent"]], format: bitRate },
    { title: "Packets", keys: [["xmit_pkts", "sent"]], format: v => perSecond(v, "pkt") },
    { title: "Waiting for credit (XmitWait)", keys: [["xmit_wait", "waits"]], format: percent },
    { title: "Errors, discards and losses of the link", keys: [["errors", "errors"], ["discards", "discards"], ["link_downed", "link downed"]], format: v => perSecond(v, "") },
  ];
  const plots = metrics.map(m => plot(m.title, m.format, signal));
  const choose = h("div", { class: "segmented", role: "group", "aria-label": "Span of time" }, spans.map(([name, s]) => h("button", { type: "button", "aria-pressed": s === seconds, onclick: e => { seconds = s; for (const b of choose.children) b.setAttribute("aria-pressed", b === e.currentTarget); load(); } }, name)));
  const note = h("p", { class: "dim", role: "status" });
  async function load() {
    const mine = ++asked;
    try {
      const answers = await Promise.all(ports.map(p => get(`history?port=${q(p.port)}&seconds=${seconds}&points=300`)));
      if (mine !== asked || signal.aborted) return;
      const times = answers[0].times.map(t => t / 1000);
      metrics.forEach((m, i) => {
        const series = [];
        answers.forEach((a, n) => m.keys.forEach(([key, label]) => {
          const s = a.series[key];
          if (!s) return;
          if (m.keys.length > 1 && n + series.length > 0 && !s.max.some(v => v > 0)) return;
          const who = ports.length > 1 ? `${ports[n].label} ${label}` : label;
          series.push({ label: who, values: s.avg, dash: n > 0 });
          if (m.keys.length === 1 && ports.length === 1) series.push({ label: "highest", values: s.max, dash: true });
        }));
        plots[i].update(times, series);
      });
      fill(note, `One point is ${answers[0].step_ms >= 60000 ? `${answers[0].step_ms / 60000} min` : `${answers[0].step_ms / 1000} s`}.`);
    } catch (e) {
      if (mine === asked && !signal.aborted) fill(note, h("span", { class: "error" }, e.message));
    }
  }
  let drawn = 0;
  live.on("links", () => { const now = performance.now(); if (now - drawn > (seconds > 3600 ? 30000 : 2500)) { drawn = now; load(); } }, signal);
  signal.addEventListener("abort", () => clearTimeout(timer));
  load();
  return h("section", { "aria-label": "Counters over time" }, h("div", { class: "filters" }, h("h2", { style: { margin: "0" } }, "Over time"), choose, note), h("div", { class: "plots" }, plots));
}
