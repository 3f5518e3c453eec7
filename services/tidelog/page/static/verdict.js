// The verdict in the header, and the bands below it: what a reader must not miss.

import { html, nothing, render } from "lit-html";
import { seconds, shown, state, touch } from "tidelog/state.js";
import { showEvent } from "tidelog/story.js";
import { goToEvent } from "tidelog/time.js";

const root = document.getElementById("verdict");
const bands = document.getElementById("bands");
const error = document.getElementById("error");

const count = (number) => number.toLocaleString("en");

export function verdict() {
  const found = shown().picture?.verdict;
  render(found ? figures(found) : state.hello ? html`<span class="soft">nothing is judged here</span>` : nothing, root);
  render(
    html`${state.connected ? nothing : html`<p class="band warn" id="disconnected">not connected; trying again</p>`}
      ${state.gone ? html`<p class="band warn" id="gone">${state.gone}</p>` : nothing}
      ${state.missed ? html`<p class="band warn" id="missed">This page was too slow and has missed ${count(state.missed)} events.
        ${dismiss(() => { state.missed = 0; touch("bands"); })}</p>` : nothing}
      ${found && !found.sound ? broken(found) : nothing}`,
    bands,
  );
  render(
    state.error ? html`<p class="band bad">${state.error} ${dismiss(() => { state.error = ""; touch("error"); })}</p>` : nothing,
    error,
  );
}

function figures({ acknowledged, waiting, lost, duplicated, reordered, repeated, longest_wait: wait, sound, allows }) {
  const judged = { lost, duplicated, reordered };
  const figure = ([word, number]) => (number === null ? nothing : html`<span data-count=${word}
    class=${word in judged ? (number ? "bad" : "ok") : nothing}><b>${count(number)}</b> ${word}</span>`);
  return html`<span title=${allows || nothing}><b class="seal ${sound ? "ok" : "bad"}">${sound ? "✓ sound" : "✗ not sound"}</b>
      ${allows ? html`<small class="soft" id="allows">(${allows})</small>` : nothing}</span>
    ${Object.entries({ acknowledged, waiting, ...judged }).map(figure)}
    ${repeated > 0 ? html`<span data-count="repeated"><b>${count(repeated)}</b> processed again</span>` : nothing}
    ${wait === null ? nothing : html`<span data-count="longest_wait">longest wait <b>${seconds(wait)}</b></span>`}`;
}

function broken({ found, violation }) {
  return html`<div class="band bad" id="violation">
    ${violation ? html`<p><b>Violation:</b> ${violation.text}
      <button data-key="violation" @click=${() => show(violation.n)}>show why</button></p>` : nothing}
    ${(found ?? []).map((text) => html`<p>${text}</p>`)}
  </div>`;
}

function show(n) {
  if (shown().n <= n) goToEvent(n);
  showEvent(n);
}

const dismiss = (done) => html`<button data-key="dismiss" aria-label="dismiss" title="dismiss" @click=${done}>×</button>`;
