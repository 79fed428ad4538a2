// The map: canvas, its controls, and a panel about what is selected. Everything that the pointer can do has a key; what
// the canvas shows is in the table view too.

import { h, fill } from "../dom.js";
import { bitRate, count, percent, plural } from "../format.js";
import { get, q } from "../api.js";
import { live, STATE } from "../live.js";
import { Renderer } from "../map/renderer.js";
import { badness, modes, palette, tenantColor } from "../map/scales.js";
import { tenants } from "../tenants.js";
import { routeList } from "./route.js";

let kept = null; // the renderer outlives the view, so that coming back is instant

// mapView shows the fabric as it is now, or a report of one that was simulated: then there is nobody to ask about it.
export function mapView(root, { model, params, signal, go, title, report }) {
  title(report ? "Report" : "Map");
  const data = report ?? live,
    home = report ? "#/report" : "#/map";
  if (kept?.model !== model) kept = null;
  const canvas = kept?.canvas ?? h("canvas", { class: "map-canvas", tabIndex: 0, role: "application", id: "map" });
  canvas.setAttribute(
    "aria-label",
    `Map of ${model.kind}. Arrow keys move, plus and minus zoom, Enter selects what is in the middle, Tab goes on to ` +
      "the controls.",
  );
  canvas.setAttribute("aria-describedby", "map-said");
  const r = kept?.r ?? new Renderer(canvas, model, data);
  kept = { canvas, r, model };
  window.softibMap = r; // for tests and for the curious

  const legend = h("div", { class: "legend", "aria-label": "Legend" });
  const panel = h("aside", { class: "panel", "aria-label": "Selection", hidden: true });
  const tip = h("div", { class: "tip", hidden: true });
  const said = h("div", { class: "sr", id: "map-said", "aria-live": "polite" });
  const facts = h("div", { class: "facts" });
  const colours = report ? modes.filter(m => m.id === "util") : modes;
  const modeBar = h(
    "div",
    { class: "segmented", role: "radiogroup", "aria-label": "Colour by" },
    colours.map(m =>
      h("button", { type: "button", role: "radio", dataset: { mode: m.id }, onclick: () => setMode(m.id) }, m.title),
    ),
  );
  const zoomBar = h(
    "div",
    { class: "zoom" },
    h("button", { type: "button", "aria-label": "Zoom in", title: "Zoom in (+)", onclick: () => r.zoom(1.6) }, "+"),
    h(
      "button",
      { type: "button", "aria-label": "Zoom out", title: "Zoom out (−)", onclick: () => r.zoom(1 / 1.6) },
      "−",
    ),
    h(
      "button",
      {
        type: "button",
        "aria-label": "Whole fabric",
        title: "Whole fabric (0)",
        onclick: () => r.flyTo(r.fitCamera()),
      },
      "⤢",
    ),
  );
  const routeBar = h(
    "form",
    {
      class: "route-form",
      "aria-label": "Route between two hosts",
      onsubmit: e => {
        e.preventDefault();
        const f = new FormData(routeBar);
        go(`#/route/${q(String(f.get("from")).trim())}/${q(String(f.get("to")).trim())}`);
      },
    },
    h("input", {
      name: "from",
      placeholder: "from h1",
      "aria-label": "Route from host",
      required: true,
      size: 8,
      autocomplete: "off",
      spellcheck: false,
    }),
    h("span", { "aria-hidden": "true" }, "→"),
    h("input", {
      name: "to",
      placeholder: "to h2",
      "aria-label": "Route to host",
      required: true,
      size: 8,
      autocomplete: "off",
      spellcheck: false,
    }),
    h("button", { type: "submit" }, "Route"),
  );
  fill(
    root,
    h(
      "div",
      { class: "map-view" },
      canvas,
      h(
        "div",
        { class: "map-top" },
        report
          ? report.controls(() => {
              r.dataChanged();
              drawPanel();
            })
          : [modeBar, routeBar, h("a", { class: "button", href: "#/table" }, "Table")],
        facts,
      ),
      h("div", { class: "map-bottom" }, legend),
      zoomBar,
      panel,
      tip,
      said,
    ),
  );

  function setMode(mode) {
    r.setMode(mode);
    for (const b of modeBar.children) {
      const on = b.dataset.mode === mode;
      b.setAttribute("aria-checked", on);
      b.tabIndex = on ? 0 : -1;
    }
    drawLegend();
  }
  modeBar.addEventListener("keydown", e => {
    const i = colours.findIndex(m => m.id === r.mode),
      step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[e.key];
    if (!step) return;
    e.preventDefault();
    setMode(colours[(i + step + colours.length) % colours.length].id);
    modeBar.querySelector("[aria-checked=true]").focus();
  });

  function drawLegend() {
    const m = modes.find(x => x.id === r.mode),
      p = r.pal,
      ramp = p.ramp(r.mode);
    const swatch = (c, text, kind) => h("li", null, h("i", { class: kind ?? "", style: { background: c } }), text);
    const always = [swatch(p.down, "down", "dash"), swatch(p.inactive, "not active", "dot")];
    if (m.steps) {
      fill(
        legend,
        h("b", null, m.title),
        h(
          "ul",
          { class: "ramp" },
          m.words.map((w, i) => swatch(ramp[i], w)),
        ),
        h("ul", null, always),
        h("small", null, m.unit),
      );
      return;
    }
    const list = tenants.list.slice(0, 12);
    fill(
      legend,
      h("b", null, m.title),
      h(
        "ul",
        null,
        list.map((t, i) => swatch(tenantColor(p, i), t.name)),
        swatch(p.none, "no tenant"),
        always,
      ),
      tenants.list.length > list.length && h("small", null, `and ${tenants.list.length - list.length} more`),
    );
  }

  function drawFacts() {
    const s = data.status;
    if (report) {
      fill(facts, report.facts());
      return;
    }
    if (!s) return;
    const item = (n, what, cls) => h("span", { class: cls ?? "" }, h("b", null, n), " ", what);
    fill(
      facts,
      item(count(s.hosts), "hosts"),
      item(count(s.switches), "switches"),
      item(`${count(s.active)} / ${count(s.cables)}`, "links up", s.active < s.cables ? "warn" : ""),
      item(bitRate(s.sent_Bps), "sent"),
      s.alarmed > 0 &&
        h(
          "a",
          { href: "#/cables", class: "warn" },
          h("b", null, count(s.alarmed)),
          s.alarmed === 1 ? " cable to look at" : " cables to look at",
        ),
      h("a", { href: "#/sm" }, "SM ", h("b", null, s.manager)),
    );
  }

  // ---- selection

  function select(what, fly) {
    r.selected = what;
    r.overlay();
    drawPanel();
    if (fly && what) show(what);
    said.textContent = what ? describe(what) : "Nothing selected.";
    const hash = what && what.kind !== "group" ? `${home}?sel=${q(nameOf(what))}` : home;
    if (location.hash !== hash && !r.routes.length) history.replaceState(null, "", hash);
  }
  const nameOf = w =>
    w.kind === "node"
      ? model.names[w.i]
      : w.kind === "link"
        ? model.portName(model.a[w.i], model.ap[w.i])
        : model.groups[w.i].name;

  function show(what) {
    if (what.kind === "node") r.flyToNode(what.i);
    else if (what.kind === "group") {
      const g = model.groups[what.i];
      r.flyToBox(g.x, g.y, g.w, g.h);
    } else
      r.flyToBox(
        Math.min(model.x1[what.i], model.x2[what.i]),
        Math.min(model.y1[what.i], model.y2[what.i]),
        Math.abs(model.x1[what.i] - model.x2[what.i]),
        Math.abs(model.y1[what.i] - model.y2[what.i]),
      );
  }

  function describe(w) {
    if (w.kind === "node") {
      const cables = model.cablesOf(w.i);
      let up = 0,
        busiest = 0;
      for (const k of cables) {
        if (!(data.state[k] & STATE.notActive)) up++;
        busiest = Math.max(busiest, data.util[2 * k], data.util[2 * k + 1]);
      }
      return (
        `${model.isSwitch(w.i) ? "Switch" : "Host"} ${model.names[w.i]}, ${up} of ` +
        `${plural(cables.length, "link")} active, busiest ${percent(busiest / 1000)}`
      );
    }
    if (w.kind === "link")
      return (
        `Link ${model.linkName(w.i)}, ${linkState(w.i)}, ` +
        `${percent(Math.max(data.util[2 * w.i], data.util[2 * w.i + 1]) / 1000)} in use`
      );
    const g = model.groups[w.i];
    return `${g.name}, ${plural(g.hosts, "host")}, ${plural(g.switches, "switch", "switches")}`;
  }

  function linkState(k) {
    const s = data.state[k];
    return (
      (s & STATE.down
        ? "down"
        : s & STATE.notActive
          ? "not active"
          : s & STATE.slow
            ? "active, slower than it could be"
            : "active") + (s & STATE.fault ? ", a fault is set" : "")
    );
  }

  function showPanel(on) {
    panel.hidden = !on;
    root.firstChild.classList.toggle("with-panel", on);
    r.insetRight = on && r.w > 640 ? 312 : 0;
  }

  function drawPanel() {
    if (r.routes.length) return;
    const w = r.selected;
    showPanel(!!w);
    if (!w) return;
    const close = h(
      "button",
      {
        type: "button",
        class: "close",
        "aria-label": "Close",
        onclick: () => {
          select(null);
          canvas.focus();
        },
      },
      "×",
    );
    const row = (k, ...v) => [h("dt", null, k), h("dd", null, v)];
    if (w.kind === "node") {
      const cables = [...model.cablesOf(w.i)].sort((x, y) => model.portAt(x, w.i) - model.portAt(y, w.i));
      const worst = [...cables].sort((x, y) => badness(r.linkBin[y]) - badness(r.linkBin[x])).slice(0, 12);
      const name = model.names[w.i];
      fill(
        panel,
        close,
        h("h2", null, name),
        h(
          "p",
          { class: "dim" },
          model.isSwitch(w.i)
            ? `${model.tree ? `level ${model.level[w.i]} ` : ""}switch, ${model.ports[w.i]} ports`
            : "host",
          model.group[w.i] >= 0 && ` in ${model.groups[model.group[w.i]].name}`,
        ),
        !report &&
          h(
            "p",
            { class: "actions" },
            h("a", { class: "button", href: model.page(w.i) }, "Open page"),
            !model.isSwitch(w.i) &&
              h(
                "button",
                {
                  type: "button",
                  onclick: () => {
                    routeBar.elements.from.value = name;
                    routeBar.elements.to.focus();
                  },
                },
                "Route from here",
              ),
          ),
        h("h3", null, cables.length > worst.length ? "Links, loudest first" : "Links"),
        h("ul", { class: "links" }, worst.map(linkRow)),
      );
    } else if (w.kind === "link") {
      const k = w.i,
        dir = (from, to, d) => [
          h("h3", null, `${from} → ${to}`),
          h(
            "dl",
            null,
            row("in use", percent(data.util[2 * k + d] / 1000)),
            !report && [
              row("waiting", percent(data.wait[2 * k + d] / 1000)),
              row(
                "errors",
                `${(data.errors[2 * k + d] / 10).toFixed(1)} a minute at ` +
                  `${d ? model.portName(model.b[k], model.bp[k]) : model.portName(model.a[k], model.ap[k])}`,
              ),
            ],
          ),
        ];
      fill(
        panel,
        close,
        h("h2", null, model.portName(model.a[k], model.ap[k]), h("br"), model.portName(model.b[k], model.bp[k])),
        h("p", { class: "dim" }, model.rates[model.rate[k]].text, ", ", linkState(k)),
        !report && h("p", { class: "actions" }, h("a", { class: "button", href: model.linkPage(k) }, "Open page")),
        dir(model.names[model.a[k]], model.names[model.b[k]], 0),
        dir(model.names[model.b[k]], model.names[model.a[k]], 1),
      );
    } else {
      const g = model.groups[w.i];
      const members = [];
      let up = 0,
        all = 0;
      for (let i = 0; i < model.count; i++) if (model.group[i] === w.i) members.push(i);
      const bundles = new Set();
      for (let k = 0; k < model.cables; k++) {
        const inside = model.group[model.a[k]] === w.i || model.group[model.b[k]] === w.i;
        if (!inside) continue;
        all++;
        if (!(data.state[k] & STATE.notActive)) up++;
        if (model.bundleOf[k] >= 0) bundles.add(k);
      }
      fill(
        panel,
        close,
        h("h2", null, g.name),
        h(
          "dl",
          null,
          row("hosts", count(g.hosts)),
          row("switches", count(g.switches)),
          row("links active", `${count(up)} / ${count(all)}`),
          row("to other groups", count(bundles.size)),
        ),
        h("p", { class: "actions" }, h("button", { type: "button", onclick: () => show(w) }, "Zoom here")),
        h("h3", null, "Switches"),
        h(
          "ul",
          { class: "chips" },
          members
            .filter(i => model.isSwitch(i))
            .slice(0, 60)
            .map(i =>
              h(
                "li",
                null,
                h("a", { href: report ? `${home}?sel=${q(model.names[i])}` : model.page(i) }, model.names[i]),
              ),
            ),
        ),
      );
    }
  }

  function linkRow(k) {
    const u = Math.max(data.util[2 * k], data.util[2 * k + 1]);
    return h(
      "li",
      null,
      h("i", { class: "dot", style: { background: r.pal.ramp(r.mode)[r.linkBin[k]] } }),
      h(
        "a",
        {
          href: report ? `${home}?sel=${q(model.portName(model.a[k], model.ap[k]))}` : model.linkPage(k),
          dataset: { k: `l${k}` },
        },
        model.linkName(k),
      ),
      h("span", { class: "num" }, data.state[k] & STATE.notActive ? linkState(k) : percent(u / 1000)),
    );
  }

  // ---- pointer

  const pointers = new Map();
  let dragged = false,
    pinch = 0,
    hoverAt = null;
  canvas.onpointerdown = e => {
    canvas.setPointerCapture(e.pointerId);
    pointers.set(e.pointerId, e);
    dragged = false;
    pinch = 0;
    r.stopFlight();
    tip.hidden = true;
  };
  canvas.onpointermove = e => {
    const was = pointers.get(e.pointerId);
    if (!was) {
      hoverAt = e;
      requestHover();
      return;
    }
    if (pointers.size === 1) {
      if (Math.abs(e.clientX - was.clientX) + Math.abs(e.clientY - was.clientY) > (dragged ? 0 : 4)) {
        r.pan(e.clientX - was.clientX, e.clientY - was.clientY);
        dragged = true;
        pointers.set(e.pointerId, e);
      }
      return;
    }
    pointers.set(e.pointerId, e);
    const [a, b] = [...pointers.values()],
      d = Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY),
      box = canvas.getBoundingClientRect();
    if (pinch) r.zoom(d / pinch, (a.clientX + b.clientX) / 2 - box.left, (a.clientY + b.clientY) / 2 - box.top);
    pinch = d;
    dragged = true;
  };
  canvas.onpointerup = e => {
    pointers.delete(e.pointerId);
    if (dragged || e.button) return;
    const box = canvas.getBoundingClientRect(),
      what = r.hit(e.clientX - box.left, e.clientY - box.top);
    clearRoute();
    select(what);
  };
  canvas.onpointercancel = e => pointers.delete(e.pointerId);
  canvas.onpointerleave = () => {
    hoverAt = null;
    tip.hidden = true;
    if (r.hover) {
      r.hover = null;
      r.overlay();
    }
  };
  canvas.ondblclick = e => {
    const box = canvas.getBoundingClientRect(),
      what = r.hit(e.clientX - box.left, e.clientY - box.top);
    if (what?.kind === "group") show(what);
    else r.zoom(2, e.clientX - box.left, e.clientY - box.top);
  };
  canvas.onwheel = e => {
    e.preventDefault();
    const box = canvas.getBoundingClientRect(),
      unit = e.deltaMode === 1 ? 16 : e.deltaMode === 2 ? 400 : 1;
    r.zoom(
      Math.exp(-Math.max(-240, Math.min(240, e.deltaY * unit)) * (e.ctrlKey ? 0.01 : 0.0022)),
      e.clientX - box.left,
      e.clientY - box.top,
    );
  };
  let hoverPending = false;
  function requestHover() {
    if (hoverPending) return;
    hoverPending = true;
    requestAnimationFrame(() => {
      hoverPending = false;
      if (!hoverAt || signal.aborted) return;
      const box = canvas.getBoundingClientRect(),
        px = hoverAt.clientX - box.left,
        py = hoverAt.clientY - box.top;
      const what = r.hit(px, py);
      if (what?.kind !== r.hover?.kind || what?.i !== r.hover?.i) {
        r.hover = what;
        r.overlay();
        canvas.style.cursor = what ? "pointer" : "";
      }
      tip.hidden = !what;
      if (what) {
        tip.textContent = describe(what);
        tip.style.left = `${Math.min(px + 14, box.width - 270)}px`;
        tip.style.top = `${py + 18 > box.height - 60 ? py - 44 : py + 18}px`;
      }
    });
  }

  // ---- keys

  // towards finds the closest node in a direction from the selected one.
  function towards(i, dx, dy) {
    const cx = model.x[i] + model.w[i] / 2,
      cy = model.y[i] + model.h[i] / 2;
    let best = -1,
      bestD = Infinity;
    const wide = true,
      try_ = (j, any) => {
        if (j === i) return;
        const x = model.x[j] + model.w[j] / 2 - cx,
          y = model.y[j] + model.h[j] / 2 - cy;
        const along = x * dx + y * dy,
          across = Math.abs(x * dy) + Math.abs(y * dx);
        if (along <= 1 || (!any && across > along * 3 + 120)) return;
        const d = along + across * 2.5;
        if (d < bestD) {
          bestD = d;
          best = j;
        }
      };
    // Up and down follow cables; the other ways, and where no cable leads on, are to what is closest.
    if (dy) for (const k of model.cablesOf(i)) try_(model.far(k, i), wide);
    if (best < 0) for (let j = 0; j < model.count; j++) try_(j, false);
    return best;
  }
  canvas.onkeydown = e => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const arrow = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[e.key];
    if (arrow) {
      e.preventDefault();
      if (r.selected?.kind === "node" && !e.shiftKey) {
        const j = towards(r.selected.i, ...arrow);
        if (j >= 0) {
          select({ kind: "node", i: j });
          keepInView(j);
        }
      } else if (r.selected?.kind === "group" && !e.shiftKey) {
        const j = towardsGroup(r.selected.i, ...arrow);
        if (j >= 0) select({ kind: "group", i: j });
      } else r.pan(-arrow[0] * 70, -arrow[1] * 70);
      return;
    }
    const act = {
      "+": () => r.zoom(1.5),
      "=": () => r.zoom(1.5),
      "-": () => r.zoom(1 / 1.5),
      0: () => r.flyTo(r.fitCamera()),
      Home: () => r.flyTo(r.fitCamera()),
      Escape: () => {
        clearRoute();
        select(null);
      },
      Enter: () => {
        const s = r.selected;
        if (s?.kind === "group") {
          show(s);
          pickMiddle(s);
        } else if (s && !report) go(s.kind === "node" ? model.page(s.i) : model.linkPage(s.i));
        else pickMiddle();
      },
      l: () => {
        if (r.selected?.kind === "node" && model.cablesOf(r.selected.i).length)
          select({ kind: "link", i: model.cablesOf(r.selected.i)[0] });
      },
      c: () => {
        setMode(colours[(colours.findIndex(m => m.id === r.mode) + 1) % colours.length].id);
      },
    }[e.key];
    if (act) {
      e.preventDefault();
      act();
    }
  };
  function pickMiddle(group) {
    if (!group && r.far(r.cam.k)) {
      const near = model.groups
        .map((g, i) => ({ i, d: Math.hypot(g.x + g.w / 2 - r.cam.x, g.y + g.h / 2 - r.cam.y) }))
        .filter(g => !model.groups[g.i].top)
        .sort((a, b) => a.d - b.d)[0];
      if (near) {
        select({ kind: "group", i: near.i });
        return;
      }
    }
    const g = group && model.groups[group.i],
      x = g ? g.x + g.w / 2 : r.cam.x,
      y = g ? g.y + g.h / 2 : r.cam.y;
    let best = -1,
      bestD = Infinity;
    for (let i = 0; i < model.count; i++) {
      const d = Math.hypot(model.x[i] + model.w[i] / 2 - x, model.y[i] + model.h[i] / 2 - y);
      if (d < bestD) {
        bestD = d;
        best = i;
      }
    }
    if (best >= 0) select({ kind: "node", i: best });
  }
  function towardsGroup(i, dx, dy) {
    const from = model.groups[i];
    let best = -1,
      bestD = Infinity;
    model.groups.forEach((g, j) => {
      const x = g.x + g.w / 2 - from.x - from.w / 2,
        y = g.y + g.h / 2 - from.y - from.h / 2,
        along = x * dx + y * dy,
        across = Math.abs(x * dy) + Math.abs(y * dx);
      if (j !== i && along > 1 && along + 2 * across < bestD) {
        bestD = along + 2 * across;
        best = j;
      }
    });
    return best;
  }
  function keepInView(i) {
    const x = r.screenX(model.x[i] + model.w[i] / 2),
      y = r.screenY(model.y[i] + model.h[i] / 2);
    if (x < 60 || y < 60 || x > r.w - 60 || y > r.h - 60)
      r.flyTo({ k: r.cam.k, x: model.x[i] + model.w[i] / 2, y: model.y[i] + model.h[i] / 2 });
  }

  // ---- routes

  function clearRoute() {
    if (!r.routes.length) return;
    r.routes = [];
    showPanel(false);
    goBack();
    history.replaceState(null, "", home);
    r.overlay();
  }
  // A route is flown to; when it goes, the map is again where it was before.
  function goBack() {
    if (r.before) r.setCamera(r.before);
    r.before = null;
  }
  async function showRoute(from, to) {
    r.before ??= { ...r.cam };
    routeBar.elements.from.value = from;
    routeBar.elements.to.value = to;
    showPanel(true);
    const close = h(
      "button",
      {
        type: "button",
        class: "close",
        "aria-label": "Close",
        onclick: () => {
          clearRoute();
          canvas.focus();
        },
      },
      "×",
    );
    fill(
      panel,
      close,
      h("h2", null, `${from} → ${to}`),
      h("p", { class: "dim", role: "status" }, "Asking the administrator and the switches …"),
    );
    try {
      const both = await get(`route?from=${q(from)}&to=${q(to)}`);
      if (signal.aborted) return;
      r.selected = null;
      r.routes = [
        both.there.hops.map(x => x.cable).filter(c => c >= 0),
        both.back.hops.map(x => x.cable).filter(c => c >= 0),
      ];
      fill(panel, close, h("h2", null, `${from} → ${to}`), routeList(both, model));
      said.textContent = both.there.arrives
        ? `Route from ${from} to ${to}, ${plural(both.there.hops.length, "cable")}.`
        : `Nothing arrives: ${both.there.why} at ${both.there.lost}.`;
      const all = r.routes.flat();
      if (all.length) {
        let x0 = Infinity,
          y0 = Infinity,
          x1 = -Infinity,
          y1 = -Infinity;
        for (const c of all)
          for (const i of [model.a[c], model.b[c]]) {
            x0 = Math.min(x0, model.x[i]);
            y0 = Math.min(y0, model.y[i]);
            x1 = Math.max(x1, model.x[i] + model.w[i]);
            y1 = Math.max(y1, model.y[i] + model.h[i]);
          }
        r.flyToBox(x0, y0, x1 - x0, y1 - y0);
      }
      r.overlay();
    } catch (e) {
      fill(
        panel,
        close,
        h("h2", null, `${from} → ${to}`),
        h("p", { class: "error", role: "alert" }, e.message),
        e.next && h("p", { class: "dim" }, e.next),
      );
    }
  }

  // ---- life

  const watch = new ResizeObserver(() => r.resize());
  watch.observe(canvas);
  signal.addEventListener("abort", () => {
    watch.disconnect();
    r.routes = [];
    r.insetRight = 0;
    goBack();
    canvas.onkeydown = null;
  });
  data.on(
    "links",
    () => {
      r.dataChanged();
      if (r.selected && !panel.contains(document.activeElement)) drawPanel();
    },
    signal,
  );
  data.on("status", drawFacts, signal);
  tenants.addEventListener(
    "change",
    () => {
      r.setTenants(tenants.byNode(model));
      if (r.mode === "tenant") drawLegend();
    },
    { signal },
  );
  window.addEventListener(
    "themechange",
    () => {
      r.setTheme();
      drawLegend();
    },
    { signal },
  );
  r.pal = palette();
  r.setTenants(tenants.byNode(model));
  setMode(params.color ?? r.mode);
  drawFacts();
  if (params.route) showRoute(...params.route);
  else {
    r.routes = [];
    const i = params.sel && model.index.get(params.sel);
    const port = params.sel?.match(/^(.*)\[(\d+)\]$/);
    if (i !== undefined && params.sel) select({ kind: "node", i }, true);
    else if (port && model.index.has(port[1])) {
      const node = model.index.get(port[1]),
        k = [...model.cablesOf(node)].find(c => model.portAt(c, node) === Number(port[2]));
      if (k !== undefined) select({ kind: "link", i: k }, true);
    } else drawPanel();
    if (params.sel) canvas.focus({ preventScroll: true });
  }
}
