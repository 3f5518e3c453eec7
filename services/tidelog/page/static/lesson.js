// A lesson: its text, its question, and what is expected.

import { html, nothing, render } from "lit-html";
import { command } from "tidelog/source.js";
import { state, touch } from "tidelog/state.js";

const root = document.getElementById("lesson");

export function lesson() {
  root.hidden = !state.lesson;
  render(state.lesson ? panel(state.lesson) : nothing, root);
}

function panel({ number, title, text, question, answer, asks, ended, expectations, changed }) {
  const [folded, untold, answered] = ["fold", "text", "answer"].map((part) => state.flipped.has(part));
  const isOpen = asks && !state.saved;
  return html`<div class="row"><h2>${number ? `Lesson ${number}: ` : ""}${title}</h2>
      ${flip("fold", folded ? "unfold" : "fold", !folded)}
      ${folded ? nothing : flip("text", untold ? "show the text" : "hide the text", !untold)}
      ${state.hello?.lessons?.length ? html`<button data-key="again" @click=${again}>start again</button>` : nothing}</div>
    ${folded && !isOpen ? nothing : html`<div class="columns">
      ${folded || untold ? nothing : html`<p class="words">${text}</p>`}
      <div>${question ? html`<div class="question ${isOpen ? "open" : ""}"><b>What do you think?</b>
          <span class="words">${question}</span></div>` : nothing}
        <div class="row">${isOpen
            ? html`<button class="main" data-key="play-on" @click=${() => command({ play: true })}>Play on</button>` : nothing}
          ${answer ? flip("answer", answered ? "hide the answer" : "show the answer", answered, ended && !answered ? "main" : "")
            : nothing}
          ${ended && number ? html`<span class="soft">The lesson is over. Time may go on.</span>` : nothing}
          ${expectations?.length ? summary(expectations, changed) : nothing}</div>
        ${answered ? html`<p class="words answer" id="answer">${answer}</p>` : nothing}</div>
      ${state.flipped.has("checks") ? checks(expectations ?? [], changed) : nothing}</div>`}`;
}

// A button that opens or closes a part, until another story begins.
function flip(part, word, isOpen, look = "") {
  return html`<button data-key=${part} class=${look} aria-expanded=${Boolean(isOpen)} @click=${() => {
    if (!state.flipped.delete(part)) state.flipped.add(part);
    touch("lesson");
  }}>${word}</button>`;
}

// Checks stay closed until they are asked for: they give the answer away.
function summary(all, changed) {
  const [holds, fails, waits] = [true, false, undefined].map((is) => all.filter(({ held }) => (held ?? undefined) === is).length);
  const word = changed ? "You have changed this run, so the lesson's checks may fail"
    : `${holds} of ${all.length} checks hold${waits ? " so far" : ""}${fails ? `, ${fails} FAILED` : ""}`;
  return flip("checks", word, state.flipped.has("checks"), `link ${changed ? "soft" : fails ? "bad" : ""}`);
}

function checks(all, changed) {
  const known = all.filter(({ held }) => typeof held === "boolean");
  const no = changed ? html`<b class="soft">✗ no</b>` : html`<b class="bad">✗ FAILED</b>`;
  return html`<ul class="expectations">
    ${known.map(({ text, held, found }) => html`<li>${held ? html`<b class="ok">✓ ok</b>` : no} <span>${text}${found && !held
      ? html`: <span class=${changed ? "soft" : "bad"}>${found}</span>` : nothing}</span></li>`)}
    ${known.length < all.length
      ? html`<li class="soft"><b>○</b> ${all.length - known.length} more to be checked as time passes</li>` : nothing}</ul>`;
}

export const again = () => command({ story: state.hello?.story ?? "" });
