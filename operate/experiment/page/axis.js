// Axes: where values lie, and what is written beside them.

// niceStep is a step of 1, 2, 2.5 or 5 times a power of ten, for about so many ticks over a span.
function niceStep(span, n) {
  const raw = span / Math.max(n, 1),
    power = 10 ** Math.floor(Math.log10(raw)),
    rest = raw / power;
  return power * ([1, 2, 2.5, 5].find(s => rest <= s * 1.0001) ?? 10);
}

// digitsOf is how many digits behind the point a step has.
function digitsOf(step) {
  let n = 0;
  while (n < 9 && Math.abs(step * 10 ** n - Math.round(step * 10 ** n)) > 1e-6 * step * 10 ** n) n++;
  return n;
}

// evenTicks are at multiples of a step that is nice in the unit of the largest.
function evenTicks(kind, lo, hi, n) {
  const [unit, size] = unitOf(kind, Math.max(Math.abs(lo), Math.abs(hi)));
  const step = niceStep((hi - lo) / size, n),
    digits = digitsOf(step),
    ticks = [];
  for (let k = Math.ceil(lo / size / step - 1e-6); k * step <= (hi / size) * (1 + 1e-9) + 1e-12; k++) {
    ticks.push({
      v: k * step * size,
      text: k === 0 ? "0" : `${Math.abs(k * step) < 1e4 ? (k * step).toFixed(digits) : count(k * step)} ${unit}`,
    });
  }
  return ticks;
}

// logTicks are powers of ten, with 2 and 5 between them where there is room; over less than half a decade they are
// even.
function logTicks(kind, lo, hi, n) {
  const decades = Math.log10(hi / lo);
  if (decades < 0.7) return evenTicks(kind, lo, hi, n);
  const between = decades * 3 <= n ? [1, 2, 5] : [1],
    every = Math.ceil(decades / Math.max(n * 1.4, 1)),
    ticks = [];
  for (let e = Math.floor(Math.log10(lo)); e <= Math.ceil(Math.log10(hi)); e++) {
    if (e % every) continue;
    for (const m of between) {
      const v = m * 10 ** e;
      if (v >= lo * 0.9999 && v <= hi * 1.0001) ticks.push({ v, text: write(kind, v) });
    }
  }
  return ticks;
}

// axis places values from lo to hi between two pixels; n is about how many ticks there is room for.
function axis({ kind, lo, hi, log }, from, to, n) {
  const f = log ? Math.log : v => v,
    back = log ? Math.exp : v => v,
    a = f(lo),
    b = f(hi);
  return {
    at: v => from + ((to - from) * (f(log ? Math.max(v, lo) : v) - a)) / (b - a),
    value: pixel => Math.min(Math.max(back(a + ((b - a) * (pixel - from)) / (to - from)), lo), hi),
    ticks: (log ? logTicks : evenTicks)(kind, lo, hi, n),
  };
}

// around is a span with all values in it and some room at both ends; a log axis begins at the smallest value above 0.
function around(kind, values, log) {
  const seen = log ? values.filter(v => v > 0) : values;
  if (!seen.length) return { kind, lo: 0, hi: sizes[kind][0][1] };
  const lo = seen.reduce((a, b) => Math.min(a, b)),
    hi = seen.reduce((a, b) => Math.max(a, b));
  if (log) {
    const room = lo === hi ? 2 : (hi / lo) ** 0.05;
    return { kind, log, lo: lo / room, hi: hi * room };
  }
  const room = lo === hi ? Math.abs(lo) / 2 || sizes[kind][0][1] : (hi - lo) * 0.05;
  return { kind, lo: Math.max(lo - room, Math.min(lo, 0)), hi: hi + room };
}

// upTo is a span from 0 to a tick at or above a value.
function upTo(kind, top, n = 4) {
  if (!(top > 0)) return { kind, lo: 0, hi: unitOf(kind, 0)[1] };
  const [, size] = unitOf(kind, top),
    step = niceStep(top / size, n);
  return { kind, lo: 0, hi: Math.ceil(top / size / step - 1e-6) * step * size };
}

// useTop is the top of a scale of use: 100 %, or less where nothing comes near it.
const useTop = most => [0.01, 0.02, 0.05, 0.1, 0.2, 0.5].find(t => most <= t) ?? 1;

// most is the largest value, 0 for none; lists may be too long to be arguments.
const most = values => values.reduce((a, b) => Math.max(a, b), 0);
