// The tenants, as all views know them. They are fetched again when the fabric says that they changed.

import { get } from "./api.js";
import { live } from "./live.js";

class Tenants extends EventTarget {
  list = [];
  problem = null;
  #revision = null;

  start() {
    this.refresh();
    live.on("status", () => {
      if (live.status.tenants_revision !== this.#revision) this.refresh();
    });
  }

  async refresh() {
    this.#revision = live.status?.tenants_revision ?? this.#revision;
    try {
      const a = await get("tenants");
      this.list = a.tenants;
      this.problem = a.problem ?? null;
    } catch (e) {
      this.list = [];
      this.problem = e.message;
    }
    this.dispatchEvent(new Event("change"));
  }

  // byNode is the index of each host's tenant, -1 for none.
  byNode(model) {
    const of = new Int32Array(model.count).fill(-1);
    this.list.forEach((t, n) => {
      for (const name of t.hosts) {
        const i = model.index.get(name);
        if (i !== undefined) of[i] = n;
      }
    });
    return of;
  }
}

export const tenants = new Tenants();
