// What the fabric tells as it happens. One stream for the whole page; it rests while the page cannot be seen, and comes
// back by itself.

export const STATE = { health: 3, notActive: 4, down: 8, slow: 16, fault: 32 };

// unanswered is for how many milliseconds a view waits for one answer. Where the network has changed under the page,
// what was asked before is never answered.
const unanswered = 60000;

class Live extends EventTarget {
  status = null;
  events = [];
  // By cable; by direction where there are two values (what A sends, what B sends).
  state = new Uint8Array(0);
  util = new Uint16Array(0);
  wait = new Uint16Array(0);
  errors = new Uint32Array(0);
  seq = 0;
  at = 0;
  heard = 0;
  connected = false;
  #source = null;
  #lastEvent = 0;

  start(cables) {
    this.state = new Uint8Array(cables);
    this.util = new Uint16Array(2 * cables);
    this.wait = new Uint16Array(2 * cables);
    this.errors = new Uint32Array(2 * cables);
    document.addEventListener("visibilitychange", () => (document.hidden ? this.#close() : this.#open()));
    window.addEventListener("pagehide", () => this.#close());
    setInterval(() => this.#watch(), 1000);
    this.#open();
  }

  // stale is how many milliseconds ago the last word came, beyond what is usual.
  get stale() {
    if (document.hidden || !this.heard) return 0;
    const late = performance.now() - this.heard;
    return late > 12000 ? late : 0;
  }

  get paused() {
    return !this.#source;
  }

  #open() {
    if (this.#source || document.hidden) return;
    const s = new EventSource(`/api/v1/stream?after=${this.#lastEvent}`);
    this.#source = s;
    s.addEventListener("open", () => {
      this.connected = true;
      this.#word();
      this.#tell("connection");
    });
    s.addEventListener("error", () => {
      this.connected = false;
      this.#tell("connection");
      // A browser gives up for good on an answer that is no stream (a proxy's, while the daemon restarts).
      if (s.readyState === EventSource.CLOSED) {
        this.#close();
        setTimeout(() => this.#open(), 3000);
      }
    });
    s.addEventListener("beat", () => this.#word());
    s.addEventListener("links", e => {
      this.#word();
      this.#links(JSON.parse(e.data));
    });
    s.addEventListener("status", e => {
      this.#word();
      this.status = JSON.parse(e.data);
      this.#tell("status");
    });
    s.addEventListener("events", e => {
      const news = JSON.parse(e.data);
      this.#lastEvent = news[news.length - 1].id;
      this.events.push(...news);
      if (this.events.length > 5000) this.events.splice(0, this.events.length - 5000);
      this.#tell("events", news);
    });
  }

  #close() {
    this.#source?.close();
    this.#source = null;
    this.connected = false;
    this.heard = 0;
    this.#tell("connection");
  }

  #word() {
    this.heard = performance.now();
  }

  #watch() {
    if (this.stale) this.#tell("connection");
    // A connection that says nothing for long is none, whatever the browser believes.
    if (this.heard && performance.now() - this.heard > 30000) {
      this.#close();
      this.#open();
    }
  }

  #links(m) {
    if (m.full) {
      this.state.fill(0);
      this.util.fill(0);
      this.wait.fill(0);
      this.errors.fill(0);
    }
    const c = m.c;
    for (let i = 0; i < c.length; i += 8) {
      const k = c[i];
      if (k >= this.state.length) {
        location.reload();
        return;
      } // another fabric is behind the address now
      this.state[k] = c[i + 1];
      this.util[2 * k] = c[i + 2];
      this.util[2 * k + 1] = c[i + 3];
      this.wait[2 * k] = c[i + 4];
      this.wait[2 * k + 1] = c[i + 5];
      this.errors[2 * k] = c[i + 6];
      this.errors[2 * k + 1] = c[i + 7];
    }
    this.seq = m.seq;
    this.at = m.at;
    this.#tell("links", { changed: c.length / 8, full: m.full });
  }

  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }

  // on listens until the signal aborts.
  on(type, f, signal) {
    this.addEventListener(type, e => f(e.detail), { signal });
  }

  // follow loads now and again after each event of the type that is due, until the signal aborts. What it returns
  // loads, too, once something was changed. There is one load at a time: a daemon that answers slower than it has news
  // would otherwise be asked more and more, until the browser has no sockets left. What comes meanwhile is one more
  // load after it.
  follow(type, load, signal, due = () => true) {
    let busy = false,
      more = false;
    const again = async () => {
      more = true;
      if (busy) return;
      busy = true;
      try {
        while (more && !signal.aborted) {
          more = false;
          let timer;
          const late = new Promise(done => (timer = setTimeout(done, unanswered)));
          await Promise.race([load(), late]).finally(() => clearTimeout(timer));
        }
      } finally {
        busy = false;
      }
    };
    this.on(type, () => due() && again(), signal);
    again();
    return again;
  }
}

export const live = new Live();
