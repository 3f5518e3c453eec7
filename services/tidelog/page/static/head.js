// The title, the menu of lessons, and what can be saved.

import { html, nothing, render } from "lit-html";
import { again } from "tidelog/lesson.js";
import { command, save } from "tidelog/source.js";
import { state } from "tidelog/state.js";
import { help } from "tidelog/keys.js";

const root = document.getElementById("head");
const menu = document.getElementById("lessons");
// The story fills what is left of the window below the parts that come and go.
const header = document.querySelector("header");
const main = document.querySelector("main");
const sizes = new ResizeObserver(() => {
  document.documentElement.style.setProperty("--head", `${header.offsetHeight}px`);
  document.documentElement.style.setProperty("--top", `${main.offsetTop}px`);
});
for (const each of [header, ...document.querySelectorAll("#bands, #error, #lesson")]) sizes.observe(each);

export function head() {
  const { hello } = state;
  if (!hello) {
    render(html`<b>Tidelog</b> <span class="soft">connecting</span>`, root);
    return;
  }
  document.title = `${hello.title} – Tidelog`;
  const lessons = hello.lessons ?? [];
  render(
    html`<h1>${hello.title}</h1><span class="soft about">${hello.about}</span>
      ${state.saved ? html`<span class="soft">saved</span>` : nothing}
      ${lessons.length ? html`<button data-key="lessons" title="lessons (l)" @click=${openLessons}>lessons</button>` : nothing}
      ${lessons.length && !hello.story ? html`<button data-key="again" @click=${again}>start again</button>` : nothing}
      ${(hello.saves ?? []).map((as) => html`<button data-save=${as} @click=${() => save(as)}>save ${as}</button>`)}
      <button data-key="help" title="keys (?)" aria-label="keys" @click=${help}>?</button>`,
    root,
  );
}

export function openLessons() {
  const { lessons = [], story = "" } = state.hello ?? {};
  if (!lessons.length) return;
  const begin = (name) => {
    menu.close();
    command({ story: name });
  };
  render(
    html`<h2>Lessons</h2><ol>${[...lessons, { name: "", number: "", title: "no story: an empty cluster to break" }].map(
      ({ name, number, title }) => html`<li><button data-lesson=${name} aria-current=${name === story}
        ?autofocus=${name === story} @click=${() => begin(name)}><span>${number}</span> ${title}</button></li>`,
    )}</ol><form method="dialog"><button>Close</button></form>`,
    menu,
  );
  menu.showModal();
}
