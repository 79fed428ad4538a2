// What colours mean. Every scale runs from quiet to loud in lightness, so that it reads without telling red from green;
// a link that is down is also dashed and crossed out.

import { STATE } from "../live.js";

// Bins 0 to 9 are those of a scale; the rest are states.
export const BINS = 10,
  DOWN = 10,
  INACTIVE = 11,
  UNKNOWN = 12;

const ramps = {
  dark: {
    quiet: "#46525f",
    util: ["#3f5f7f", "#35719b", "#2f84b0", "#2f98bd", "#3dadc0", "#5fc2b6", "#8dd5a3", "#bfe58e", "#e9f07f"],
    errors: ["#6b5a3a", "#8a6a34", "#a97a2f", "#c78a2d", "#e39a31", "#f3ac4a", "#fac06c", "#fdd593", "#ffe9bf"],
    wait: ["#5a4a72", "#6f5590", "#8560ab", "#9c6cc2", "#b37bd4", "#c88de0", "#daa3ea", "#ebbdf3", "#f9dcfb"],
    down: "#ff5d73",
    inactive: "#d0a13c",
  },
  light: {
    quiet: "#c3cbd5",
    util: ["#a9c3dc", "#8db2d6", "#6fa0cf", "#528dc6", "#3a79b9", "#2865a8", "#1b5092", "#123c78", "#0b295a"],
    errors: ["#e8c48c", "#e2b069", "#d99a47", "#cb842b", "#b56f1a", "#9a5b11", "#7d480c", "#603608", "#452505"],
    wait: ["#d3bfe6", "#c2a6df", "#b08dd6", "#9d74ca", "#895cba", "#7446a6", "#5f338e", "#4a2373", "#361657"],
    down: "#c8102e",
    inactive: "#94660a",
  },
};

// Okabe and Ito's colours, which the colour-blind tell apart, and lighter and darker ones of them.
const tenants = {
  dark: ["#56b4e9", "#e69f00", "#2fc495", "#f0e442", "#5b8def", "#e8703a", "#d98cbd", "#a8c66c", "#9fb4c8", "#c9a27a"],
  light: ["#0072b2", "#b87a00", "#007d5a", "#8a7f00", "#3f51b5", "#c44a00", "#a8508a", "#567a1c", "#54697d", "#7a5230"],
};

export const modes = [
  {
    id: "util",
    title: "Utilisation",
    unit: "of the link's rate, busier direction",
    steps: [1, 10, 50, 100, 200, 350, 500, 700, 850],
    words: ["idle", "< 1 %", "1 %", "5 %", "10 %", "20 %", "35 %", "50 %", "70 %", "≥ 85 %"],
  },
  {
    id: "errors",
    title: "Errors",
    unit: "errors a minute, worse end, fading",
    steps: [1, 20, 50, 100, 300, 1000, 3000, 10000, 100000],
    words: ["none", "< 2", "2", "5", "10", "30", "100", "300", "1,000", "≥ 10,000"],
  },
  {
    id: "wait",
    title: "Congestion",
    unit: "share of time with no credit (XmitWait)",
    steps: [1, 5, 10, 30, 60, 120, 250, 400, 600],
    words: ["none", "< 0.5 %", "0.5 %", "1 %", "3 %", "6 %", "12 %", "25 %", "40 %", "≥ 60 %"],
  },
  { id: "tenant", title: "Tenant", unit: "the tenant of each host" },
];

export const isDark = () => {
  const t = document.documentElement.dataset.theme;
  return t ? t === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

// palette is what everything on the map is drawn with.
export function palette() {
  const theme = isDark() ? "dark" : "light",
    css = getComputedStyle(document.documentElement);
  const v = name => css.getPropertyValue(name).trim();
  const r = ramps[theme];
  const ramp = mode => {
    const scale = r[mode] ?? r.util;
    return [r.quiet, ...scale, r.down, r.inactive, v("--dim")].slice(0, BINS).concat([r.down, r.inactive, v("--dim")]);
  };
  return {
    theme,
    ramp,
    tenants: tenants[theme],
    none: r.quiet,
    down: r.down,
    inactive: r.inactive,
    bg: v("--map"),
    tile: v("--tile"),
    tileLine: v("--line"),
    text: v("--text"),
    dim: v("--dim"),
    accent: v("--accent"),
    box: v("--box"),
    boxLine: v("--box-line"),
    font: css.fontFamily || "sans-serif",
    route: [v("--route-there"), v("--route-back")],
    fault: v("--fault"),
  };
}

export function tenantColor(p, i) {
  return p.tenants[i % p.tenants.length];
}

function step(steps, v) {
  let i = 0;
  while (i < steps.length && v >= steps[i]) i++;
  return i;
}

// linkBins writes the bin of every cable; down and inactive links keep theirs in every mode.
export function linkBins(mode, data, bins) {
  const m = modes.find(x => x.id === mode) ?? modes[0];
  const values = m.id === "errors" ? data.errors : m.id === "wait" ? data.wait : data.util;
  const { state } = data;
  for (let k = 0; k < bins.length; k++) {
    const s = state[k];
    if (s & STATE.down) bins[k] = DOWN;
    else if (s & STATE.notActive) bins[k] = INACTIVE;
    else if (!m.steps) bins[k] = 0;
    else {
      const v = Math.max(values[2 * k], values[2 * k + 1]);
      bins[k] = v === 0 ? 0 : step(m.steps, v);
    }
  }
}

// worse orders bins: a link that is down is worse than anything.
export const badness = bin => (bin === DOWN ? 100 : bin === INACTIVE ? 50 : bin === UNKNOWN ? 0 : bin);
