// Alarms that stand, and what can be said about them.

import { h, fill, table, toast } from "./dom.js";
import { del, get, post } from "./api.js";
import { ago, dayClock } from "./format.js";
import { alarmTo, health, nodeTo } from "./words.js";

const spans = [
  ["1 h", 60],
  ["8 h", 480],
  ["7 d", 7 * 1440],
  ["for good", 0],
];

// Who somebody is, is asked once.
const remembered = () => {
  try {
    return localStorage.getItem("softib-name") ?? "";
  } catch {
    return "";
  }
};
const remember = name => {
  try {
    localStorage.setItem("softib-name", name);
  } catch {
    /* not kept, then */
  }
};

// An alarm is about a node or about a link, which a host's name would be, too.
const about = a => (a.node ? { node: a.node } : { link: a.link });

// alarmTable lists alarms; changed is called after something was said about one.
export function alarmTable(model, list, changed) {
  const act = async (what, done) => {
    try {
      await what();
      toast(done);
      changed();
    } catch (e) {
      toast(`${e.message}. ${e.next ?? ""}`, true);
    }
  };
  const mute = a =>
    h(
      "select",
      {
        "aria-label": `Mute ${a.kind} of ${a.link}`,
        dataset: { k: `m${a.id}` },
        onchange: e => {
          const s = spans[e.currentTarget.selectedIndex - 1];
          if (s)
            act(
              () => post("mutes", { ...about(a), kind: a.kind, minutes: s[1] }),
              `Muted: ${a.kind} of ${a.link}, ${s[0]}.`,
            );
        },
      },
      h("option", null, "Mute …"),
      spans.map(([name]) => h("option", null, name)),
    );
  const columns = [
    { title: "Since", cell: a => ago(a.since), class: "nowrap" },
    { title: "", cell: a => health(a.severity) },
    { title: "Where", cell: a => (a.node ? nodeTo(model, a.node) : alarmTo(model, a.link)), class: "nowrap" },
    {
      title: "Alarm",
      class: "roomy",
      cell: a => [
        h("span", { class: a.quiet ? "dim" : "" }, a.text),
        a.acknowledged &&
          h(
            "div",
            { class: "dim" },
            `acknowledged by ${a.acknowledged.by}, ` +
              `${ago(a.acknowledged.at)}${a.acknowledged.note ? `: ${a.acknowledged.note}` : ""}`,
          ),
        a.muted &&
          h(
            "div",
            { class: "dim" },
            `muted by ${a.muted.by}${a.muted.until ? ` until ${dayClock(a.muted.until)}` : ""}`,
          ),
      ],
    },
    { title: "Next", class: "roomy", cell: a => a.next },
    {
      title: "",
      class: "nowrap",
      cell: a =>
        h(
          "span",
          { class: "row" },
          !a.acknowledged &&
            h(
              "button",
              {
                type: "button",
                dataset: { k: `a${a.id}` },
                onclick: () => {
                  const by = h("input", {
                      name: "by",
                      maxLength: 60,
                      size: 20,
                      autocomplete: "username",
                      value: remembered(),
                    }),
                    note = h("input", { name: "note", maxLength: 300, size: 40 });
                  const d = h(
                    "dialog",
                    {
                      "aria-label": "Acknowledge an alarm",
                      onclose: () => {
                        d.remove();
                        if (d.returnValue !== "yes") return;
                        remember(by.value);
                        act(
                          () => post(`alarms/${a.id}`, { by: by.value.trim(), note: note.value.trim() }),
                          "Acknowledged.",
                        );
                      },
                    },
                    h(
                      "form",
                      { method: "dialog" },
                      h("h2", null, "Acknowledge"),
                      h("p", null, `${a.link}: ${a.kind}`),
                      h("p", null, h("label", null, "Your name ", by)),
                      h("p", null, h("label", null, "A note for the others ", note)),
                      h(
                        "span",
                        { class: "row" },
                        h("button", { type: "submit", value: "yes", class: "primary" }, "I look after it"),
                        h("button", { type: "submit", value: "no" }, "Cancel"),
                      ),
                    ),
                  );
                  document.body.append(d);
                  d.showModal();
                },
              },
              "Acknowledge",
            ),
          a.muted
            ? h(
                "button",
                { type: "button", onclick: () => act(() => del(`mutes/${a.muted.id}`), "No longer muted.") },
                "Unmute",
              )
            : mute(a),
        ),
    },
  ];
  return table(columns, list, {
    caption: "Alarms that stand",
    empty: "No alarm stands.",
    rowClass: a => (a.muted ? "muted" : a.severity),
  });
}

// muteList shows the rules, of which some cover no alarm now.
export async function muteList(where, changed) {
  const list = await get("mutes");
  fill(
    where,
    list.length
      ? [
          h("h2", null, "Muted"),
          table(
            [
              { title: "What", cell: u => [u.kind || "every alarm", u.link && ` of ${u.link}`] },
              { title: "Until", cell: u => (u.until ? dayClock(u.until) : "somebody lifts it"), class: "nowrap" },
              { title: "By", cell: u => `${u.by}${u.note ? `: ${u.note}` : ""}` },
              {
                title: "",
                cell: u =>
                  h(
                    "button",
                    {
                      type: "button",
                      onclick: async () => {
                        await del(`mutes/${u.id}`).catch(e => toast(e.message, true));
                        changed();
                      },
                    },
                    "Unmute",
                  ),
              },
            ],
            list,
            { caption: "Muted alarms" },
          ),
        ]
      : null,
  );
}
