// States and health as tags: a word, a shape and a colour.

import { h } from "./dom.js";
import { percent, bitRate } from "./format.js";

const kinds = {
  ok: "good",
  good: "good",
  Active: "good",
  active: "good",
  watch: "warn",
  Armed: "warn",
  Init: "warn",
  Initialize: "warn",
  warning: "warn",
  bad: "bad",
  down: "bad",
  Down: "bad",
  critical: "bad",
};
export const tag = (word, text) => h("span", { class: `tag ${kinds[word] ?? ""}` }, text ?? word);
export const health = word => tag(word, { ok: "good", watch: "watch", bad: "bad", down: "down" }[word] ?? word);

// usage is a bar with the number beside it.
export function usage(bytesPerSecond, mbps) {
  if (!mbps) return "–";
  const share = Math.min(1, (bytesPerSecond * 8) / (mbps * 1e6));
  return h(
    "span",
    { title: percent(share) },
    h("span", { class: "bar", "aria-hidden": "true" }, h("i", { style: { "--p": `${share * 100}%` } })),
    bitRate(bytesPerSecond),
  );
}

export const linkTo = (model, port, text) =>
  h("a", { href: `#/link/${encodeURIComponent(port)}`, dataset: { k: port } }, text ?? port);
export const nodeTo = (model, name, text) => {
  const i = model.index.get(name);
  return i === undefined ? (text ?? name) : h("a", { href: model.page(i), dataset: { k: name } }, text ?? name);
};
// alarmTo leads to the cable that an alarm is about, or to the node, also where the cable is missing.
export const alarmTo = (model, link) => {
  const port = link.split(" ")[0];
  return model.hasCable(port) ? linkTo(model, port, link) : nodeTo(model, port.replace(/\[\d+\]$/, ""), link);
};
export const portTo = (model, name) => nodeTo(model, name.replace(/\[\d+\]$/, ""));

export const card = (label, value, cls) =>
  h("div", { class: `card ${cls ?? ""}` }, h("small", null, label), h("b", null, value));

// failed is what a view shows instead of itself.
export const failed = e =>
  h(
    "div",
    { class: "page" },
    h("h1", null, "This cannot be shown"),
    h("p", { class: "error", role: "alert" }, e.message),
    e.next && h("p", { class: "dim" }, e.next),
    h("p", null, h("a", { href: "#/map" }, "Back to the map")),
  );
