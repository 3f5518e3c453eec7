// The events as a list. Only the chunks of it that are near the visible part are in the document.

import { html, nothing, render } from "lit-html";
import { chain } from "tidelog/chain.js";
import { eventOf, indexOf, isAct, isAdvance, isWord, select, shown, state, timeText, touch } from "tidelog/state.js";

const CHUNK = 64; // events
const ROW_PX = 27; // a first guess, until a row has been drawn

const list = document.getElementById("story");
const head = document.getElementById("story-head");

let chunks = new Map(); // number of the chunk -> { rows, dirty, box, near }
let upto = 0; // events with lower numbers are in chunks
let epoch = null;
let run = null; // subject -> row, while nothing but advances of high watermarks happens
let following = true;
let drawnChain = null;

const watcher = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      const chunk = chunks.get(Number(entry.target.dataset.chunk));
      if (chunk) chunk.near = entry.isIntersecting;
    }
    drawChunks();
  },
  { root: list, rootMargin: "500px 0px" },
);

list.addEventListener("scroll", () => {
  const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 30;
  const was = following;
  following = atEnd && (following || state.selected === null);
  if (was !== following) drawHead();
});

export function story(changed) {
  const { n } = shown();
  if (changed.has("filter") || changed.has("hello") || epoch !== state.epoch || n < upto) rebuild();
  epoch = state.epoch;
  for (let i = indexOf(upto); i < state.events.length && state.events[i].n < n; i++) addRow(state.events[i]);
  upto = Math.max(upto, Math.min(n, (state.events.at(-1)?.n ?? -1) + 1));
  list.classList.toggle("wall", Number.isFinite(state.hello?.wall_ms));
  const found = chain();
  if (found !== drawnChain) for (const chunk of chunks.values()) chunk.dirty = true;
  drawnChain = found;
  placeChunks();
  drawHead();
  drawChunks();
  if (changed.has("selected") && state.selected !== null) reveal(state.selected);
}

// -- rows --------------------------------------------------------------------------------------------------------------

function rebuild() {
  const old = chunks;
  chunks = new Map();
  for (const [number, { box, near }] of old) chunks.set(number, { rows: [], dirty: true, box, near });
  upto = 0;
  run = null;
}

function addRow(event) {
  if (!wanted(event)) return;
  if (isAdvance(event)) {
    run ??= new Map();
    const row = run.get(event.on);
    if (row) {
      row.numbers.push(event.n);
      row.last = event;
      row.processes.add(event.process);
      chunkOf(row.n).dirty = true;
      return;
    }
  } else run = null;
  const row = { n: event.n, t: event.t, last: event, numbers: [event.n], processes: new Set([event.process]) };
  run?.set(event.on, row);
  const chunk = chunkOf(event.n);
  chunk.rows.push(row);
  chunk.dirty = true;
}

function chunkOf(n) {
  const number = Math.floor(n / CHUNK);
  if (!chunks.has(number)) chunks.set(number, { rows: [], dirty: true, box: null, near: true });
  return chunks.get(number);
}

function wanted(event) {
  if (isAct(event) || isWord(event)) return true;
  const { process, subject, family } = state.filter;
  return (!process || event.process === process) && (!subject || event.on === subject) && (!family || event.family === family);
}

const allRows = () => [...chunks.keys()].sort((a, b) => a - b).flatMap((number) => chunks.get(number).rows);

// -- drawing -----------------------------------------------------------------------------------------------------------

function placeChunks() {
  let before = null;
  for (const number of [...chunks.keys()].sort((a, b) => a - b)) {
    const chunk = chunks.get(number);
    if (!chunk.rows.length) {
      if (chunk.box) {
        watcher.unobserve(chunk.box);
        chunk.box.remove();
      }
      chunks.delete(number);
      continue;
    }
    if (!chunk.box) {
      chunk.box = document.createElement("ul");
      chunk.box.setAttribute("role", "presentation");
      chunk.box.dataset.chunk = number;
      chunk.box.style.height = `${chunk.rows.length * ROW_PX}px`;
      if (before) before.after(chunk.box);
      else list.prepend(chunk.box);
      watcher.observe(chunk.box);
    }
    before = chunk.box;
  }
}

function drawChunks() {
  for (const chunk of chunks.values()) {
    if (!chunk.box || (chunk.near ? !chunk.dirty : !chunk.drawn)) continue;
    if (chunk.near) {
      chunk.box.style.height = "";
      render(chunk.rows.map(rowOf), chunk.box);
    } else {
      chunk.box.style.height = `${chunk.box.offsetHeight}px`;
      render(nothing, chunk.box);
    }
    chunk.drawn = chunk.near;
    chunk.dirty = !chunk.near;
  }
  if (following) list.scrollTop = list.scrollHeight;
}

function roleOf(row, { roles }) {
  const found = row.numbers.map((n) => roles.get(n)).filter(Boolean);
  return found.includes("selected") ? "selected" : found[0] ?? "";
}

const MARK = { cause: "↑", selected: "●", effect: "↓" };
const WORD = { cause: "a cause", selected: "selected", effect: "an effect" };

function rowOf(row) {
  const event = row.last;
  const role = roleOf(row, chain());
  const kind = isAct(event) ? "act" : isWord(event) ? "say" : event.mark ?? "";
  return html`<li role="option" class="${role} ${kind}" data-n=${row.n} aria-selected=${role === "selected"}
    @click=${() => select(row.n)}>
    <time>${timeText(row.t)}</time><span class="role" title=${WORD[role] ?? nothing}>${MARK[role] ?? ""}</span>
    <span class="text">${kind === "act" || kind === "say" ? nothing : html`<b>${[...row.processes].join(", ")}</b> `}${event.text}
    ${row.numbers.length > 1 ? html`<small>${row.numbers.length} steps until ${timeText(event.t)}</small>` : nothing}</span>
  </li>`;
}

const FILTERS = [["process", "all processes"], ["subject", "all subjects"], ["family", "all kinds"]];

function drawHead() {
  const { event, causes, effects, more } = chain();
  const filtered = Object.values(state.filter).some(Boolean);
  render(
    html`<div class="row"><h2>Story</h2>
      ${FILTERS.map(
        ([name, all]) => html`<select aria-label="filter by ${name}" data-filter=${name}
          @change=${(change) => setFilter(name, change.target.value)}>
          <option value="" .selected=${!state.filter[name]}>${all}</option>
          ${[...state.filters[name]].sort().map(
            (each) => html`<option value=${each} .selected=${state.filter[name] === each}>${each}</option>`,
          )}</select>`,
      )}
      ${filtered ? html`<button data-key="all" @click=${clearFilter}>all</button>` : nothing}
      ${following ? nothing : html`<button data-key="follow" @click=${follow}>newest ↓</button>`}
    </div>
    ${event ? why(event, causes, effects, more) : nothing}`,
    head,
  );
}

function why(event, causes, effects, more) {
  const first = causes[0];
  return html`<div id="why">
    <p><b>Why?</b> ${first
      ? html`It began ${timeText(first.t)} with <a href="#story" @click=${(click) => { click.preventDefault(); select(first.n); }}
          >${isAct(first) || !first.process ? "" : `${first.process} `}${first.text}</a>`
      : isAct(event) ? "It was done from outside." : "No cause of this event is known."}
    <span class="soft">${causes.length} ↑ causes, ${more ? "more than " : ""}${effects.length} ↓ effects</span>
    <button data-key="clear" title="clear (Esc)" aria-label="clear the selection" @click=${() => clear()}>×</button></p>
    ${event.document ? html`<p class="document">${event.document}</p>` : nothing}
  </div>`;
}

// -- what a reader does ------------------------------------------------------------------------------------------------

function setFilter(name, value) {
  state.filter = { ...state.filter, [name]: value };
  touch("filter");
}

export function clearFilter() {
  state.filter = { process: "", subject: "", family: "" };
  touch("filter");
}

export function follow() {
  following = true;
  list.scrollTop = list.scrollHeight;
  drawHead();
}

export function clear() {
  select(null);
  follow();
}

function reveal(n) {
  following = false;
  const rows = allRows();
  const at = rows.findLastIndex((row) => row.n <= n);
  const row = rows[at];
  if (!row) return;
  const chunk = chunkOf(row.n);
  chunk.near = true;
  chunk.dirty = true;
  drawChunks();
  const line = chunk.box.querySelector(`[data-n="${row.n}"]`)?.getBoundingClientRect();
  const view = list.getBoundingClientRect(); // scrollIntoView would move the page, too
  if (line && line.top < view.top) list.scrollTop -= view.top - line.top + 8;
  else if (line && line.bottom > view.bottom) list.scrollTop += line.bottom - view.bottom + 8;
  drawHead();
}

// Selects the next line in a direction; the newest one if none is selected.
export function move(by) {
  const rows = allRows();
  if (!rows.length) return;
  const at = state.selected === null ? rows.length : rows.findLastIndex((row) => row.n <= state.selected);
  const to = Math.min(Math.max(at + by, 0), rows.length - 1);
  select(rows[to].n);
}

export function focusFilter() {
  head.querySelector("select")?.focus();
}

// Selects an event even if the filters hide it.
export function showEvent(n) {
  if (eventOf(n) && !wanted(eventOf(n))) clearFilter();
  select(n);
}
