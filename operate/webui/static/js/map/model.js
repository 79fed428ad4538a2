// The fabric's shape in typed arrays, and what is derived from it once.

export const HOST = 1,
  SWITCH = 2,
  ROUTER = 3;

export class Model {
  constructor(t) {
    this.name = t.name;
    this.kind = t.kind;
    this.version = t.version;
    this.topology = t.topology;
    this.tree = t.tree;
    this.levels = t.levels;
    this.width = t.width;
    this.height = t.height;
    this.hostCount = t.hosts;
    this.switchCount = t.switches;
    this.cellX = t.cellX;
    const n = t.nodes;
    this.names = n.name;
    this.count = n.name.length;
    this.type = Uint8Array.from(n.type);
    this.ports = Uint8Array.from(n.ports);
    this.level = Uint8Array.from(n.level);
    this.group = Int32Array.from(n.group);
    this.x = Float32Array.from(n.x);
    this.y = Float32Array.from(n.y);
    this.w = Float32Array.from(n.w);
    this.h = Float32Array.from(n.h);
    const c = t.cables;
    this.cables = c.count;
    this.a = Int32Array.from(c.a);
    this.ap = Uint8Array.from(c.ap);
    this.b = Int32Array.from(c.b);
    this.bp = Uint8Array.from(c.bp);
    this.rate = Uint8Array.from(c.rate);
    this.rates = t.rates;
    this.groups = t.groups;
    this.index = new Map();
    for (let i = 0; i < this.count; i++) this.index.set(this.names[i], i);
    this.#adjacency();
    this.#lines();
    this.#bundles();
  }

  // near[start[i]..start[i+1]] are the cables of node i.
  #adjacency() {
    const start = new Int32Array(this.count + 1);
    for (let k = 0; k < this.cables; k++) {
      start[this.a[k] + 1]++;
      start[this.b[k] + 1]++;
    }
    for (let i = 0; i < this.count; i++) start[i + 1] += start[i];
    const at = start.slice(0, this.count);
    const near = new Int32Array(2 * this.cables);
    for (let k = 0; k < this.cables; k++) {
      near[at[this.a[k]]++] = k;
      near[at[this.b[k]]++] = k;
    }
    this.start = start;
    this.near = near;
  }

  // hasCable says whether there is one at a port, by its name.
  hasCable(port) {
    const [, name, number] = port.match(/^(.*)\[(\d+)\]$/) ?? [],
      i = this.index.get(name);
    if (i === undefined) return false;
    return this.near
      .subarray(this.start[i], this.start[i + 1])
      .some(k => (this.a[k] === i && this.ap[k] === +number) || (this.b[k] === i && this.bp[k] === +number));
  }

  // Where every cable is drawn: from (x1, y1) to (x2, y2). A host's own cable is a hostLine: 1 is a straight one; 2
  // starts at (x0, y0), runs down beside the column of hosts from (x1, y1), and then into the host at (x2, y2).
  #lines() {
    const n = this.cables;
    this.x1 = new Float32Array(n);
    this.y1 = new Float32Array(n);
    this.x2 = new Float32Array(n);
    this.y2 = new Float32Array(n);
    this.x0 = new Float32Array(n);
    this.y0 = new Float32Array(n);
    this.hostLine = new Uint8Array(n);
    const stacked = new Uint8Array(this.count);
    for (let k = 0; k < n; k++) {
      for (const [host, sw] of [
        [this.a[k], this.b[k]],
        [this.b[k], this.a[k]],
      ]) {
        if (this.type[sw] === SWITCH && this.type[host] !== SWITCH && this.y[host] - this.y[sw] - this.h[sw] >= 100)
          stacked[sw] = 1;
      }
    }
    // A port's place on its node: ports to what stands above on the upper edge, the others on the lower, in the order
    // of their numbers.
    const endX = new Float32Array(2 * n),
      endY = new Float32Array(2 * n);
    for (let i = 0; i < this.count; i++) {
      const up = [],
        down = [];
      for (let j = this.start[i]; j < this.start[i + 1]; j++) {
        const k = this.near[j],
          far = this.a[k] === i ? this.b[k] : this.a[k];
        (this.y[far] < this.y[i] ? up : down).push(k);
      }
      const port = k => (this.a[k] === i ? this.ap[k] : this.bp[k]);
      for (const [list, edge] of [
        [up, 0],
        [down, this.h[i]],
      ]) {
        list.sort((p, q) => port(p) - port(q));
        list.forEach((k, place) => {
          const e = 2 * k + (this.a[k] === i ? 0 : 1);
          endX[e] = this.x[i] + (this.w[i] * (place + 0.5)) / list.length;
          endY[e] = this.y[i] + edge;
        });
      }
    }
    this.endX = endX;
    this.endY = endY;
    for (let k = 0; k < n; k++) {
      this.x1[k] = endX[2 * k];
      this.y1[k] = endY[2 * k];
      this.x2[k] = endX[2 * k + 1];
      this.y2[k] = endY[2 * k + 1];
      const hostEnd = this.type[this.a[k]] !== SWITCH ? 0 : this.type[this.b[k]] !== SWITCH ? 1 : -1;
      if (hostEnd < 0) continue;
      const host = hostEnd ? this.b[k] : this.a[k],
        sw = hostEnd ? this.a[k] : this.b[k];
      if (this.type[sw] !== SWITCH || this.#home(host) !== k) continue;
      this.hostLine[k] = 1;
      const depth = this.y[host] - this.y[sw] - this.h[sw];
      const swEnd = 2 * k + (hostEnd ? 0 : 1);
      this.x0[k] = endX[swEnd];
      this.y0[k] = this.y[sw] + this.h[sw];
      if (depth < 100 && !stacked[sw]) {
        // one row of hosts: straight to each
        this.x1[k] = this.x0[k];
        this.y1[k] = this.y0[k];
        this.x2[k] = this.x[host] + this.w[host] / 2;
        this.y2[k] = this.y[host];
        continue;
      }
      // Hosts farther down have their cables farther out, so that none crosses another's.
      this.hostLine[k] = 2;
      this.x1[k] = this.x[host] - this.cellX * (0.1 + 0.45 * Math.min(1, depth / 1200));
      this.y1[k] = this.y0[k] + 45;
      this.x2[k] = this.x[host];
      this.y2[k] = this.y[host] + this.h[host] / 2;
    }
  }

  // The cable of a host's first port that has one.
  #home(host) {
    let best = -1,
      port = 999;
    for (let j = this.start[host]; j < this.start[host + 1]; j++) {
      const k = this.near[j],
        p = this.a[k] === host ? this.ap[k] : this.bp[k];
      if (p < port) {
        best = k;
        port = p;
      }
    }
    return best;
  }

  home(host) {
    return this.#home(host);
  }

  // Cables between two groups are drawn as one from afar.
  #bundles() {
    const by = new Map(),
      list = [];
    const of = new Int32Array(this.cables).fill(-1);
    for (let k = 0; k < this.cables; k++) {
      let p = this.group[this.a[k]],
        q = this.group[this.b[k]];
      if (p < 0 || q < 0 || p === q) continue;
      if (p > q) [p, q] = [q, p];
      const key = p * this.groups.length + q;
      let i = by.get(key);
      if (i === undefined) {
        i = list.length;
        by.set(key, i);
        list.push({ p, q, count: 0 });
      }
      list[i].count++;
      of[k] = i;
    }
    this.bundles = list;
    this.bundleOf = of;
  }

  portName(node, port) {
    return `${this.names[node]}[${port}]`;
  }
  linkName(k) {
    return `${this.portName(this.a[k], this.ap[k])} ${this.portName(this.b[k], this.bp[k])}`;
  }
  isSwitch(i) {
    return this.type[i] === SWITCH;
  }
  page(i) {
    return `#/${this.isSwitch(i) ? "switch" : "host"}/${encodeURIComponent(this.names[i])}`;
  }
  linkPage(k) {
    return `#/link/${encodeURIComponent(this.portName(this.a[k], this.ap[k]))}`;
  }
  cablesOf(i) {
    return this.near.subarray(this.start[i], this.start[i + 1]);
  }
  far(k, i) {
    return this.a[k] === i ? this.b[k] : this.a[k];
  }
  portAt(k, i) {
    return this.a[k] === i ? this.ap[k] : this.bp[k];
  }
}
