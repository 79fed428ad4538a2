// A run of softib sim on the map of its fabric: the file map.json that softib sim -o DIR writes, opened by the reader's
// browser. The fabric of this page knows nothing of it.

import { h, fill } from "../dom.js";
import { Model } from "../map/model.js";
import { mapView } from "./map.js";

// Report has what the map wants to know of cables, as live has.
class Report {
  constructor(file) {
    this.file = file;
    this.model = new Model(file.topology);
    const n = this.model.cables;
    for (const k of ["mean", "peak"])
      if (file[k]?.length !== 2 * n) throw new Error(`it has not two values for each of ${n} cables`);
    this.state = new Uint8Array(n);
    this.wait = new Uint16Array(2 * n);
    this.errors = new Uint32Array(2 * n);
    this.show("mean");
  }

  show(what) {
    this.what = what;
    this.util = Uint16Array.from(this.file[what]);
  }

  on() {} // nothing happens to it any more

  controls(changed) {
    const choose = h(
      "div",
      { class: "segmented", role: "group", "aria-label": "Use of links" },
      [
        ["mean", "Whole run"],
        ["peak", "Busiest moment"],
      ].map(([what, text]) =>
        h(
          "button",
          {
            type: "button",
            "aria-pressed": this.what === what,
            onclick: e => {
              this.show(what);
              for (const b of choose.children) b.setAttribute("aria-pressed", b === e.currentTarget);
              changed();
            },
          },
          text,
        ),
      ),
    );
    return [
      choose,
      h(
        "button",
        {
          type: "button",
          onclick: () => {
            report = null;
            window.dispatchEvent(new HashChangeEvent("hashchange", { newURL: location.href }));
          },
        },
        "Another report",
      ),
    ];
  }

  facts() {
    return [
      h("span", null, h("b", null, this.file.load)),
      h("span", null, "ends after ", h("b", null, seconds(this.file.end_s))),
      h("span", { class: "dim" }, h("code", null, this.file.command)),
    ];
  }
}

let report = null;

function seconds(s) {
  for (const [unit, n] of [
    ["s", 1],
    ["ms", 1e3],
    ["us", 1e6],
  ])
    if (s * n >= 1) return `${(s * n).toPrecision(4)} ${unit}`;
  return `${(s * 1e9).toPrecision(4)} ns`;
}

export function reportView(root, { params, signal, go, title }) {
  const show = () => {
    root.className = "full";
    mapView(root, { model: report.model, params, signal, go, title, report });
  };
  if (report) {
    show();
    return;
  }
  title("Report");
  const error = h("p", { class: "error", role: "alert", hidden: true });
  const input = h("input", {
    type: "file",
    accept: ".json,application/json",
    id: "report-file",
    onchange: () => open(input.files[0]),
  });
  async function open(file) {
    if (!file) return;
    try {
      report = new Report(JSON.parse(await file.text()));
    } catch (e) {
      error.hidden = false;
      error.textContent =
        `${file.name} is not a map of a run: ${e.message}. Next: choose the map.json of a folder ` +
        "that softib sim -o DIR has written.";
      return;
    }
    if (!signal.aborted) show();
  }
  root.className = "";
  fill(
    root,
    h(
      "div",
      { class: "page" },
      h("h1", null, "Report"),
      h(
        "p",
        null,
        "A run of ",
        h("code", null, "softib sim TOPOLOGY --load LOAD -o DIR"),
        " on the map of its fabric: choose DIR/map.json. It stays in this browser.",
      ),
      h("p", null, h("label", null, "Map of a run ", input)),
      error,
    ),
  );
  root.ondragover = e => e.preventDefault();
  root.ondrop = e => {
    e.preventDefault();
    open(e.dataTransfer.files[0]);
  };
  signal.addEventListener("abort", () => {
    root.ondragover = root.ondrop = null;
  });
}
