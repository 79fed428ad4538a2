// The page of a comparison: reports beside each other, the first being what others are measured by.

const letter = i => (i < 26 ? String.fromCharCode(65 + i) : `R${i + 1}`);

// traits are what runs may differ in.
const traits = [
  ["topology", r => r.fabric.topology],
  ["routing", r => r.fabric.routing],
  ["hosts' links", r => r.fabric.rate],
  ["load", r => r.load.name],
  ["ranks", r => count(r.load.ranks)],
  ["level", r => r.level],
  ["seed", r => r.seed],
];

// figures are what is compared; better is -1 where less is better and 1 where more is.
const figures = [
  ["End", r => r.end_s, v => time(v, 4), -1],
  ["Rate of all hosts", rateOf, bitRate, 1],
  ["Message time mean", r => allMessages(r).mean, v => time(v), -1],
  ["Message time p50", r => allMessages(r).p50, v => time(v), -1],
  ["Message time p90", r => allMessages(r).p90, v => time(v), -1],
  ["Message time p99", r => allMessages(r).p99, v => time(v), -1],
  ["Message time p99.9", r => allMessages(r).p999, v => time(v), -1],
  ["Message time max", r => allMessages(r).max, v => time(v), -1],
  ["Fairness", r => r.fairness, v => v.toFixed(3), 1],
  ["Speed of messages p50", r => r.speed.p50, part, 1],
  ["First rank done", r => r.ranks.min, v => time(v, 4), 0],
  ["Busiest link, whole run", r => most(r.links.map(l => l.use)), part, 0],
  ["Messages", r => r.load.messages, count, 0],
  ["Bytes", r => r.load.bytes, bytes, 0],
  ["Hosts", r => r.fabric.hosts, count, 0],
  ["Switches", r => r.fabric.switches, count, 0],
  ["Cables", r => r.fabric.cables, count, 0],
  ["Wall time", r => r.wall_s, v => time(v), 0],
];

function comparePage(rs) {
  const differ = traits.filter(([, of]) => rs.some(r => of(r) !== of(rs[0])));
  // Two traits tell runs apart, with the letter; more would make legends of them.
  const shown = differ.slice(0, 2);
  const names = rs.map((r, i) => [letter(i), ...shown.map(([, of]) => of(r))].filter(Boolean).join(" · "));
  const same = traits.filter(t => !differ.includes(t) && t[1](rs[0])).map(([name, of]) => `${name} ${of(rs[0])}`);
  const alike = same.length ? `${differ.length ? "They share" : "They are alike in"} ${listed(same)}.` : "";
  const words = differ.length
    ? `They differ in ${listed(differ.map(t => t[0]))}. ${alike}`
    : alike || "They are alike in everything that was asked for.";
  return [
    masthead(`${rs.length} runs compared`, words),
    ...rs.map((r, i) => stopped(r, `Run ${letter(i)}`)),
    keyFigures(rs, differ),
    messagesCompared(rs, names),
    h("div", { class: "two" }, ranksCompared(rs, names), speedsCompared(rs, names)),
    sentCompared(rs, names),
    tiersCompared(rs),
    ...rs.map((r, i) => repeat(r, `run ${letter(i)}`)),
    footer(),
  ];
}

// listed is words as a sentence has them.
const listed = words => (words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`);

// keyFigures has a column for each run, and how far it is from the first.
function keyFigures(rs, differ) {
  const heads = [
    h("td"),
    ...rs.map((_, i) => h("th", { scope: "col", class: "num" }, swatch(look(i).colour, look(i).dash), ` ${letter(i)}`)),
  ];
  const words = differ.map(([name, of]) =>
    h(
      "tr",
      { class: "trait" },
      h("th", { scope: "row" }, name),
      rs.map(r => h("td", { class: "num name" }, of(r) || "–")),
    ),
  );
  const rows = figures.map(([name, of, text, better]) =>
    h(
      "tr",
      null,
      h("th", { scope: "row" }, name),
      rs.map((r, i) =>
        h(
          "td",
          { class: "num" },
          text(of(r)),
          i > 0 && h("small", { class: verdict(of(r), of(rs[0]), better) }, change(of(r), of(rs[0]))),
        ),
      ),
    ),
  );
  return box(
    "Key figures",
    "Differences are to run A. Green is better, red is worse; a figure without a better or worse has neither.",
    framed("Key figures of each run", heads, h("tbody", null, words, rows), "figures"),
  );
}

// verdict is a class: what is within half a percent is neither better nor worse.
function verdict(v, from, better) {
  if (!better || !from || Math.abs(v / from - 1) < 0.005) return "dim";
  return (v - from) * better > 0 ? "good" : "bad";
}

function messagesCompared(rs, names) {
  const curves = rs.map((r, i) => ({ name: names[i], spread: allMessages(r) }));
  return box(
    "Message completion times",
    "All messages, as a distribution function: how many took no longer than a time.",
    distribution({
      title: "Message completion times",
      curves,
      kind: "time",
      log: true,
      axisTitle: "time of a message (log scale)",
      of: "messages",
    }),
    folded("Numbers", () =>
      table(
        "Message completion times",
        spreadColumns("run", "messages", v => time(v)),
        curves,
      ),
    ),
  );
}

function ranksCompared(rs, names) {
  const curves = rs.map((r, i) => ({ name: names[i], spread: r.ranks }));
  return box(
    "When ranks were done",
    null,
    distribution({ title: "When ranks were done", curves, kind: "time", axisTitle: "virtual time", of: "ranks" }),
    folded("Numbers", () =>
      table(
        "When ranks were done",
        spreadColumns("run", "ranks", v => time(v, 4)),
        curves,
      ),
    ),
  );
}

function speedsCompared(rs, names) {
  const curves = rs.map((r, i) => ({ name: names[i], spread: r.speed }));
  return box(
    "Speed of messages",
    null,
    distribution({
      title: "Speed of messages",
      curves,
      kind: "part",
      axisTitle: "part of the link's rate",
      of: "messages",
    }),
    folded("Numbers", () => table("Speed of messages", spreadColumns("run", "messages", part), curves)),
  );
}

function sentCompared(rs, names) {
  const list = rs.map((r, i) => ({ name: names[i], look: look(i), ends: r.times_s, values: r.sent_Bps }));
  return box(
    "Sent by all hosts",
    null,
    courses({
      title: "Sent by all hosts over time",
      list,
      tell: bothRates,
      high: 240,
      shared: true,
      y: { ...upTo("rate", most(rs.map(r => most(r.sent_Bps)))), title: "sent" },
    }),
  );
}

// tiersCompared has a panel for each tier that a run has, for fabrics may differ in them.
function tiersCompared(rs) {
  const tiers = [...new Set(rs.flatMap(r => r.tiers.map(t => t.name)))];
  const of = (r, name) => r.tiers.find(t => t.name === name);
  const y = {
    kind: "part",
    lo: 0,
    hi: useTop(most(rs.flatMap(r => r.tiers.map(t => most(t.mean))))),
    title: "mean use",
  };
  const list = name =>
    rs.map((r, i) => ({
      name: letter(i),
      look: look(i),
      ends: of(r, name) ? r.times_s : [],
      values: of(r, name)?.mean ?? [],
    }));
  const panels = tiers.map(name =>
    h(
      "div",
      { class: "panel" },
      h("h3", null, name),
      courses({ title: `Mean use of links, ${name}`, list: list(name), y, tell: part, high: 210, shared: true }),
    ),
  );
  return box(
    "Use of links, by tier",
    "The mean over a tier's links in each interval. All have one scale.",
    panels.length ? h("div", { class: "panels" }, panels) : empty("There are no links."),
  );
}
