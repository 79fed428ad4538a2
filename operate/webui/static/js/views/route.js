// A route as a list of hops, both ways.

import { h } from "../dom.js";
import { bitRate, percent, plural } from "../format.js";

export function routeList(both, model) {
  const way = (w, cls, title) =>
    h(
      "section",
      { class: `way ${cls}` },
      h("h3", null, title),
      h(
        "p",
        { class: "dim" },
        `${w.from} → ${w.to}, ${plural(w.hops.length, "cable")}, SL ${w.sl}, partition ${w.pkey}`,
      ),
      h(
        "ol",
        { class: "hops" },
        w.hops.map(x =>
          h(
            "li",
            null,
            h("a", { href: x.cable >= 0 ? model.linkPage(x.cable) : "#/map" }, `${x.out} → ${x.in}`),
            h(
              "span",
              { class: "dim" },
              `${x.rate}, VL ${x.vl}, ${bitRate(x.sent_Bps)}` +
                (x.mbps ? ` (${percent((x.sent_Bps * 8) / x.mbps / 1e6)})` : "") +
                (x.wait ? `, waits ${percent(x.wait)}` : ""),
            ),
          ),
        ),
      ),
      w.arrives
        ? h("p", { class: "good" }, "Packets arrive.")
        : h("p", { class: "error", role: "alert" }, `Packets do not arrive: ${w.why}, at ${w.lost}.`),
    );
  return [way(both.there, "there", "There"), way(both.back, "back", "Back")];
}
