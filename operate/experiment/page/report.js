// The page of one report.

function reportPage(r) {
  return [
    masthead(`${r.load.name || "A load"} on ${r.fabric.topology || "a fabric"}`, sentence(r)),
    stopped(r),
    tiles(r),
    repeat(r),
    jobsBox(r),
    messagesBox(r),
    h("div", { class: "two" }, ranksBox(r), speedBox(r)),
    sentBox(r),
    tiersBox(r),
    heatBox(r),
    linksBox(r),
    footer(),
  ];
}

// sentence is what was run.
function sentence({ load, fabric }) {
  const built =
    fabric.text ||
    [plural(fabric.hosts, "host"), plural(fabric.switches, "switch", "switches"), plural(fabric.cables, "cable")].join(
      ", ",
    );
  const rate = fabric.rate && !built.includes(fabric.rate) ? `, hosts' links at ${fabric.rate}` : "";
  const over = `a fabric${fabric.routing ? ` routed by ${fabric.routing}` : ""}: ${built}${rate}`;
  return (
    `${plural(load.ranks, "rank")} sent ${plural(load.messages, "message")}, ${bytes(load.bytes)} in all, over ` +
    `${over}.`
  );
}

// tiles are the figures that are looked for first.
function tiles(r) {
  const took = allMessages(r),
    some = took.count > 0;
  const list = [
    [
      r.whole ? "End" : "Stopped at",
      time(r.end_s, 4),
      r.whole ? "the last rank was done" : "of virtual time",
      r.whole ? "" : "warn",
    ],
    ["Rate of all hosts", bitRate(rateOf(r)), `${write("byteRate", rateOf(r))} over the run`],
    ["Message time p50", some ? time(took.p50) : "–", some ? `mean ${time(took.mean)}` : "no message"],
    ["Message time p99", some ? time(took.p99) : "–", some ? `max ${time(took.max)}` : "no message"],
    ["Fairness", some ? r.fairness.toFixed(3) : "–", "Jain's index, 1 is equal"],
    ["Messages", count(r.load.messages), plural(r.load.operations, "operation")],
    ["Bytes", bytes(r.load.bytes), `${count(r.load.bytes)} B`],
    ["Level", r.level || "–", r.why],
    ...stepTiles(r),
    ["Wall time", time(r.wall_s), r.packet_hops ? `${plural(r.packet_hops, "packet hop")}` : "to calculate it"],
    ...costTiles(r),
    ["Seed", r.seed, r.hash ? `hash ${r.hash.slice(0, 12)}${r.hash.length > 12 ? "…" : ""}` : "no hash"],
  ];
  return h(
    "dl",
    { class: "tiles" },
    list.map(([name, value, below, kind]) =>
      h(
        "div",
        { class: `tile ${kind ?? ""}` },
        h("dt", null, name),
        h("dd", { class: value.length > 12 && "long" }, value),
        below && h("dd", { class: "below" }, below),
      ),
    ),
  );
}

// costTiles are what the run has used and what the fabric costs, where the report says so, and what adapters had to
// fetch.
function costTiles({ energy, cost, adapters }) {
  const list = [];
  const missed = c => (c && c.hits + c.misses > 0 ? part(c.misses / (c.hits + c.misses)) : "none");
  if (energy) {
    list.push([
      "Energy",
      write("energy", energy.total_J),
      `${write("energy", energy.per_byte_J)} a byte; ${write("energy", energy.idle_J)} without traffic`,
    ]);
  }
  if (cost) {
    list.push([
      "Fabric's cost",
      `${dollars(cost.low_usd)} to ${dollars(cost.high_usd)}`,
      `${count(cost.idle_watts)} to ${count(cost.watts)} W; rough estimates`,
    ]);
  }
  if (adapters) {
    list.push([
      "Contexts fetched",
      missed(adapters.contexts),
      `up to ${plural(adapters.queue_pairs, "queue pair")}; READs ${missed(adapters.requests)}, pages ` +
        `${missed(adapters.translations)}`,
    ]);
  }
  return list;
}

// stepTiles are what calculations leave of the time, and what Ethernet did, where the report says so.
function stepTiles({ step, ethernet }) {
  const list = [];
  if (step) {
    list.push(
      ["Exposed communication", time(step.exposed_communication_s), `${time(step.without_communication_s)} without it`],
      ["Processors busy", part(step.utilisation), "of the time"],
    );
  }
  if (ethernet) {
    list.push(
      [
        `Pauses (${ethernet.network})`,
        count(ethernet.pauses_sent),
        `ports stood still for ${time(ethernet.paused_s)} in all`,
      ],
      [
        "Packets dropped",
        count(ethernet.dropped),
        `${count(ethernet.resent)} sent again, ${count(ethernet.marked)} marked`,
        ethernet.storms ? "warn" : "",
      ],
    );
  }
  return list;
}

// jobsBox is what a load is made of, and how several jobs fared beside each other and alone.
function jobsBox({ load, jobs }) {
  const says = load.says ?? [],
    list = jobs ?? [];
  if (!says.length && !list.length) return null;
  const rows = list.flatMap(j => [
    { name: j.name, end: j.end_s, spread: j.took_s },
    ...(j.alone ? [{ name: `${j.name}, alone`, end: j.alone.end_s, spread: j.alone.took_s }] : []),
  ]);
  const columns = spreadColumns("job", "messages", v => time(v));
  columns.splice(1, 0, { title: "took", num: true, text: j => time(j.end, 4) });
  return box(
    "What was run",
    null,
    says.length > 0 &&
      h(
        "ul",
        null,
        says.map(s => h("li", null, s)),
      ),
    rows.length > 0 && table("Jobs, and how long their messages took", columns, rows),
  );
}

function messagesBox(r) {
  const curves = r.messages.map(m => ({ name: m.name, spread: m.took_s, bytes: m.bytes }));
  const columns = spreadColumns("size", "messages", v => time(v));
  columns.splice(2, 0, { title: "bytes", num: true, text: c => bytes(c.bytes) });
  return box(
    "Message completion times",
    "From the start of a message to its end, as a distribution function: how many took no longer than a time.",
    distribution({
      title: "Message completion times",
      curves,
      kind: "time",
      log: true,
      axisTitle: "time of a message (log scale)",
      of: "messages",
      marks: [0.5, 0.99],
    }),
    curves.length > 0 &&
      h(
        "details",
        { open: true },
        h("summary", null, "Numbers"),
        table("Message completion times by size", columns, curves),
      ),
  );
}

function ranksBox(r) {
  const { count: n, min, p50, max } = r.ranks;
  const note = n
    ? `The first at ${time(min, 4)}, half of them by ${time(p50, 4)}, the last at ${time(max, 4)}.`
    : "No rank was done.";
  return box(
    "When ranks were done",
    note,
    distribution({
      title: "When ranks were done",
      curves: [{ name: "ranks", spread: r.ranks }],
      kind: "time",
      axisTitle: "virtual time",
      of: "ranks",
      marks: [0.5],
      one: true,
    }),
    n > 0 &&
      folded("Numbers", () =>
        table(
          "When ranks were done",
          spreadColumns("", "ranks", v => time(v, 4)),
          [{ name: "done at", spread: r.ranks }],
        ),
      ),
  );
}

function speedBox(r) {
  const note = r.speed.count
    ? `What each had of the rate of its sender's link. Fairness is ${r.fairness.toFixed(3)}: 1 if all are equal.`
    : "No message was sent.";
  return box(
    "Speed of messages",
    note,
    distribution({
      title: "Speed of messages",
      curves: [{ name: "messages", spread: r.speed }],
      kind: "part",
      axisTitle: "part of the link's rate",
      of: "messages",
      marks: [0.5],
      one: true,
    }),
    r.speed.count > 0 &&
      folded("Numbers", () =>
        table("Speed of messages", spreadColumns("", "messages", part), [
          { name: "part of the rate", spread: r.speed },
        ]),
      ),
  );
}

// interval is one of a run's, in words, and intervals a table with a row for each.
const interval = (r, i) => between(i ? r.times_s[i - 1] : 0, r.times_s[i]);
const intervals = (r, columns) =>
  table(
    "Over time",
    [{ title: "virtual time", text: i => interval(r, i), class: "nowrap" }, ...columns],
    r.times_s.map((_, i) => i),
  );

function sentBox(r) {
  const list = [{ name: "all hosts", ends: r.times_s, values: r.sent_Bps, look: { area: true } }];
  const top = most(r.sent_Bps),
    columns = [
      { title: "bits a second", num: true, text: i => bitRate(r.sent_Bps[i] ?? 0) },
      { title: "bytes a second", num: true, text: i => write("byteRate", r.sent_Bps[i] ?? 0) },
    ];
  return box(
    "Sent by all hosts",
    r.sent_Bps.length > 0 && `On average ${bothRates(average(list[0]))}, at most ${bothRates(top)} in an interval.`,
    courses({
      title: "Sent by all hosts over time",
      list,
      y: { ...upTo("rate", top), title: "sent" },
      tell: bothRates,
      high: 220,
      shared: true,
    }),
    r.times_s.length > 0 && folded("Numbers", () => intervals(r, columns)),
  );
}

function tiersBox(r) {
  const top = useTop(most(r.tiers.map(t => most(t.max)))),
    y = { kind: "part", lo: 0, hi: top, title: "use" };
  const name = "Use of links, by tier";
  if (!r.tiers.length) return box(name, null, empty("There are no links."));
  const panels = r.tiers.map(t =>
    h(
      "div",
      { class: "panel" },
      h("h3", null, t.name, h("span", { class: "dim" }, ` ${plural(t.links, "link")}`)),
      courses({
        title: `Use of links, ${t.name}`,
        y,
        tell: part,
        high: 190,
        shared: true,
        list: [
          { name: "mean", ends: r.times_s, values: t.mean, look: { area: true } },
          { name: "max", ends: r.times_s, values: t.max },
        ],
      }),
    ),
  );
  const columns = r.tiers.flatMap(t => [
    { title: `${t.name} mean`, num: true, text: i => part(t.mean[i] ?? 0) },
    { title: `${t.name} max`, num: true, text: i => part(t.max[i] ?? 0) },
  ]);
  return box(
    name,
    "The mean over a tier's links in each interval, and the busiest of them. A link is one direction of a cable. All " +
      "have one scale.",
    h("div", { class: "panels" }, panels),
    folded("Numbers over the whole run", () =>
      table(
        name,
        spreadColumns("tier", "links", part),
        r.tiers.map(t => ({ name: t.name, spread: t.use })),
      ),
    ),
    r.times_s.length > 0 && folded("Numbers over time", () => intervals(r, columns)),
  );
}

// named are the columns that say which link a row is about.
const named = ["name", "tier"].map(key => ({
  title: key === "name" ? "link" : key,
  text: l => l[key],
  value: l => l[key],
  class: "name",
}));

function heatBox(r) {
  const rows = r.heat.filter(row => row.use.length);
  if (!rows.length || !r.times_s.length)
    return box("Use of links over time", null, empty("Nothing was measured over time."));
  const peak = row => Math.max(row.use.slice(0, r.times_s.length).indexOf(most(row.use)), 0);
  const columns = [
    ...named,
    { title: "mean", num: true, text: row => part(average({ ends: r.times_s, values: row.use })) },
    { title: "peak", num: true, text: row => part(most(row.use)) },
    { title: "peak in", num: true, text: row => interval(r, peak(row)) },
  ];
  return box(
    "Use of links over time",
    "A row is a link, or the busiest of several where there are more links than rows.",
    heatMap(rows, r.times_s),
    folded("Numbers", () => table("Use of links over time", columns, rows)),
  );
}

function linksBox(r) {
  const columns = [
    ...named,
    { title: "use", num: true, text: l => meter(l.use), value: l => l.use },
    { title: "peak", num: true, text: l => meter(l.peak), value: l => l.peak },
    { title: "bytes", num: true, text: l => bytes(l.bytes), value: l => l.bytes },
  ];
  return box(
    "The busiest links",
    "Use is over the whole run, peak that of the busiest interval. A press on a head sorts.",
    r.links.length ? sortable("The busiest links", columns, r.links, 2, 20) : empty("No link carried anything."),
  );
}
