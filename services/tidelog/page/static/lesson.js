// A lesson: its text, its question, and what is expected.

import { html, nothing, render } from "lit-html";
import { command } from "tidelog/source.js";
import { state, touch } from "tidelog/state.js";

const root = document.getElementById("lesson");
let answerOf = ""; // the lesson whose answer is open
let folded = false;

export function lesson() {
  const found = state.lesson;
  root.hidden = !found;
  if (!found) {
    render(nothing, root);
    return;
  }
  const name = `${found.number} ${found.title}`;
  render(
    html`<div class="row"><h2>Lesson ${found.number}: ${found.title}</h2>
        <button data-key="fold" aria-expanded=${!folded} @click=${fold}>${folded ? "unfold" : "fold"}</button>
        ${state.hello?.lessons?.length ? html`<button data-key="again" @click=${again}>start again</button>` : nothing}</div>
      ${found.says ? html`<p class="says" id="says">${found.says}</p>` : nothing}
      ${folded
        ? nothing
        : html`<div class="columns"><p class="words">${found.text}</p><div>${question(found, name)}</div></div>`}`,
    root,
  );
}

function question(found, name) {
  const asks = found.asks && !state.saved;
  const known = (found.expectations ?? []).filter(({ held }) => typeof held === "boolean"); // others would give the answer away
  const open = (found.expectations?.length ?? 0) - known.length;
  return html`<div class="question ${asks ? "open" : ""}">
      <b>What do you think?</b> <span class="words">${found.question}</span>
      ${asks
        ? html`<button class="main" data-key="play-on" @click=${() => command({ play: true })}>Play on</button>`
        : nothing}</div>
    ${answerOf === name
      ? html`<p class="words answer" id="answer">${found.answer}</p>`
      : html`<button class=${found.ended ? "main" : ""} data-key="answer" @click=${() => show(name)}>Show the answer</button>`}
    ${found.expectations?.length
      ? html`<ul class="expectations">${known.map(expectation)}
          ${open ? html`<li class="soft"><b>○</b> ${open} more to be checked as time passes</li>` : nothing}</ul>` : nothing}`;
}

function expectation({ text, held, found }) {
  if (held) return html`<li><b class="ok">✓ ok</b> ${text}</li>`;
  return html`<li><b class="bad">✗ FAILED</b> ${text}${found ? html`: <span class="bad">${found}</span>` : nothing}</li>`;
}

function show(name) {
  answerOf = name;
  touch("lesson");
}

function fold() {
  folded = !folded;
  touch("lesson");
}

export function again() {
  answerOf = "";
  command({ story: state.hello?.story ?? "" });
}
