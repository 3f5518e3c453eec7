// The events as a list. Only the chunks of it that are near the visible part are in the document.

import { html, nothing, render } from "lit-html";
import { chain } from "tidelog/chain.js";
import { scrollToDiagram } from "tidelog/diagram.js";
import { NO_FILTER, QUIET, eventOf, indexOf, isAct, isAdvance, isWord, select, shown, state, timeText, touch } from "tidelog/state.js";
import { goToEvent } from "tidelog/time.js";

const CHUNK = 64; // events
const ROW_PX = 27; // a first guess, until a row has been drawn

const list = document.getElementById("story");
const head = document.getElementById("story-head");

let chunks = new Map(); // number of the chunk -> its rows, its box in the list, and whether that is near what is visible
let upto = 0; // events with lower numbers are in chunks
let epoch = null;
let run = null; // subject -> row, while nothing but advances of high watermarks happens
let following = true;
let drawnChain = null;

const watcher = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      const chunk = chunks.get(Number(entry.target.dataset.chunk));
      if (!chunk) continue;
      chunk.near = entry.isIntersecting;
      chunk.height = entry.boundingClientRect.height;
    }
    drawChunks();
  },
  { root: list, rootMargin: "500px 0px" },
);

// Only a reader scrolls up; lines that come and sizes that change may leave the end out of sight, too.
let top = 0;
list.addEventListener("scroll", () => {
  const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 30;
  const was = following;
  if (atEnd) following ||= state.selected === null;
  else if (list.scrollTop < top) following = false;
  top = list.scrollTop;
  if (was !== following) drawHead();
});
new ResizeObserver(() => following && toEnd()).observe(list);

function toEnd() {
  list.scrollTop = list.scrollHeight;
}

export function story(changed) {
  const { n } = shown();
  const found = chain();
  const hides = found !== drawnChain && state.filter.family === QUIET;
  if (changed.has("filter") || changed.has("hello") || epoch !== state.epoch || n < upto || hides) rebuild();
  epoch = state.epoch;
  for (let i = indexOf(upto); i < state.events.length && state.events[i].n < n; i++) addRow(state.events[i]);
  upto = Math.max(upto, Math.min(n, (state.events.at(-1)?.n ?? -1) + 1));
  list.classList.toggle("wall", Number.isFinite(state.hello?.wall_ms));
  if (found !== drawnChain) for (const chunk of chunks.values()) chunk.dirty = true;
  drawnChain = found;
  placeChunks();
  drawHead();
  drawChunks();
  if ((changed.has("selected") || changed.has("filter")) && state.selected !== null) reveal(state.selected);
}

// -- rows --------------------------------------------------------------------------------------------------------------

function rebuild() {
  const old = chunks;
  chunks = new Map();
  for (const [number, chunk] of old) chunks.set(number, { ...chunk, rows: [], dirty: true, height: 0 });
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
  chunk.height = 0;
}

function chunkOf(n) {
  const number = Math.floor(n / CHUNK);
  if (!chunks.has(number)) chunks.set(number, { rows: [], dirty: true, box: null, near: false, drawn: false, height: 0 });
  return chunks.get(number);
}

function wanted(event) {
  if (isAct(event) || isWord(event)) return true;
  const { process, subject, family } = state.filter;
  if ((process && event.process !== process) || (subject && event.on !== subject && !isOfMember(event, subject))) return false;
  if (family === QUIET) return (event.family !== "orders" && !isAdvance(event)) || chain().roles.has(event.n);
  return !family || event.family === family;
}

// What a member does to a partition has that partition as its subject.
function isOfMember({ family, process, text }, group) {
  const members = family === "member" && state.members.get(group);
  return Boolean(members) && (members.has(process) || text.split(" ").includes(group));
}

const allRows = () => [...chunks.keys()].sort((a, b) => a - b).flatMap((number) => chunks.get(number).rows);

// -- drawing -----------------------------------------------------------------------------------------------------------

function placeChunks() {
  let before = null;
  const numbers = [...chunks.keys()].sort((a, b) => a - b);
  for (const number of numbers) {
    const chunk = chunks.get(number);
    if (following && number >= (numbers.at(-2) ?? number)) chunk.near = true; // drawn before the observer has seen it
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
      if (before) before.after(chunk.box);
      else list.prepend(chunk.box);
      watcher.observe(chunk.box);
    }
    before = chunk.box;
  }
}

function drawChunks() {
  for (const chunk of chunks.values()) {
    if (!chunk.box || (!chunk.dirty && chunk.near === chunk.drawn)) continue;
    chunk.box.style.height = chunk.near ? "" : `${chunk.height || chunk.rows.length * ROW_PX}px`;
    if (chunk.near || chunk.drawn) render(chunk.near ? chunk.rows.map(rowOf) : nothing, chunk.box);
    chunk.drawn = chunk.near;
    chunk.dirty = false;
  }
  if (following) toEnd();
}

function roleOf(row, { roles }) {
  const found = row.numbers.map((n) => roles.get(n)).filter(Boolean);
  return found.includes("selected") ? "selected" : found[0] ?? "";
}

const ROLES = { cause: ["↑", "a cause"], selected: ["●", "selected"], effect: ["↓", "an effect"] };

function rowOf(row) {
  const event = row.last;
  const count = row.numbers.length;
  const role = roleOf(row, chain());
  const [sign = "", word = nothing] = ROLES[role] ?? [];
  const kind = isAct(event) ? "act" : isWord(event) ? "say" : event.mark ?? "";
  const broken = kind === "act" && event.mark === "fault" ? "broken" : "";
  return html`<li role="option" class="${role} ${kind} ${broken}" id="event-${row.n}" data-n=${row.n} aria-selected=${role === "selected"}
    @click=${({ detail }) => (detail > 1 && state.selected !== null ? go() : select(row.n))}>
    <time>${timeText(row.t)}</time><span class="role" title=${word}>${sign}</span>
    <span class="text">${kind === "act" || kind === "say" ? nothing : html`<b>${[...row.processes].join(", ")}</b> `}${event.text}
    ${count > 1 ? html`<small>×${count}, ${timeText(row.t).replace(" s", "")}–${timeText(event.t)}</small>` : nothing}</span>
  </li>`;
}

const FILTERS = [["process", "all processes"], ["subject", "all subjects"], ["family", "all kinds"]];

function drawHead() {
  const { event, causes, effects, more } = chain();
  const filtered = Object.values(state.filter).some(Boolean);
  const before = list.offsetTop;
  render(
    html`<div class="row"><h2>Story</h2>
      ${FILTERS.map(
        ([name, all]) => html`<select aria-label="filter by ${name}" data-filter=${name}
          title=${name === "family" ? `${QUIET}: without orders and advances of high watermarks` : nothing}
          @change=${(change) => setFilter(name, change.target.value)}>
          <option value="" .selected=${!state.filter[name]}>${all}</option>
          ${[...(name === "family" ? [QUIET] : []), ...[...state.filters[name]].sort()].map(
            (each) => html`<option value=${each} .selected=${state.filter[name] === each}>${each}</option>`,
          )}</select>`,
      )}
      ${filtered ? html`<button data-key="all" @click=${clearFilter}>all</button>` : nothing}
    </div>
    ${following ? nothing : html`<button data-key="follow" @click=${follow}>newest ↓</button>`}
    ${event ? why(event, causes, effects, more) : nothing}`,
    head,
  );
  if (!following) list.scrollTop += list.offsetTop - before; // rows stay where they are on the screen
}

function why(event, causes, effects, more) {
  const first = causes[0];
  return html`<div id="why">
    <p><b>Why?</b> ${first
      ? html`It began at ${timeText(first.t)} with <button class="link" @click=${() => select(first.n)}
          >${isAct(first) || !first.process ? "" : `${first.process} `}${first.text}</button>`
      : isAct(event) ? "This was done from outside the cluster." : "No cause of this event is known."}
    <span class="soft">↑ causes: ${causes.length}, ↓ effects: ${more ? "more than " : ""}${effects.length}</span></p>
    ${event.document ? html`<p class="document">${event.document}</p>` : nothing}
    <p class="row"><button data-key="go" title="to just after this event (g, or a double click)" @click=${go}>go there</button>
      <button class="link" data-key="drawn" title="go to it (w)" @click=${scrollToDiagram}>the chain is drawn below</button>
      <button data-key="clear" title="clear (Esc)" aria-label="clear the selection" @click=${() => clear()}>×</button></p>
  </div>`;
}

// -- what a reader does ------------------------------------------------------------------------------------------------

function setFilter(name, value) {
  state.filter = { ...state.filter, [name]: value };
  touch("filter");
}

export function clearFilter() {
  state.filter = { ...NO_FILTER };
  touch("filter");
}

export function follow() {
  following = true;
  toEnd();
  drawHead();
}

export function clear() {
  select(null);
  follow();
}

// To the moment just after the selected event.
export function go() {
  if (state.selected !== null) goToEvent(state.selected);
}

// Chunks that come into sight get their true heights a frame later, so it looks again.
function reveal(n, again = 3) {
  following = false;
  drawHead();
  const rows = allRows();
  const at = rows.findLastIndex((row) => row.n <= n);
  const row = rows[at];
  if (!row) return;
  list.setAttribute("aria-activedescendant", `event-${row.n}`);
  const chunk = chunkOf(row.n);
  chunk.near = true;
  chunk.dirty = true;
  drawChunks();
  const line = chunk.box.querySelector(`[data-n="${row.n}"]`)?.getBoundingClientRect();
  const view = list.getBoundingClientRect(); // scrollIntoView would move the page, too
  if (line && line.top < view.top) list.scrollTop -= view.top - line.top + 8;
  else if (line && line.bottom > view.bottom) list.scrollTop += line.bottom - view.bottom + 8;
  if (again) requestAnimationFrame(() => state.selected === n && reveal(n, again - 1));
}

// Selects the next line in a direction; the newest one if none is selected.
export function move(by) {
  const rows = allRows();
  if (!rows.length) return;
  const at = state.selected === null ? rows.length : rows.findLastIndex((row) => row.n <= state.selected);
  const to = Math.min(Math.max(at + by, 0), rows.length - 1);
  select(rows[to].n);
}

// Selects the next event with a mark in a direction.
export function moveToMark(by) {
  const { n } = shown();
  const from = state.selected ?? (by > 0 ? -1 : n);
  const marks = state.marks.filter((mark) => mark.n < n && (by > 0 ? mark.n > from : mark.n < from));
  if (marks.length) showEvent(marks.at(by > 0 ? 0 : -1).n);
}

export function focusFilter() {
  head.querySelector("select")?.focus();
}

// Selects an event even if the filters hide it.
export function showEvent(n) {
  if (eventOf(n) && !wanted(eventOf(n))) clearFilter();
  select(n);
}
