// A link's own page: both ends, over time, and faults to rehearse with.

import { h, fill, table, toast } from "../dom.js";
import { del, get, put, q } from "../api.js";
import { bitRate, count, dayClock, length, percent, perSecond } from "../format.js";
import { live } from "../live.js";
import { card, failed, health, nodeTo, tag } from "../words.js";
import { historyPlots } from "../history.js";

export function linkView(root, { model, words, signal, title }) {
  const name = words.slice(1).join("/");
  title(name);
  fill(root, h("div", { class: "loading" }, `Looking at ${name} …`));
  let page = null,
    parts = null;

  async function load() {
    let l;
    try {
      l = await get(`link?port=${q(name)}`);
    } catch (e) {
      if (!page && !signal.aborted) fill(root, failed(e));
      return;
    }
    if (signal.aborted) return;
    if (!page) build(l);
    update(l);
  }

  function build(l) {
    const [a, b] = l.ends;
    parts = {
      cards: h("div", { class: "cards" }),
      ends: h("div"),
      fault: h("div", { "aria-live": "polite" }),
      why: h("div"),
      counters: h("div", { class: "two" }),
    };
    parts.form = faultForm(l.name, again, signal);
    page = h(
      "div",
      { class: "page" },
      h(
        "header",
        null,
        h("p", { class: "crumbs" }, h("a", { href: "#/map" }, "Map"), " / link"),
        h(
          "div",
          null,
          h("h1", null, `${a.name} – ${b.name}`),
          h(
            "p",
            { class: "dim" },
            nodeTo(model, l.nodes[0]),
            " to ",
            nodeTo(model, l.nodes[1]),
            `, cable of ${length(l.length_mm)}`,
          ),
        ),
        h("div", { class: "actions" }, h("a", { class: "button", href: `#/map?sel=${q(a.name)}` }, "On the map")),
      ),
      parts.cards,
      parts.why,
      h("div", { class: "box" }, h("h2", null, "Rehearse a fault"), parts.fault, parts.form.element),
      historyPlots(
        [
          { port: a.name, label: a.name },
          { port: b.name, label: b.name },
        ],
        signal,
      ),
      h("h2", null, "Both ends"),
      parts.ends,
      h("h2", null, "Counters"),
      parts.counters,
    );
    fill(root, page);
  }

  function update(l) {
    const [a, b] = l.ends,
      up = a.state === "Active" && b.state === "Active";
    fill(
      parts.cards,
      card("State", up ? "Active" : a.state === b.state ? a.state : `${a.state} / ${b.state}`, up ? "good" : "bad"),
      card("Rate", a.rate ? `${a.rate}, ${count(a.mbps / 1000)} Gb/s` : "–", a.could_be ? "warn" : ""),
      card("Health", l.health === "ok" ? "good" : l.health, { ok: "good", watch: "warn" }[l.health] ?? "bad"),
      card(`${a.name} sends`, bitRate(a.sent_Bps)),
      card(`${b.name} sends`, bitRate(b.sent_Bps)),
      card("Errors counted", count(a.errors + b.errors), a.errors_ps + b.errors_ps > 0 ? "bad" : ""),
    );
    fill(
      parts.why,
      l.why?.length
        ? h(
            "div",
            { class: "box" },
            h("h2", null, "Why it is judged so"),
            h(
              "ul",
              null,
              l.why.map(w => h("li", null, w)),
            ),
          )
        : null,
    );
    parts.form.draw(!!l.fault);
    fill(
      parts.fault,
      l.fault
        ? h(
            "p",
            { class: "warn" },
            h("b", null, `Set: ${l.fault.fault}`),
            ` since ${dayClock(l.fault.since)}; ${count(l.fault.dropped)} packets lost, ${count(l.fault.corrupted)} ` +
              "damaged. ",
          )
        : h(
            "p",
            { class: "dim" },
            "None is set. What is set here happens to the packets of programs; the fabric's own counters and manager " +
              "see it as they would a real one.",
          ),
    );
    const val = f => l.ends.map(f),
      rows = [
        ["Port", val(e => [nodeTo(model, e.name.replace(/\[\d+\]$/, "")), ` port ${e.port}`])],
        ["State", val(e => tag(e.state))],
        [
          "Rate",
          val(e => (e.rate ? [e.rate, e.could_be && h("span", { class: "warn" }, `, could be ${e.could_be}`)] : "–")),
        ],
        ["MTU", val(e => (e.mtu ? `${e.mtu} B` : "–"))],
        [
          "Sends",
          val(e => [
            bitRate(e.sent_Bps),
            e.mbps ? h("span", { class: "dim" }, ` (${percent((e.sent_Bps * 8) / e.mbps / 1e6)})`) : "",
            ", ",
            perSecond(e.sent_pps, "pkt"),
          ]),
        ],
        ["Waits for credit", val(e => percent(e.wait))],
        ["Errors", val(e => `${count(e.errors)}, ${perSecond(e.errors_ps, "")} now`)],
        ["Discards", val(e => count(e.discards))],
      ];
    fill(
      parts.ends,
      table(
        [
          { title: "", cell: r => r[0] },
          { title: a.name, cell: r => r[1][0] },
          { title: b.name, cell: r => r[1][1] },
        ],
        rows,
        { caption: "Both ends" },
      ),
    );
    fill(parts.counters, counters(l));
  }
  const again = live.follow("links", load, signal);
}

function counters(l) {
  const names = [...new Set(l.ends.flatMap(e => (e.counters ?? []).map(c => c.name)))];
  const by = l.ends.map(e => new Map((e.counters ?? []).map(c => [c.name, c])));
  const means = n => by[0].get(n)?.means ?? by[1].get(n)?.means ?? "";
  const cell = (i, n) => count(by[i].get(n)?.value ?? 0);
  return table(
    [
      { title: "Counter", cell: n => n, class: "nowrap" },
      { title: l.ends[0].name, cell: n => cell(0, n), num: true },
      { title: l.ends[1].name, cell: n => cell(1, n), num: true },
      { title: "What it counts", cell: n => h("span", { class: "dim" }, means(n)) },
    ],
    names,
    { caption: "Counters since the fabric began", empty: "No counter has moved." },
  );
}

// faultForm sets and lifts; it is made once, so that typing survives updates.
export function faultForm(link, changed, signal) {
  const f = {
    ber: h("input", { name: "ber", placeholder: "1e-6", size: 7, inputMode: "text" }),
    drop: h("input", { name: "drop", placeholder: "0.01", size: 6 }),
    rate: h("input", { name: "rate", placeholder: "10G", size: 6 }),
    delay: h("input", { name: "delay", placeholder: "5us", size: 6 }),
  };
  const down = h("input", { type: "checkbox", name: "down" });
  const problem = h("p", { class: "form-error", role: "alert", hidden: true });
  const act = async what => {
    problem.hidden = true;
    for (const i of Object.values(f)) i.removeAttribute("aria-invalid");
    try {
      await what();
      changed();
    } catch (e) {
      if (signal.aborted) return;
      fill(problem, e.message, e.next && h("small", null, e.next));
      problem.hidden = false;
      for (const [k, i] of Object.entries(f)) if (e.message.includes(`${k}=`)) i.setAttribute("aria-invalid", "true");
    }
  };
  const lift = h(
    "button",
    {
      type: "button",
      onclick: () =>
        act(async () => {
          await del(`faults?link=${q(link)}`);
          toast(`${link} is a good cable again.`);
        }),
    },
    "Lift the fault",
  );
  const form = h(
    "form",
    {
      class: "row",
      "aria-label": "Fault",
      onsubmit: e => {
        e.preventDefault();
        const text = [
          down.checked && "down",
          ...Object.entries(f).map(([k, i]) => i.value.trim() && `${k}=${i.value.trim()}`),
        ]
          .filter(Boolean)
          .join(" ");
        if (!text) {
          fill(problem, "Nothing is chosen: take the link down, or give it an error rate, a loss, a rate or a delay.");
          problem.hidden = false;
          return;
        }
        act(async () => {
          await put("faults", { link, fault: text });
          toast(`${link}: ${text}`);
        });
      },
    },
    h("label", { class: "check" }, down, "link down"),
    h("label", null, "bit error rate", f.ber),
    h("label", null, "packets lost", f.drop),
    h("label", null, "rate, b/s", f.rate),
    h("label", null, "delay", f.delay),
    h("button", { type: "submit", class: "primary" }, "Set the fault"),
    lift,
  );
  return {
    element: h("div", null, form, problem),
    draw(set) {
      lift.hidden = !set;
    },
  };
}
