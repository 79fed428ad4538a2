// Draws the map. The picture is made in a bitmap that is larger than the window, in slices of a few milliseconds; a
// frame of panning or zooming only moves and scales the last finished one, so that it takes the same short time
// whatever the size of the fabric. Below it lies the whole map, small, for what the bitmap does not cover yet.

import { STATE } from "../live.js";
import { BINS, DOWN, INACTIVE, badness, linkBins, palette, tenantColor } from "./scales.js";

const SLICE_MS = 7; // of drawing in one frame
const OVERSCAN = 0.25; // of the window, on every side
const UNIT = 100; // hundredths, in which the layout is
const RANK = Uint8Array.from({ length: BINS + 3 }, (_, bin) => badness(bin));
const SEGMENTS = 100; // in one path: long paths are slow to fill

export class Renderer extends EventTarget {
  // data is what is known of the model's cables: live, or a report.
  constructor(canvas, model, data) {
    super();
    this.data = data;
    this.canvas = canvas;
    this.m = model;
    canvas.width = canvas.height = 0; // until its size is known: an empty one would be a black rectangle
    this.ctx = canvas.getContext("2d", { alpha: false });
    this.cam = { x: model.width / 2, y: model.height / 2, k: 0.1 };
    this.mode = "util";
    this.tenantOf = new Int32Array(model.count).fill(-1);
    this.linkBin = new Uint8Array(model.cables);
    this.nodeBin = new Uint8Array(model.count);
    this.bundleBin = new Uint8Array(model.bundles.length);
    this.bundleMean = new Float32Array(model.bundles.length);
    this.groupBin = new Uint8Array(model.groups.length);
    this.selected = null; // {kind: node|link|group, i}
    this.hover = null;
    this.routes = []; // lists of {cable, down} to be drawn on top
    this.front = null;
    this.base = null;
    this.spare = [];
    this.job = null;
    this.want = { picture: true, frame: true, base: true };
    this.frames = 0;
    this.pictures = 0;
    this.pal = palette();
    this.homes = new Int32Array(model.count).fill(-1);
    for (let i = 0; i < model.count; i++) if (!model.isSwitch(i)) this.homes[i] = model.home(i);
    this.recolour();
  }

  // ---- size, camera, state

  resize() {
    const box = this.canvas.getBoundingClientRect();
    if (!box.width || !box.height) return;
    const dpr = Math.min(window.devicePixelRatio || 1, 2);
    const first = !this.w;
    this.w = box.width;
    this.h = box.height;
    this.dpr = dpr;
    this.canvas.width = Math.round(box.width * dpr);
    this.canvas.height = Math.round(box.height * dpr);
    this.spare = [];
    if (first) this.fit();
    this.invalidate();
    this.paint(); // at once: a canvas that was given another size is black until then
  }

  get fitScale() {
    const pad = Math.min(40, this.w * 0.03);
    return Math.min(
      (this.w - 2 * pad - this.insetRight) / this.m.width,
      (this.h - 2 * pad - this.insetTop - this.insetBottom) / this.m.height,
      1.6,
    );
  }

  // What lies over the canvas at its edges.
  insetTop = 56;
  insetBottom = 60;
  insetRight = 0;

  fitCamera() {
    const k = this.fitScale;
    return {
      k,
      x: this.m.width / 2 + this.insetRight / 2 / k,
      y: this.m.height / 2 - (this.insetTop - this.insetBottom) / 2 / k,
    };
  }

  fit() {
    this.setCamera(this.fitCamera());
  }

  // setCamera ends a flight: who moves the map while it flies means to be there, not where the flight leads.
  setCamera(c) {
    this.stopFlight();
    const low = this.fitScale * 0.6,
      high = 9;
    const k = Math.max(low, Math.min(high, c.k));
    const mx = this.w / k / 2,
      my = this.h / k / 2;
    this.cam = {
      k,
      x: Math.max(-mx * 0.6, Math.min(this.m.width + mx * 0.6, c.x)),
      y: Math.max(-my * 0.6, Math.min(this.m.height + my * 0.6, c.y)),
    };
    this.moved = performance.now();
    this.want.picture = true;
    this.frame();
    this.dispatchEvent(new Event("camera"));
  }

  pan(dx, dy) {
    this.setCamera({ ...this.cam, x: this.cam.x - dx / this.cam.k, y: this.cam.y - dy / this.cam.k });
  }

  zoom(factor, px = this.w / 2, py = this.h / 2) {
    const { k } = this.cam,
      wx = this.worldX(px),
      wy = this.worldY(py);
    const next = Math.max(this.fitScale * 0.6, Math.min(9, k * factor));
    this.setCamera({ k: next, x: wx - (px - this.w / 2) / next, y: wy - (py - this.h / 2) / next });
  }

  worldX(px) {
    return (px - this.w / 2) / this.cam.k + this.cam.x;
  }
  worldY(py) {
    return (py - this.h / 2) / this.cam.k + this.cam.y;
  }
  screenX(x) {
    return (x - this.cam.x) * this.cam.k + this.w / 2;
  }
  screenY(y) {
    return (y - this.cam.y) * this.cam.k + this.h / 2;
  }

  // flyTo moves there, smoothly unless people do not want that.
  flyTo(target, done) {
    this.stopFlight();
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
      this.setCamera(target);
      done?.();
      return;
    }
    const from = { ...this.cam },
      t0 = performance.now(),
      ms = 420;
    const go = t => {
      const p = Math.min(1, Math.max(0, (t - t0) / ms)),
        e = p < 0.5 ? 2 * p * p : 1 - (2 - 2 * p) ** 2 / 2;
      const k = from.k * (target.k / from.k) ** e;
      // Straight lines on the screen, not in the world: the place follows the scale.
      const f = target.k === from.k ? e : (1 / from.k - 1 / k) / (1 / from.k - 1 / target.k);
      this.setCamera({ k, x: from.x + (target.x - from.x) * f, y: from.y + (target.y - from.y) * f });
      if (p < 1) this.flight = requestAnimationFrame(go);
      else done?.();
    };
    this.flight = requestAnimationFrame(go);
  }

  stopFlight() {
    cancelAnimationFrame(this.flight);
  }

  flyToNode(i, scale) {
    const { x, y, w, h } = this.m;
    const k =
      scale ?? Math.max(this.cam.k, this.m.isSwitch(i) ? Math.min(0.9, (0.6 * this.w) / Math.max(w[i], 300)) : 0.8);
    this.flyTo({ k, x: x[i] + w[i] / 2 + this.insetRight / 2 / k, y: y[i] + h[i] / 2 });
  }

  flyToBox(x, y, w, h) {
    const k = Math.min(
      ((this.w - this.insetRight) * 0.9) / Math.max(w, 200),
      ((this.h - this.insetTop - this.insetBottom) * 0.9) / Math.max(h, 200),
      2,
    );
    this.flyTo({
      k,
      x: x + w / 2 + this.insetRight / 2 / k,
      y: y + h / 2 - (this.insetTop - this.insetBottom) / 2 / k,
    });
  }

  setTheme() {
    this.pal = palette();
    this.invalidate();
  }
  setMode(mode) {
    this.mode = mode;
    this.recolour();
    this.invalidate();
  }
  setTenants(of) {
    this.tenantOf = of;
    this.recolour();
    this.invalidate();
  }
  invalidate() {
    this.want.picture = true;
    this.want.base = true;
    this.stale = true;
    this.frame();
  }
  overlay() {
    this.frame();
  }

  // dataChanged takes over new numbers; nothing is drawn if no colour has changed.
  dataChanged() {
    if (this.recolour()) this.invalidate();
  }

  recolour() {
    const { m } = this,
      old = this.linkBin;
    const bins = new Uint8Array(m.cables);
    linkBins(this.mode, this.data, bins);
    let changed = this.lastMode !== this.mode || this.lastTenants !== this.tenantOf;
    for (let k = 0; k < bins.length && !changed; k++) changed = bins[k] !== old[k];
    const faults = this.faultCount();
    if (!changed && faults === this.lastFaults) return false;
    this.lastMode = this.mode;
    this.lastTenants = this.tenantOf;
    this.lastFaults = faults;
    this.linkBin = bins;
    this.nodeBin.fill(0);
    this.bundleBin.fill(0);
    this.groupBin.fill(0);
    this.bundleMean.fill(0);
    // Down is the worst, not active comes next, then the scale: the order of the bins but for these two.
    const rank = RANK,
      { a, b, group, bundleOf } = m,
      { nodeBin, bundleBin, groupBin, bundleMean } = this;
    for (let k = 0; k < bins.length; k++) {
      const bin = bins[k];
      if (!bin) continue;
      const p = a[k],
        q = b[k],
        r = rank[bin],
        g = bundleOf[k],
        gp = group[p],
        gq = group[q];
      if (r > rank[nodeBin[p]]) nodeBin[p] = bin;
      if (r > rank[nodeBin[q]]) nodeBin[q] = bin;
      if (gp >= 0 && r > rank[groupBin[gp]]) groupBin[gp] = bin;
      if (gq >= 0 && r > rank[groupBin[gq]]) groupBin[gq] = bin;
      if (g < 0) continue;
      if (r > rank[bundleBin[g]]) bundleBin[g] = bin;
      if (bin < BINS) bundleMean[g] += bin / m.bundles[g].count;
    }
    return true;
  }

  faultCount() {
    let sum = 0;
    const { state } = this.data;
    for (let k = 0; k < state.length; k++) if (state[k] & STATE.fault) sum = (sum * 31 + k + 1) | 0;
    return sum;
  }

  // ---- frames

  frame() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.paint();
    });
  }

  paint() {
    if (!this.w) return;
    const t0 = performance.now();
    const { ctx, cam, dpr } = this;
    this.work(t0);
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.fillStyle = this.pal.bg;
    ctx.fillRect(0, 0, this.canvas.width, this.canvas.height);
    ctx.imageSmoothingEnabled = true;
    ctx.imageSmoothingQuality = "low";
    if (!this.base && !this.front) this.sketch();
    if (this.base && !(this.front && this.covers(this.front))) this.blit(this.base);
    if (this.front) this.blit(this.front);
    ctx.setTransform(dpr, 0, 0, dpr, 0, 0);
    this.drawOverlay(ctx, cam);
    this.frames++;
    this.lastPaint = performance.now() - t0;
    if (this.job || this.want.picture || this.want.base) this.frame();
  }

  // sketch is what is seen until the first picture is there: where things will be, and that there is something to wait
  // for.
  sketch() {
    const { ctx, m, pal, cam, dpr } = this;
    ctx.setTransform(dpr, 0, 0, dpr, 0, 0);
    ctx.fillStyle = pal.tile;
    ctx.strokeStyle = pal.tileLine;
    const box = (x, y, w, h) => {
      ctx.fillRect(this.screenX(x), this.screenY(y), w * cam.k, h * cam.k);
      ctx.strokeRect(this.screenX(x), this.screenY(y), w * cam.k, h * cam.k);
    };
    if (m.groups.length) for (const g of m.groups) box(g.x, g.y, g.w, g.h);
    else
      for (let i = 0, n = 0; i < m.count && n < SEGMENTS; i++)
        if (m.isSwitch(i)) {
          box(m.x[i], m.y[i], m.w[i], m.h[i]);
          n++;
        }
    ctx.fillStyle = pal.text;
    ctx.font = `14px ${pal.font}`;
    ctx.textAlign = "center";
    ctx.textBaseline = "middle";
    ctx.fillText(`Drawing ${m.hostCount.toLocaleString("en-US")} hosts …`, this.w / 2, this.insetTop + 14);
    if (!this.sketched) {
      this.sketched = performance.now();
      performance.mark("map-sketched");
    }
  }

  covers(b) {
    const { cam } = this;
    const hw = this.w / cam.k / 2,
      hh = this.h / cam.k / 2,
      bw = b.w / b.cam.k / 2,
      bh = b.h / b.cam.k / 2;
    return (
      cam.x - hw >= b.cam.x - bw &&
      cam.x + hw <= b.cam.x + bw &&
      cam.y - hh >= b.cam.y - bh &&
      cam.y + hh <= b.cam.y + bh
    );
  }

  blit(b) {
    const { ctx, cam, dpr } = this,
      s = cam.k / b.cam.k;
    const w = b.w * s,
      h = b.h * s;
    const x = (b.cam.x - cam.x) * cam.k + this.w / 2 - w / 2,
      y = (b.cam.y - cam.y) * cam.k + this.h / 2 - h / 2;
    // Only what is seen of it: scaling a bitmap far beyond the window is slow.
    const x0 = Math.max(x, 0),
      y0 = Math.max(y, 0),
      x1 = Math.min(x + w, this.w),
      y1 = Math.min(y + h, this.h);
    if (x1 <= x0 || y1 <= y0) return;
    const f = b.dpr / s;
    let sx = (x0 - x) * f,
      sy = (y0 - y) * f,
      sw = (x1 - x0) * f,
      sh = (y1 - y0) * f;
    let dx = x0 * dpr,
      dy = y0 * dpr,
      dw = (x1 - x0) * dpr,
      dh = (y1 - y0) * dpr;
    if (s === 1) {
      // whole pixels, so that nothing blurs
      sx = Math.round(sx);
      sy = Math.round(sy);
      sw = Math.round(sw);
      sh = Math.round(sh);
      dx = Math.round(dx);
      dy = Math.round(dy);
      dw = sw;
      dh = sh;
    }
    ctx.drawImage(b.canvas, sx, sy, sw, sh, dx, dy, dw, dh);
  }

  // work goes on with the picture that is being made, for as long as a frame leaves time.
  work(t0) {
    const idle = t0 - (this.moved ?? 0) > 70;
    if (this.job && this.stale && !this.job.base) {
      this.recycle(this.job.canvas);
      this.job = null;
    }
    if (!this.job) {
      const off = !this.front || !this.covers(this.front);
      if (this.want.picture && (idle || off || !this.front)) {
        this.want.picture = false;
        this.stale = false;
        this.begin({ ...this.cam }, this.w * (1 + 2 * OVERSCAN), this.h * (1 + 2 * OVERSCAN), this.dpr, false);
      } else if (this.want.base && idle && !this.want.picture) {
        this.want.base = false;
        const k = Math.min(this.fitScale, 1600 / this.m.width, 1000 / this.m.height);
        this.begin(
          { k, x: this.m.width / 2, y: this.m.height / 2 },
          this.m.width * k * 1.05,
          this.m.height * k * 1.05,
          1,
          true,
        );
      } else return;
    }
    const job = this.job;
    let done,
      n = 0;
    do {
      done = job.steps.next().done;
      // A canvas only notes what is to be drawn. Asking for a pixel has it drawn now, so that the time it takes is
      // seen, and not later all at once.
      if (done || ++n % 2 === 0) job.ctx.getImageData(0, 0, 1, 1);
    } while (!done && performance.now() - t0 < SLICE_MS);
    if (!done) return;
    this.job = null;
    const picture = { canvas: job.canvas, cam: job.cam, w: job.w, h: job.h, dpr: job.dpr };
    if (job.base) {
      if (this.base) this.recycle(this.base.canvas);
      this.base = picture;
      return;
    }
    if (this.front) this.recycle(this.front.canvas);
    this.front = picture;
    this.pictures++;
    const moved = picture.cam.x !== this.cam.x || picture.cam.y !== this.cam.y || picture.cam.k !== this.cam.k;
    if (moved) this.want.picture = true;
    if (!this.ready) {
      this.ready = performance.now();
      performance.mark("map-ready");
      this.dispatchEvent(new Event("ready"));
    }
  }

  recycle(canvas) {
    if (this.spare.length < 2) this.spare.push(canvas);
  }

  begin(cam, w, h, dpr, base) {
    const pw = Math.ceil(w * dpr),
      ph = Math.ceil(h * dpr);
    const at = this.spare.findIndex(c => c.width === pw && c.height === ph);
    let canvas;
    if (at >= 0) canvas = this.spare.splice(at, 1)[0];
    else {
      canvas = document.createElement("canvas");
      canvas.width = pw;
      canvas.height = ph;
    }
    const ctx = canvas.getContext("2d", { alpha: false, willReadFrequently: true });
    ctx.reset(); // one that was given up left its colours and dashes behind
    ctx.fillStyle = this.pal.bg;
    ctx.fillRect(0, 0, pw, ph);
    ctx.setTransform(dpr, 0, 0, dpr, 0, 0);
    w = pw / dpr;
    h = ph / dpr;
    this.job = { canvas, ctx, cam, w, h, dpr, base, steps: this.picture(ctx, cam, w, h, dpr) };
  }

  // ---- the picture

  // far is whether groups are drawn as one at a scale.
  far(k) {
    return this.m.groups.length > 0 && k * UNIT < 13;
  }

  *picture(ctx, cam, w, h, dpr) {
    const { m, pal } = this,
      k = cam.k,
      ppu = k * UNIT;
    const sx = x => (x - cam.x) * k + w / 2,
      sy = y => (y - cam.y) * k + h / 2;
    const view = { x0: cam.x - w / 2 / k, y0: cam.y - h / 2 / k, x1: cam.x + w / 2 / k, y1: cam.y + h / 2 / k };
    const ramp = pal.ramp(this.mode);
    const env = { ctx, k, ppu, sx, sy, view, ramp, dpr };
    const far = this.far(k);
    if (far) yield* this.drawBundles(env);
    yield* this.drawGroups(env);
    if (!far) yield* this.drawLinks(env);
    if (ppu >= 20) yield* this.drawHostLinks(env);
    yield* this.drawNodes(env);
    this.drawGroupLabels(env);
  }

  // strokes draws line segments, sorted by their bins, quiet ones first.
  *strokes(env, count, binOf, trace, { width, alpha, gain = 0.09 }) {
    const { ctx, ramp } = env;
    const byBin = Array.from({ length: BINS + 2 }, () => []);
    for (let i = 0; i < count; i++) {
      const b = binOf(i);
      if (b !== 255) byBin[b].push(i);
    }
    yield;
    const order = [...Array(BINS).keys(), INACTIVE, DOWN];
    for (const bin of order) {
      const list = byBin[bin];
      if (!list.length) continue;
      ctx.strokeStyle = ramp[bin];
      ctx.lineWidth =
        bin === 0 ? Math.min(width, 1) : bin >= BINS ? Math.max(1.4, width * 1.4) : width * (1 + bin * gain);
      ctx.globalAlpha = bin === 0 ? alpha : bin >= BINS ? 1 : Math.min(1, alpha + (gain ? 0.15 : 0.05) + bin * gain);
      ctx.setLineDash(bin === DOWN ? [5, 4] : bin === INACTIVE ? [2, 3] : []);
      for (let i = 0; i < list.length;) {
        ctx.beginPath();
        for (const end = Math.min(list.length, i + SEGMENTS); i < end; i++) trace(list[i]);
        ctx.stroke();
        yield;
      }
    }
    ctx.globalAlpha = 1;
    ctx.setLineDash([]);
  }

  *drawBundles(env) {
    const { m } = this,
      { ctx, sx, sy, k } = env;
    const place = (g, other) => {
      const p = m.groups[g];
      const below = other.y > p.y + p.h;
      return [sx(p.x + p.w / 2), sy(below ? p.y + p.h : p.y)];
    };
    // The worst cable of a bundle gives the colour, the mean of them how loud it is: one hot cable among many is a thin
    // bright line.
    const many = m.bundles.length > 300;
    for (let loud = 0; loud < 4; loud++) {
      yield* this.strokes(
        env,
        m.bundles.length,
        i =>
          Math.min(3, Math.floor(this.bundleMean[i] / 2.4)) === loud || (this.bundleBin[i] >= BINS && loud === 3)
            ? this.bundleBin[i]
            : 255,
        i => {
          const { p, q } = m.bundles[i],
            [x1, y1] = place(p, m.groups[q]),
            [x2, y2] = place(q, m.groups[p]),
            mid = (y1 + y2) / 2;
          ctx.moveTo(x1, y1);
          if (m.tree) ctx.bezierCurveTo(x1, mid, x2, mid, x2, y2);
          else ctx.lineTo(x2, y2);
        },
        { width: (many ? 0.5 : 0.9) + loud * 0.35, alpha: (many ? 0.22 : 0.5) + loud * 0.12, gain: many ? 0 : 0.05 },
      );
    }
    // Cables of nodes that are in no group.
    yield* this.drawLinks(env, true);
  }

  *drawLinks(env, onlyUngrouped) {
    const { m } = this,
      { ctx, sx, sy, view, ppu } = env,
      bins = this.linkBin;
    const dense = m.cables > 4000 && ppu < 30,
      stub = 110,
      stubs = m.cables > 1500;
    const inside = (x, y) => x > view.x0 - stub && x < view.x1 + stub && y > view.y0 - stub && y < view.y1 + stub;
    yield* this.strokes(
      env,
      m.cables,
      i => {
        if (m.hostLine[i] || (onlyUngrouped && m.bundleOf[i] >= 0)) return 255;
        if (onlyUngrouped && m.group[m.a[i]] >= 0) return 255;
        const x1 = m.x1[i],
          x2 = m.x2[i],
          y1 = m.y1[i],
          y2 = m.y2[i];
        if (stubs && m.bundleOf[i] >= 0) return inside(x1, y1) || inside(x2, y2) ? bins[i] : 255;
        if (
          Math.max(x1, x2) < view.x0 ||
          Math.min(x1, x2) > view.x1 ||
          Math.max(y1, y2) < view.y0 ||
          Math.min(y1, y2) > view.y1
        )
          return 255;
        return bins[i];
      },
      i => {
        if (!stubs || m.bundleOf[i] < 0) {
          ctx.moveTo(sx(m.x1[i]), sy(m.y1[i]));
          ctx.lineTo(sx(m.x2[i]), sy(m.y2[i]));
          return;
        }
        // A cable to another group would run across all that lies between: what is drawn is where it leaves, and the
        // rest when it is selected.
        const dx = m.x2[i] - m.x1[i],
          dy = m.y2[i] - m.y1[i],
          f = stub / Math.max(Math.hypot(dx, dy), stub * 2);
        if (inside(m.x1[i], m.y1[i])) {
          ctx.moveTo(sx(m.x1[i]), sy(m.y1[i]));
          ctx.lineTo(sx(m.x1[i] + dx * f), sy(m.y1[i] + dy * f));
        }
        if (inside(m.x2[i], m.y2[i])) {
          ctx.moveTo(sx(m.x2[i]), sy(m.y2[i]));
          ctx.lineTo(sx(m.x2[i] - dx * f), sy(m.y2[i] - dy * f));
        }
      },
      {
        width: ppu > 200 ? 2.2 : ppu > 60 ? 1.6 : ppu > 25 ? 1.2 : 0.9,
        alpha: dense ? 0.3 : m.cables > 1500 ? 0.45 : 0.75,
      },
    );
  }

  *drawHostLinks(env) {
    const { m } = this,
      { ctx, sx, sy, view, ppu } = env;
    yield* this.strokes(
      env,
      m.cables,
      i => {
        if (!m.hostLine[i]) return 255;
        const x = m.x2[i],
          y = m.y2[i];
        if (x < view.x0 - 400 || x > view.x1 + 400 || y < view.y0 || Math.min(m.y0[i], m.y1[i]) > view.y1) return 255;
        return this.linkBin[i];
      },
      i => {
        if (m.hostLine[i] === 1) {
          ctx.moveTo(sx(m.x1[i]), sy(m.y1[i]));
          ctx.lineTo(sx(m.x2[i]), sy(m.y2[i]));
          return;
        }
        ctx.moveTo(sx(m.x0[i]), sy(m.y0[i]));
        ctx.lineTo(sx(m.x1[i]), sy(m.y1[i]));
        ctx.lineTo(sx(m.x1[i]), sy(m.y2[i]));
        ctx.lineTo(sx(m.x2[i]), sy(m.y2[i]));
      },
      { width: ppu > 200 ? 2 : 1.1, alpha: 0.8 },
    );
  }

  *drawGroups(env) {
    const { m, pal } = this,
      { ctx, sx, sy, k, view, ppu } = env;
    if (!m.groups.length) return;
    const far = this.far(k),
      pad = far ? Math.max(2, 40 * k) : 60 * k;
    for (let i = 0; i < m.groups.length; i++) {
      const g = m.groups[i];
      if (g.top || g.x > view.x1 || g.x + g.w < view.x0 || g.y > view.y1 || g.y + g.h < view.y0) continue;
      const x = sx(g.x) - pad,
        y = sy(g.y) - pad,
        w = g.w * k + 2 * pad,
        h = g.h * k + 2 * pad;
      ctx.fillStyle = pal.tile;
      ctx.globalAlpha = far ? 1 : 0.6;
      ctx.beginPath();
      ctx.roundRect(x, y, w, h, Math.min(6, w * 0.06));
      ctx.fill();
      ctx.globalAlpha = 1;
      ctx.strokeStyle = far && this.groupBin[i] >= BINS ? env.ramp[this.groupBin[i]] : pal.tileLine;
      ctx.lineWidth = far && this.groupBin[i] >= BINS ? 1.6 : 1;
      ctx.stroke();
      if (i % 40 === 39) yield;
    }
    if (far) {
      // within a pod: switch levels as a faint weave, no single cable can be seen
      ctx.globalAlpha = 0.55;
      yield* this.drawInner(env);
      ctx.globalAlpha = 1;
    }
    yield;
  }

  // drawInner shows cables within a group that are not quiet, from afar.
  *drawInner(env) {
    const { m } = this,
      { ctx, sx, sy } = env;
    yield* this.strokes(
      env,
      m.cables,
      i => {
        if (m.hostLine[i] || m.bundleOf[i] >= 0 || !this.linkBin[i] || m.group[m.a[i]] < 0) return 255;
        return this.linkBin[i];
      },
      i => {
        ctx.moveTo(sx(m.x1[i]), sy(m.y1[i]));
        ctx.lineTo(sx(m.x2[i]), sy(m.y2[i]));
      },
      { width: 0.8, alpha: 0.3 },
    );
  }

  nodeColour(i, ramp) {
    const { m, pal } = this;
    if (this.mode === "tenant" && !m.isSwitch(i)) {
      const t = this.tenantOf[i];
      const bin = this.homes[i] >= 0 ? this.linkBin[this.homes[i]] : 0;
      if (bin >= BINS) return ramp[bin];
      return t < 0 ? pal.none : tenantColor(pal, t);
    }
    return ramp[this.nodeBin[i]];
  }

  *drawNodes(env) {
    const { m, pal } = this,
      { ctx, sx, sy, k, view, ppu, ramp } = env;
    // Hosts, by colour: changing it is what costs.
    const hosts = new Map(),
      switches = [];
    for (let i = 0; i < m.count; i++) {
      if (m.x[i] > view.x1 || m.x[i] + m.w[i] < view.x0 || m.y[i] > view.y1 || m.y[i] + m.h[i] < view.y0) continue;
      if (m.isSwitch(i)) {
        switches.push(i);
        continue;
      }
      const c = this.nodeColour(i, ramp);
      let list = hosts.get(c);
      if (!list) hosts.set(c, (list = []));
      list.push(i);
    }
    yield;
    let n = 0;
    const labels = m.w.length && 78 * k >= 24 && 44 * k >= 9;
    for (const [colour, list] of hosts) {
      ctx.fillStyle = colour;
      for (const i of list) {
        const w = m.w[i] * k,
          h = m.h[i] * k;
        if (labels) {
          ctx.beginPath();
          ctx.roundRect(sx(m.x[i]), sy(m.y[i]), w, h, Math.min(4, h / 4));
          ctx.fill();
        } else ctx.fillRect(sx(m.x[i]), sy(m.y[i]), Math.max(w, 1), Math.max(h, 1));
        if (++n % 400 === 0) {
          yield;
          ctx.fillStyle = colour;
        }
      }
      if (!labels) continue;
      const size = Math.min(13, Math.max(8, 44 * k * 0.52));
      ctx.font = `${size}px ${pal.font}`;
      ctx.textAlign = "center";
      ctx.textBaseline = "middle";
      ctx.fillStyle = inkOn(colour);
      for (const i of list) {
        const text = fitName(ctx, m.names[i], m.w[i] * k - 4);
        if (text) ctx.fillText(text, sx(m.x[i]) + (m.w[i] * k) / 2, sy(m.y[i]) + (m.h[i] * k) / 2 + 0.5);
        if (++n % 60 === 0) {
          yield;
          ctx.fillStyle = inkOn(colour);
          ctx.font = `${size}px ${pal.font}`;
          ctx.textAlign = "center";
          ctx.textBaseline = "middle";
        }
      }
    }
    for (const i of switches) {
      this.drawSwitch(env, i);
      if (++n % 60 === 0) yield;
    }
  }

  drawSwitch(env, i) {
    const { m, pal } = this,
      { ctx, sx, sy, k, ramp } = env;
    const x = sx(m.x[i]),
      y = sy(m.y[i]),
      w = m.w[i] * k,
      h = m.h[i] * k,
      bin = this.nodeBin[i];
    if (w < 7) {
      // a dash in its colour
      ctx.fillStyle = bin ? ramp[bin] : pal.boxLine;
      ctx.fillRect(x, y, Math.max(w, 1), Math.max(h, m.level[i] === m.levels ? 5 : 2));
      return;
    }
    ctx.beginPath();
    ctx.roundRect(x, y, w, h, Math.min(5, h / 4));
    ctx.fillStyle = pal.box;
    ctx.fill();
    ctx.lineWidth = bin >= BINS ? 2 : 1.2;
    ctx.strokeStyle = bin ? ramp[bin] : pal.boxLine;
    ctx.stroke();
    const ports = m.ports[i],
      pitch = w / Math.max(1, Math.ceil(ports / 2));
    const portsShown = pitch >= 9 && h >= 34;
    if (portsShown) this.drawPorts(env, i, x, y, w, h);
    if (h >= 9 && w >= 16) {
      const size = Math.min(14, Math.max(8, h * (portsShown ? 0.26 : 0.5)));
      ctx.font = `600 ${size}px ${pal.font}`;
      ctx.textAlign = "center";
      ctx.textBaseline = "middle";
      ctx.fillStyle = pal.text;
      const text = fitName(ctx, m.names[i], w - 4);
      if (text) ctx.fillText(text, x + w / 2, y + h / 2 + 0.5);
    }
  }

  // drawPorts draws each port where its cable ends, in the cable's colour.
  drawPorts(env, i, x, y, w, h) {
    const { m, pal } = this,
      { ctx, sx, ramp } = env;
    const list = m.cablesOf(i);
    let up = 0,
      down = 0;
    for (const k of list) m.y[m.far(k, i)] < m.y[i] ? up++ : down++;
    const size = Math.min(h * 0.24, (w / Math.max(up, down, 1)) * 0.8, 26);
    ctx.textAlign = "center";
    ctx.textBaseline = "middle";
    ctx.font = `${Math.max(6, size * 0.55)}px ${pal.font}`;
    for (const k of list) {
      const e = 2 * k + (m.a[k] === i ? 0 : 1),
        top = m.y[m.far(k, i)] < m.y[i];
      const px = sx(m.endX[e]) - size / 2,
        py = top ? y : y + h - size;
      ctx.fillStyle = ramp[this.linkBin[k]];
      ctx.fillRect(px, py, size, size);
      if (size >= 10) {
        ctx.fillStyle = inkOn(ramp[this.linkBin[k]]);
        ctx.fillText(String(m.portAt(k, i)), px + size / 2, py + size / 2 + 0.5);
      }
    }
  }

  drawGroupLabels(env) {
    const { m, pal } = this,
      { ctx, sx, sy, k } = env;
    for (const g of m.groups) {
      const w = g.w * k;
      if (g.top || w < 22) continue;
      const size = Math.max(9, Math.min(13, w * 0.13));
      ctx.font = `600 ${size}px ${pal.font}`;
      ctx.textAlign = "left";
      ctx.textBaseline = "alphabetic";
      ctx.fillStyle = pal.text;
      const pad = this.far(k) ? Math.max(2, 40 * k) : 60 * k,
        y = sy(g.y) - pad - 3;
      const text = clip(ctx, g.name, w + pad);
      ctx.fillStyle = pal.bg;
      ctx.globalAlpha = 0.85;
      ctx.fillRect(sx(g.x) - pad, y - size, w + 2 * pad, size + 3);
      ctx.globalAlpha = 1;
      ctx.fillStyle = pal.text;
      if (text) ctx.fillText(text, sx(g.x) - pad + 1, y);
      if (w < 90) continue;
      ctx.font = `${Math.max(9, size - 2)}px ${pal.font}`;
      ctx.textAlign = "right";
      ctx.fillStyle = pal.dim;
      ctx.fillText(`${g.hosts} hosts`, sx(g.x + g.w) + pad - 1, y);
    }
  }

  // ---- what is on top: selection, routes, faults. Few things, drawn in every frame.

  drawOverlay(ctx, cam) {
    const { m, pal } = this,
      ppu = cam.k * UNIT;
    this.drawFaults(ctx, ppu);
    this.routes.forEach((r, n) => {
      ctx.strokeStyle = pal.route[n % 2];
      ctx.lineWidth = 3.2;
      ctx.lineJoin = ctx.lineCap = "round";
      ctx.setLineDash(n % 2 ? [9, 7] : []);
      ctx.beginPath();
      for (const c of r) this.traceLink(ctx, c, n % 2 ? 2 : -2);
      ctx.stroke();
      ctx.setLineDash([]);
      ctx.lineCap = "butt";
    });
    const ends = new Set(this.routes.flat().flatMap(c => [m.a[c], m.b[c]]));
    for (const i of ends) this.ring(ctx, i, pal.route[0], 1.5, true);
    if (this.hover) this.mark(ctx, this.hover, pal.dim, 1.5);
    if (this.selected) this.mark(ctx, this.selected, pal.accent, 2.5);
  }

  traceLink(ctx, c, shift = 0) {
    const { m } = this,
      X = x => this.screenX(x) + shift,
      Y = y => this.screenY(y);
    if (m.hostLine[c] === 2) {
      ctx.moveTo(X(m.x0[c]), Y(m.y0[c]));
      ctx.lineTo(X(m.x1[c]), Y(m.y1[c]));
      ctx.lineTo(X(m.x1[c]), Y(m.y2[c]));
      ctx.lineTo(X(m.x2[c]), Y(m.y2[c]));
    } else {
      ctx.moveTo(X(m.x1[c]), Y(m.y1[c]));
      ctx.lineTo(X(m.x2[c]), Y(m.y2[c]));
    }
  }

  mark(ctx, what, colour, width) {
    const { m } = this;
    if (what.kind === "node") {
      this.ring(ctx, what.i, colour, width, true);
      if (what !== this.selected) return;
      // Its cables, so that one sees where it leads: wider, and in their own colours, or an idle one would look as if
      // it were used.
      const list = m.cablesOf(what.i),
        ramp = this.pal.ramp(this.mode);
      if (list.length > 260) return;
      ctx.lineWidth = 2;
      for (const bin of new Set(Array.from(list, c => this.linkBin[c]))) {
        ctx.strokeStyle = ramp[bin];
        ctx.beginPath();
        for (const c of list) if (this.linkBin[c] === bin) this.traceLink(ctx, c);
        ctx.stroke();
      }
    } else if (what.kind === "link") {
      ctx.strokeStyle = colour;
      ctx.lineWidth = width + 1.5;
      ctx.beginPath();
      this.traceLink(ctx, what.i);
      ctx.stroke();
      this.ring(ctx, m.a[what.i], colour, 1, true);
      this.ring(ctx, m.b[what.i], colour, 1, true);
    } else if (what.kind === "group") {
      const g = m.groups[what.i],
        k = this.cam.k,
        pad = Math.max(2, 40 * k);
      ctx.strokeStyle = colour;
      ctx.lineWidth = width;
      ctx.strokeRect(this.screenX(g.x) - pad, this.screenY(g.y) - pad, g.w * k + 2 * pad, g.h * k + 2 * pad);
    }
  }

  ring(ctx, i, colour, width) {
    const { m } = this,
      k = this.cam.k;
    const x = this.screenX(m.x[i]),
      y = this.screenY(m.y[i]),
      w = m.w[i] * k,
      h = m.h[i] * k;
    ctx.strokeStyle = colour;
    ctx.lineWidth = width;
    ctx.beginPath();
    if (w < 10) ctx.arc(x + w / 2, y + h / 2, 7, 0, 7);
    else ctx.roundRect(x - 2, y - 2, w + 4, h + 4, 5);
    ctx.stroke();
  }

  // drawFaults marks links with a rehearsed fault, and those that are down, in the middle: a colour alone would not do.
  drawFaults(ctx, ppu) {
    const { m, pal } = this;
    let shown = 0;
    for (let c = 0; c < m.cables && shown < 400; c++) {
      const s = this.data.state[c];
      if (!(s & (STATE.fault | STATE.down))) continue;
      const x = this.screenX((m.x1[c] + m.x2[c]) / 2),
        y = this.screenY(m.hostLine[c] === 2 ? m.y2[c] : (m.y1[c] + m.y2[c]) / 2);
      if (x < -20 || y < -20 || x > this.w + 20 || y > this.h + 20) continue;
      shown++;
      const r = ppu > 25 ? 6.5 : 5;
      ctx.lineWidth = 1.8;
      if (s & STATE.fault) {
        ctx.fillStyle = pal.fault;
        ctx.beginPath();
        ctx.moveTo(x, y - r - 1);
        ctx.lineTo(x + r + 1, y + r - 1);
        ctx.lineTo(x - r - 1, y + r - 1);
        ctx.closePath();
        ctx.fill();
        ctx.strokeStyle = pal.bg;
        ctx.beginPath();
        ctx.moveTo(x, y - r / 2.4);
        ctx.lineTo(x, y + r / 6);
        ctx.moveTo(x, y + r / 2);
        ctx.lineTo(x, y + r / 2 + 1);
        ctx.stroke();
      } else {
        ctx.strokeStyle = pal.down;
        ctx.beginPath();
        ctx.moveTo(x - r / 1.6, y - r / 1.6);
        ctx.lineTo(x + r / 1.6, y + r / 1.6);
        ctx.moveTo(x + r / 1.6, y - r / 1.6);
        ctx.lineTo(x - r / 1.6, y + r / 1.6);
        ctx.stroke();
      }
    }
  }

  // ---- what is at a place

  hit(px, py) {
    const { m } = this,
      { k } = this.cam,
      x = this.worldX(px),
      y = this.worldY(py),
      ppu = k * UNIT;
    const slack = 3 / k;
    if (ppu >= 5 || !m.groups.length) {
      let best = -1,
        bestD = Infinity;
      for (let i = 0; i < m.count; i++) {
        const dx = Math.max(m.x[i] - x, 0, x - m.x[i] - m.w[i]),
          dy = Math.max(m.y[i] - y, 0, y - m.y[i] - m.h[i]);
        const d = Math.max(dx, dy);
        if (d < bestD) {
          bestD = d;
          best = i;
        }
      }
      if (best >= 0 && bestD <= slack) return { kind: "node", i: best };
    }
    if (!this.far(k)) {
      let best = -1,
        bestD = 5 / k;
      for (let c = 0; c < m.cables; c++) {
        const d =
          m.hostLine[c] === 2
            ? Math.min(
                segment(x, y, m.x1[c], m.y1[c], m.x1[c], m.y2[c]),
                segment(x, y, m.x1[c], m.y2[c], m.x2[c], m.y2[c]),
              )
            : segment(x, y, m.x1[c], m.y1[c], m.x2[c], m.y2[c]);
        if (d < bestD) {
          bestD = d;
          best = c;
        }
      }
      if (best >= 0) return { kind: "link", i: best };
    }
    for (let i = 0; i < m.groups.length; i++) {
      const g = m.groups[i];
      if (x >= g.x - 60 && x <= g.x + g.w + 60 && y >= g.y - 60 && y <= g.y + g.h + 60) return { kind: "group", i };
    }
    return null;
  }
}

function segment(px, py, x1, y1, x2, y2) {
  const dx = x2 - x1,
    dy = y2 - y1,
    l = dx * dx + dy * dy;
  const t = l ? Math.max(0, Math.min(1, ((px - x1) * dx + (py - y1) * dy) / l)) : 0;
  return Math.hypot(px - x1 - t * dx, py - y1 - t * dy);
}

// inkOn is black or white, whichever is read better on a colour.
const inks = new Map();
function inkOn(colour) {
  let ink = inks.get(colour);
  if (!ink) {
    const n = parseInt(colour.slice(1), 16),
      lin = v => {
        v /= 255;
        return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
      };
    const l = 0.2126 * lin(n >> 16) + 0.7152 * lin((n >> 8) & 255) + 0.0722 * lin(n & 255);
    ink = l > 0.2 ? "#0a0e14" : "#ffffff";
    inks.set(colour, ink);
  }
  return ink;
}

// fitName is a name, or where that has no room its number: leaf20 as 20.
function fitName(ctx, name, width) {
  if (ctx.measureText(name).width <= width) return name;
  const digits = name.match(/\d+$/)?.[0];
  if (!digits) return clip(ctx, name, width);
  return ctx.measureText(digits).width <= width ? digits : "";
}

// clip shortens a text to a width, and gives up where nothing of it would be left.
function clip(ctx, text, width) {
  if (width < 8) return "";
  const est = ctx.measureText(text).width;
  if (est <= width) return text;
  const keep = Math.floor((text.length * width) / est) - 1;
  return keep >= 2 ? text.slice(0, keep) + "…" : "";
}
