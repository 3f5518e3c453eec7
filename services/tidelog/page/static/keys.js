// The keyboard.

import { html, render } from "lit-html";
import { actOf, choose, closeForm } from "tidelog/acts.js";
import { scrollToDiagram } from "tidelog/diagram.js";
import { openLessons } from "tidelog/head.js";
import { state } from "tidelog/state.js";
import { clear, focusFilter, go, move, moveToMark } from "tidelog/story.js";
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
  [["ArrowUp"], "select the previous event", () => move(-1)],
  [["ArrowDown"], "select the next event", () => move(1)],
  [["n"], "select the next event that the time bar marks", () => moveToMark(1)],
  [["N"], "select the previous marked event", () => moveToMark(-1)],
  [["Enter", "w"], "why? go to the chain of the selected event", why],
  [["g"], "go to the moment of the selected event", go],
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
  [["h"], "heal", act("heal")],
  [["d"], "produce records", act("produce")],
  [["?"], "these keys", help],
];
const NAMES = { " ": "space", ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", Escape: "Esc" };

const STEER = [" ", "ArrowLeft", "ArrowRight"];

// A field has its keys, a button has Enter, and a form has Space, too. All other keys steer the page.
function steers({ target, key }) {
  const inForm = target.closest("form");
  if (target.closest("input, select, textarea")) return key === "Escape" || (!inForm && STEER.includes(key));
  return !target.closest("button, a, summary") || !(key === "Enter" || (key === " " && inForm));
}

export function keys() {
  let byMouse = false;
  document.addEventListener("pointerdown", () => (byMouse = true), true);
  document.addEventListener("keydown", (event) => {
    byMouse = false;
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (document.querySelector("dialog[open]") || !steers(event)) return;
    const { target, key } = event;
    const found = KEYS.find(([names]) => names.includes(key));
    if (!found) return;
    event.preventDefault();
    const isFilter = target.localName === "select" && !target.form;
    if (target.closest("input, select, button")) target.blur(); // so that the key does not act on it, too
    if (isFilter && key === "Escape") return; // leaves a filter, and keeps the selection
    found[2]();
  });
  // What was pressed with the mouse gives the keyboard back to the page.
  for (const [type, what] of [["click", "button, summary"], ["change", "select"]]) {
    document.addEventListener(type, ({ target }) => byMouse && (type === "click" || !target.form) && target.closest(what)?.blur(), true);
  }
}

function why() {
  if (state.selected === null) move(-1);
  requestAnimationFrame(scrollToDiagram);
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
