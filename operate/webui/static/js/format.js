// Numbers, always with units.

function scaled(v, units, step) {
  let i = 0;
  while (Math.abs(v) >= step * 0.9995 && i < units.length - 1) {
    v /= step;
    i++;
  }
  const digits = v === 0 || Math.abs(v) >= 100 || (i === 0 && Number.isInteger(v)) ? 0 : Math.abs(v) >= 10 ? 1 : 2;
  return `${v.toFixed(digits)} ${units[i]}`;
}

// bitRate writes bytes a second as bits a second, which links are named by.
export const bitRate = bytesPerSecond =>
  scaled(bytesPerSecond * 8, ["b/s", "kb/s", "Mb/s", "Gb/s", "Tb/s", "Pb/s"], 1000);
export const bits = bps => scaled(bps, ["b/s", "kb/s", "Mb/s", "Gb/s", "Tb/s", "Pb/s"], 1000);
export const bytes = n => scaled(n, ["B", "kB", "MB", "GB", "TB", "PB", "EB"], 1000);
export const perSecond = (n, what) => scaled(n, [`${what}/s`, `k${what}/s`, `M${what}/s`, `G${what}/s`], 1000);
export const count = n => Number(n).toLocaleString("en-US");
export const plural = (n, one, many) => `${count(n)} ${n === 1 ? one : (many ?? one + "s")}`;

export function percent(share) {
  const p = share * 100;
  if (p === 0) return "0 %";
  if (p < 0.1) return "< 0.1 %";
  return `${p < 10 ? p.toFixed(1) : p.toFixed(0)} %`;
}

export function span(ms) {
  if (ms < 0.001) return `${(ms * 1e6).toFixed(0)} ns`;
  if (ms < 1) return `${(ms * 1000).toFixed(ms < 0.01 ? 1 : 0)} µs`;
  if (ms < 1000) return `${ms.toFixed(ms < 10 ? 1 : 0)} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s.toFixed(s < 10 ? 1 : 0)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.round((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.round((s % 86400) / 3600)} h`;
}

export const ago = t => {
  const ms = Date.now() - new Date(t);
  return ms < 1500 ? "now" : `${span(ms)} ago`;
};
export const clock = t => {
  const d = new Date(t);
  return d.toLocaleTimeString("en-GB") + "." + String(d.getMilliseconds()).padStart(3, "0");
};
export const dayClock = t => {
  const d = new Date(t);
  return d.toDateString() === new Date().toDateString()
    ? d.toLocaleTimeString("en-GB")
    : d.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });
};
export const length = mm => (mm >= 1000 ? `${(mm / 1000).toFixed(mm % 1000 ? 1 : 0)} m` : `${mm / 10} cm`);
export const small = v =>
  v === 0
    ? "0"
    : v >= 0.001
      ? v.toPrecision(2)
      : v
          .toExponential(1)
          .replace("e-", " × 10⁻")
          .replace(/⁻(\d+)$/, (_, d) => "⁻" + [...d].map(c => "⁰¹²³⁴⁵⁶⁷⁸⁹"[c]).join(""));
