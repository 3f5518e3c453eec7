// The keyboard.

import { html, render } from "lit-html";
import { actOf, choose, closeForm } from "tidelog/acts.js";
import { openLessons } from "tidelog/head.js";
import { state } from "tidelog/state.js";
import { clear, focusFilter, move } from "tidelog/story.js";
import { faster, home, newest, step, toggle } from "tidelog/time.js";

const dialog = document.getElementById("help");
const act = (name) => Object.assign(() => choose(name, false), { act: name });

// Names of keys, what they do, and how.
const KEYS = [
  [[" "], "play or pause", toggle],
  [["ArrowLeft"], "one event back", () => step(-1)],
  [["ArrowRight"], "one event forward", () => step(1)],
  [["Home"], "to the start", home],
  [["End"], "to the newest moment", newest],
  [["+", "="], "faster", () => faster(1)],
  [["-"], "slower", () => faster(-1)],
  [["ArrowUp"], "select the event before", () => move(-1)],
  [["ArrowDown"], "select the next event", () => move(1)],
  [["Enter", "w"], "why? go to the chain of the selected event", why],
  [["Escape"], "close the form, or clear the selection", () => closeForm() || clear()],
  [["f"], "filter the story", focusFilter],
  [["l"], "lessons", openLessons],
  [["k"], "kill a process", act("kill")],
  [["s"], "start a process", act("start")],
  [["t"], "stop a process", act("stop")],
  [["p"], "pause a process", act("pause")],
  [["r"], "resume a process", act("resume")],
  [["x"], "restart a process", act("restart")],
  [["c"], "cut a link", act("cut")],
  [["h"], "heal links", act("heal")],
  [["d"], "produce records", act("produce")],
  [["?"], "these keys", help],
];
const NAMES = { " ": "space", ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", Escape: "Esc" };

export function keys() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (document.querySelector("dialog[open]")) return;
    const { target, key } = event;
    const inField = target.closest("input, select, textarea");
    if (inField && key !== "Escape") return;
    if (target.closest("button, a") && (key === " " || key === "Enter")) return;
    const found = KEYS.find(([names]) => names.includes(key));
    if (!found) return;
    event.preventDefault();
    if (inField) target.blur();
    if (inField && !target.form) return; // Esc leaves a filter, and keeps the selection
    found[2]();
  });
}

function why() {
  if (state.selected === null) move(-1);
  requestAnimationFrame(() => document.getElementById("diagram").scrollIntoView({ block: "nearest" }));
}

export function help() {
  render(
    html`<h2>Keys</h2><dl>${KEYS.filter(([, , { act }]) => !act || actOf(act)).map(([names, what]) => html`<div><dt>${names.map(
      (name) => html`<kbd>${NAMES[name] ?? name}</kbd> `,
    )}</dt><dd>${what}</dd></div>`)}</dl><form method="dialog"><button autofocus>Close</button></form>`,
    dialog,
  );
  dialog.showModal();
}
