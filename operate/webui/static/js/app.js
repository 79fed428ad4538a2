// The shell: what is around every view, and which view an address means.

import { h, fill } from "./dom.js";
import { get, q } from "./api.js";
import { ago, count, span } from "./format.js";
import { live } from "./live.js";
import { tenants } from "./tenants.js";
import { Model } from "./map/model.js";
import { isDark } from "./map/scales.js";
import { mapView } from "./views/map.js";

const nav = [
  ["map", "Map"],
  ["overview", "Overview"],
  ["cables", "Cables"],
  ["sm", "Subnet"],
  ["events", "Events"],
  ["tenants", "Tenants"],
  ["programs", "Programs"],
  ["faults", "Faults"],
  ["inspect", "Checks"],
  ["report", "Report"],
];

// Views other than the map are loaded when they are first wanted.
const views = {
  map: async () => mapView,
  route: async () => mapView,
  table: async () => (await import("./views/table.js")).tableView,
  host: async () => (await import("./views/node.js")).nodeView,
  switch: async () => (await import("./views/node.js")).nodeView,
  link: async () => (await import("./views/link.js")).linkView,
  overview: async () => (await import("./views/overview.js")).overviewView,
  inspect: async () => (await import("./views/inspect.js")).inspectView,
  cables: async () => (await import("./views/cables.js")).cablesView,
  sm: async () => (await import("./views/sm.js")).smView,
  events: async () => (await import("./views/events.js")).eventsView,
  tenants: async () => (await import("./views/tenants.js")).tenantsView,
  programs: async () => (await import("./views/programs.js")).programsView,
  faults: async () => (await import("./views/faults.js")).faultsView,
  report: async () => (await import("./views/report.js")).reportView,
};

const $ = id => document.getElementById(id);
let model,
  current = null;
const go = hash => {
  if (location.hash === hash) show();
  else location.hash = hash;
};

async function show() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const words = path.split("/").map(decodeURIComponent),
    name = words[0] || "map";
  const params = Object.fromEntries(new URLSearchParams(query ?? ""));
  current?.abort();
  current = new AbortController();
  const { signal } = current,
    main = $("content");
  const make = await (views[name] ?? views.map)();
  if (signal.aborted) return;
  if (name === "route" && words.length >= 3) params.route = [words[1], words[2]];
  const top = { route: "map", table: "map", host: "map", switch: "map", link: "map" }[name] ?? name;
  for (const a of $("nav").children) {
    if (a.dataset.view === top) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  main.className = name === "map" || name === "route" ? "full" : "";
  main.scrollTop = 0;
  make(main, {
    model,
    words,
    params,
    signal,
    go,
    title: t => {
      document.title = `${t} · ${model.name || "softib"}`;
    },
  });
  document.body.dataset.view = name;
}

// ---- search

function setUpSearch() {
  const input = $("search"),
    list = $("search-list");
  let found = [],
    at = -1,
    asked = 0,
    timer = 0;
  const words = () => input.value.trim().replace(/^\/+/, ""); // the key that led here may have been pressed twice
  const close = () => {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
    at = -1;
  };
  const open = (f, page) => {
    close();
    input.value = "";
    input.blur();
    if (f.kind === "link") go(`#/${page ? "link/" : "map?sel="}${q(f.name)}`);
    else go(page ? `#/${f.kind === "switch" ? "switch" : "host"}/${q(f.name)}` : `#/map?sel=${q(f.name)}`);
  };
  const draw = () => {
    fill(
      list,
      found.map((f, i) =>
        h(
          "li",
          {
            role: "option",
            id: `found-${i}`,
            "aria-selected": i === at,
            onmousedown: e => {
              e.preventDefault();
              open(f, e.shiftKey);
            },
          },
          h("b", null, f.name),
          h("span", null, f.kind),
          f.why && h("small", null, f.why),
        ),
      ),
      !found.length && h("li", { class: "none" }, "Nothing fits. A host, a switch, leaf1[5], a GUID or a LID."),
    );
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    if (at >= 0) {
      input.setAttribute("aria-activedescendant", `found-${at}`);
      list.children[at]?.scrollIntoView({ block: "nearest" });
    }
  };
  input.addEventListener("input", () => {
    clearTimeout(timer);
    const text = words();
    if (!text) {
      close();
      return;
    }
    timer = setTimeout(async () => {
      const mine = ++asked;
      try {
        const a = await get(`search?q=${q(text)}`);
        if (mine !== asked || words() !== text) return;
        found = a;
        at = a.length ? 0 : -1;
        draw();
      } catch {
        close();
      }
    }, 60);
  });
  input.addEventListener("keydown", async e => {
    if (e.key === "Escape") {
      close();
      input.blur();
    }
    if (e.key === "ArrowDown" || e.key === "ArrowUp") {
      if (!found.length) return;
      e.preventDefault();
      at = (at + (e.key === "ArrowDown" ? 1 : found.length - 1)) % found.length;
      draw();
    }
    if (e.key === "Enter" && words()) {
      e.preventDefault();
      clearTimeout(timer);
      const page = e.shiftKey;
      if (list.hidden || !found.length) found = await get(`search?q=${q(words())}`).catch(() => []);
      const f = found[Math.max(at, 0)];
      if (f) open(f, page);
      else draw();
    }
  });
  input.addEventListener("blur", close);
}

// ---- live, banner, theme, help

function drawLive() {
  const e = $("live"),
    late = live.stale;
  let cls = "live",
    text = "live",
    tip = "Numbers come as they are taken.";
  if (late) {
    cls += " stale";
    text = `stale, ${span(late)}`;
    tip = "Nothing was heard for a while: what is shown may be old.";
  } else if (!live.connected) {
    cls += " off";
    text = live.heard ? "reconnecting" : "connecting";
    tip = "There is no connection to the fabric's daemon. Is softib up still running?";
  }
  e.className = cls;
  e.title = tip;
  if (e.textContent !== text) e.textContent = text;
  document.body.classList.toggle("is-stale", !!late || !live.connected);
}

function drawBanner() {
  const s = live.status,
    b = $("banner");
  if (!s) return;
  const f = s.faults,
    text = f.join("\n");
  b.hidden = !f.length;
  if (!f.length || b.dataset.text === text) return;
  b.dataset.text = text;
  fill(
    b,
    h("span", { class: "mark", "aria-hidden": "true" }, "▲"),
    h("b", null, f.length === 1 ? "A rehearsal fault is set" : `${count(f.length)} rehearsal faults are set`),
    h("span", { class: "what" }, f.slice(0, 2).join("; "), f.length > 2 && ` and ${count(f.length - 2)} more`),
    h("a", { href: "#/faults" }, "Show and lift"),
  );
}

function setUpTheme() {
  const b = $("theme");
  const draw = () => {
    b.textContent = isDark() ? "☀" : "☾";
    b.title = isDark() ? "Light" : "Dark";
  };
  b.addEventListener("click", () => {
    const next = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    try {
      localStorage.setItem("softib-theme", next);
    } catch {
      /* not kept, then */
    }
    draw();
    window.dispatchEvent(new Event("themechange"));
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    draw();
    window.dispatchEvent(new Event("themechange"));
  });
  draw();
}

function setUpHelp() {
  const d = $("help-dialog");
  const keys = [
    ["/", "search hosts, switches, ports, GUIDs, LIDs; Enter flies there, Shift+Enter opens the page"],
    ["?", "this help"],
    [
      "g then m o c s e t p f i r",
      "map, overview, cables, subnet, events, tenants, programs, faults, checks, report of a simulation",
    ],
    ["Tab", "next control"],
    ["arrows", "on the map: move, or go to the neighbour of what is selected; with Shift always move"],
    ["+  −  0", "zoom in, out, whole fabric"],
    ["Enter", "on the map: select what is in the middle, then open its page"],
    ["l", "the selected node's first link"],
    ["c", "next colouring"],
    ["Esc", "deselect, close"],
  ];
  fill(
    d,
    h(
      "form",
      { method: "dialog" },
      h("h2", null, "Keys"),
      h(
        "dl",
        { class: "keys" },
        keys.map(([k, t]) => [h("dt", null, h("kbd", null, k)), h("dd", null, t)]),
      ),
      h(
        "p",
        { class: "dim" },
        `softib ${model.version || ""}, ${model.kind}. Everything on this page comes from the fabric's own daemon; ` +
          "nothing is asked from elsewhere.",
      ),
      h("button", { type: "submit", autofocus: true }, "Close"),
    ),
  );
  $("help").addEventListener("click", () => d.showModal());
}

let prefix = -Infinity;
function keys(e) {
  if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName)) return;
  if (e.key === "/") {
    e.preventDefault();
    $("search").focus();
    return;
  }
  if (e.key === "?") {
    e.preventDefault();
    $("help-dialog").showModal();
    return;
  }
  if (e.key === "g") {
    prefix = e.timeStamp;
    return;
  }
  if (e.timeStamp - prefix < 2000) {
    // by when the keys were pressed: a page that is busy may come to them later
    prefix = -Infinity;
    const n = nav.find(([id]) => id[0] === e.key);
    if (n) {
      e.preventDefault();
      e.stopPropagation();
      go(`#/${n[0]}`);
    }
  }
}

async function start() {
  setUpTheme();
  fill(
    $("nav"),
    nav.map(([id, title]) => h("a", { href: `#/${id}`, dataset: { view: id } }, title)),
  );
  try {
    const r = await fetch("/api/v1/topology", { credentials: "same-origin" });
    if (!r.ok) throw new Error(`the fabric's daemon answered ${r.status}`);
    model = new Model(await r.json());
  } catch (e) {
    fill(
      $("content"),
      h(
        "div",
        { class: "page" },
        h("h1", null, "The fabric cannot be shown"),
        h("p", { class: "error", role: "alert" }, e.message),
        h("p", null, "Is “softib up” still running? "),
        h("button", { onclick: () => location.reload() }, "Try again"),
      ),
    );
    return;
  }
  performance.mark("model-ready");
  $("fabric-name").textContent = model.name || "";
  $("fabric-name").title = model.kind;
  live.start(model.cables);
  tenants.start();
  setUpSearch();
  setUpHelp();
  live.on("connection", drawLive);
  // Another start is another fabric: more nodes than this page knows, or none of them.
  let began = null;
  live.on("status", () => {
    if (began !== null && live.status.started !== began) location.reload();
    began = live.status.started;
    drawLive();
    drawBanner();
  });
  live.on("links", drawLive);
  drawLive();
  document.addEventListener("keydown", keys, true);
  // Who goes to two addresses at once is told of both after the second: the view of that one is made once, or the focus
  // that it got is lost.
  window.addEventListener("hashchange", e => {
    if (e.newURL === location.href) show();
  });
  await show();
}

start();
