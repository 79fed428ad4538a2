// Numbers with units. The files of this folder are put together into one script, in the order that page.go says: they
// share one scope.

const sizes = {
  time: [
    ["ns", 1e-9],
    ["µs", 1e-6],
    ["ms", 1e-3],
    ["s", 1],
  ],
  rate: [
    ["b/s", 1 / 8],
    ["kb/s", 125],
    ["Mb/s", 125e3],
    ["Gb/s", 125e6],
    ["Tb/s", 125e9],
    ["Pb/s", 125e12],
  ],
  byteRate: [
    ["B/s", 1],
    ["kB/s", 1e3],
    ["MB/s", 1e6],
    ["GB/s", 1e9],
    ["TB/s", 1e12],
    ["PB/s", 1e15],
  ],
  bytes: [
    ["B", 1],
    ["KiB", 2 ** 10],
    ["MiB", 2 ** 20],
    ["GiB", 2 ** 30],
    ["TiB", 2 ** 40],
    ["PiB", 2 ** 50],
    ["EiB", 2 ** 60],
  ],
  part: [["%", 0.01]],
  energy: [
    ["pJ", 1e-12],
    ["nJ", 1e-9],
    ["µJ", 1e-6],
    ["mJ", 1e-3],
    ["J", 1],
    ["kJ", 1e3],
    ["MJ", 1e6],
    ["GJ", 1e9],
  ],
};

// unitOf is the unit that a value is best told in.
const unitOf = (kind, v) => sizes[kind].findLast(([, size]) => Math.abs(v) >= size * 0.9995) ?? sizes[kind][0];

// figure writes a number with so many digits that count, and none behind the point where it has none.
function figure(v, digits = 3) {
  const whole = v === 0 ? 1 : Math.floor(Math.log10(Math.abs(v)) + 1e-9) + 1;
  const behind =
    Math.abs(v - Math.round(v)) <= 1e-9 * Math.abs(v) ? 0 : Math.min(Math.max(digits - Math.max(whole, 1), 0), 12);
  return behind ? v.toFixed(behind) : count(v);
}

const count = n => Number(n).toLocaleString("en-GB", { maximumFractionDigits: 0 });
const plural = (n, one, many = one + "s") => `${count(n)} ${n === 1 ? one : many}`;

// write is a value with its unit.
function write(kind, v, digits) {
  if (!Number.isFinite(v)) return "–";
  const [unit, size] = unitOf(kind, v);
  const text = figure(v / size, digits);
  return Number(text) === 0 && v > 0 ? `< ${10 ** (1 - (digits ?? 3))} ${unit}` : `${text} ${unit}`;
}

// time is a span; past two minutes it is read by people who wait, not by those who measure.
const time = (v, digits) =>
  v < 120
    ? write("time", v, digits)
    : v < 7200
      ? `${Math.floor(v / 60)} min ${Math.round(v % 60)} s`
      : `${Math.floor(v / 3600)} h ${Math.round((v % 3600) / 60)} min`;
const bytes = v => write("bytes", v);
const bitRate = v => write("rate", v);
const dollars = v => (v >= 999500 ? `$${figure(v / 1e6)}M` : v >= 9995 ? `$${figure(v / 1e3)}k` : `$${count(v)}`);
const bothRates = v => `${bitRate(v)} (${write("byteRate", v)})`;

// part is a share of a whole; what is not all of it never reads as 100 %.
const part = v => (v < 1 && v > 0.9995 ? "> 99.9 %" : write("part", v));

const times = n => (n > 1000 ? "> 1,000" : figure(n));

// change is how far a value is from another, in percent; past ten times it is told in times.
function change(v, from) {
  if (v === from) return "same";
  if (!from) return "–";
  const p = (v / from - 1) * 100,
    size = Math.abs(p);
  const sign = p < 0 ? "−" : "+";
  if (v > 10 * from) return `× ${times(v / from)}`;
  if (v > 0 && from > 10 * v) return `÷ ${times(from / v)}`;
  return size < 0.05 ? `${sign}< 0.1 %` : `${sign}${size.toFixed(size < 10 ? 1 : 0)} %`;
}
