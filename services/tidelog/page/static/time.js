// The transport and the scrub bar.

import { html, nothing, render, svg } from "lit-html";
import { command } from "tidelog/source.js";
import { countUntil, driven, end, eventOf, indexOf, recorded, shown, state, timeText, touch } from "tidelog/state.js";

const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 5, 10, 25, 50, 100];
const STEPS = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400];
const TICK_MS = 100;
// Shapes of marks, and what they stand for.
const MARKS = {
  fault: ["M-5,5 0,-5 5,5Z", "a fault"],
  mend: ["M-5,-5 0,5 5,-5Z", "a fault ends"],
  election: ["M-5,0 0,-5 5,0 0,5Z", "an election"],
  stall: ["M-4,-4 4,-4 4,4 -4,4Z", "a stall"],
  change: ["M-4,0A4,4 0 0 1 4,0A4,4 0 0 1 -4,0Z", "an ISR, a log or a group changes"],
};

const root = document.getElementById("time");
let drawnMarks = null;
let marksFor = "";

export function time() {
  if (!state.hello) return;
  root.hidden = false;
  const { t } = shown();
  const playing = isPlaying();
  const word = playing ? "pause" : "play";
  render(
    html`<div class="row transport">
        <button data-key="home" title="to the start (Home)" aria-label="to the start" @click=${home}>|◀◀︎</button>
        <button data-key="back" title="one event back (←)" aria-label="one event back" @click=${() => step(-1)}>|◀︎</button>
        <button data-key="play" class="main" title="${word} (space)" aria-label=${word} @click=${toggle}>
          ${playing ? "❚❚" : "▶︎"} ${word}</button>
        <button data-key="forward" title="one event forward (→)" aria-label="one event forward"
          @click=${() => step(1)}>▶︎|</button>
        ${hasSpeed()
          ? html`<select id="speed" title="speed (+ and -)" aria-label="speed"
              @change=${(change) => setSpeed(Number(change.target.value))}>
              ${SPEEDS.map((each) => html`<option value=${each} .selected=${each === speed()}>${each}×</option>`)}</select>`
          : nothing}
        <output id="now" aria-label="time">${timeText(t)}</output>
        ${state.moment && !recorded()
          ? html`<button data-key="newest" title="to the newest picture (End)" @click=${newest}>newest ▶︎|</button>`
          : nothing}
      </div>
      ${scrub(t)}`,
    root,
  );
}

// -- the scrub bar -----------------------------------------------------------------------------------------------------

// The range grows in steps: then marks need not move with each picture.
function range() {
  const first = driven() ? 0 : state.pictures[0]?.t ?? state.events[0]?.t ?? 0;
  const last = end().t;
  const step = STEPS.find((each) => (last - first) / each <= 8) ?? STEPS.at(-1);
  const from = Math.floor(first / step) * step;
  return { from, to: Math.max(from + step * 4, Math.ceil(last / step) * step), step };
}

function scrub(t) {
  const { from, to, step } = range();
  const x = (at) => `${(100 * (Math.min(Math.max(at, from), to) - from)) / (to - from)}%`;
  const known = end().t;
  return html`<div id="scrub" role="slider" tabindex="0" aria-label="time" aria-valuemin=${from} aria-valuemax=${known}
    aria-valuenow=${t} aria-valuetext=${timeText(t)} @pointerdown=${drag} @pointermove=${drag}>
    <svg><line class="track" x1="0" x2="100%" y1="12" y2="12" /><line class="known" x1="0" x2=${x(known)} y1="12" y2="12" />
      <line class="past" x1="0" x2=${x(t)} y1="12" y2="12" />
      ${marks(from, to, step, x)}
      <circle cx=${x(t)} cy="12" r="6" /></svg></div>${legend}`;
}

const legend = html`<div class="legend marks">${Object.entries(MARKS).map(([mark, [shape, word]]) => html`<span><svg width="12"
  height="12" viewBox="-6 -6 12 12" aria-hidden="true"><path class="mark ${mark}" d=${shape} /></svg> ${word}</span>`)}</div>`;

function marks(from, to, step, x) {
  const now = `${from} ${to} ${state.marks.length} ${state.marks.at(-1)?.n} ${state.marks[0]?.n} ${state.hello.wall_ms}`;
  if (now === marksFor) return drawnMarks;
  marksFor = now;
  const ticks = [];
  for (let at = from; at <= to + step / 2; at += step) ticks.push(at);
  drawnMarks = svg`${ticks.map((at, i) => svg`<text x=${x(at)} y="33"
      text-anchor=${i === 0 ? "start" : i === ticks.length - 1 ? "end" : "middle"}>${tick(at, step)}</text>`)}
    ${state.marks.filter((mark) => mark.t >= from && MARKS[mark.mark]).sort(changesFirst).map(
      (mark) => svg`<svg class="mark ${mark.mark}" data-n=${mark.n} x=${x(mark.t)} y="12"><path d=${MARKS[mark.mark][0]}>
        <title>${timeText(mark.t)} ${MARKS[mark.mark][1]}: ${mark.process} ${mark.text}</title></path></svg>`,
    )}`;
  return drawnMarks;
}

// What comes later is drawn on top.
const changesFirst = (one, other) => (other.mark === "change") - (one.mark === "change");

function tick(at) {
  return state.hello.wall_ms === null || state.hello.wall_ms === undefined ? `${at} s` : timeText(at).slice(0, 8);
}

function drag(event) {
  if (event.type === "pointermove" && !(event.buttons & 1)) return;
  const bar = event.currentTarget;
  if (event.type === "pointerdown") bar.setPointerCapture(event.pointerId);
  const box = bar.getBoundingClientRect();
  const { from, to } = range();
  const share = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
  goToTime(Math.min(from + share * (to - from), end().t));
}

// -- going somewhere ---------------------------------------------------------------------------------------------------

let sending = false;
let next = null; // the newest target while another one is on its way
let aim = null; // the number of events that the newest target has before it; null: not on the way

async function send(to) {
  next = to;
  if (sending) return;
  sending = true;
  while (next) {
    const target = next;
    next = null;
    await command({ to: target });
  }
  sending = false;
  aim = null;
}

function goLocally(t, n) {
  state.moment = { t, n };
  touch("time");
}

export function goToTime(t) {
  aim = null;
  if (driven()) send({ t: Math.round(t * 1e6) / 1e6 });
  else goLocally(t, countUntil(t));
}

// One event forward or back.
export function step(by) {
  if (!state.hello) return;
  const { n } = shown();
  if (driven()) {
    aim = Math.min(Math.max(0, (aim ?? n) + by), end().n + 1);
    send(aim > 0 ? { event: aim - 1 } : { t: 0 });
    return;
  }
  setPlaying(false);
  const at = indexOf(n) + by; // events before the new moment
  if (at < 0 || at > state.events.length) return;
  const last = state.events[at - 1];
  goLocally(last?.t ?? state.pictures[0]?.t ?? 0, last ? last.n + 1 : state.events[0]?.n ?? 0);
}

const first = () => (driven() ? 0 : state.pictures[0]?.t ?? 0);

export function home() {
  setPlaying(false);
  goToTime(first());
}

export function newest() {
  if (driven()) return goToTime(end().t);
  state.moment = recorded() ? end() : null;
  touch("time");
}

// Shows the moment just after an event.
export function goToEvent(n) {
  setPlaying(false);
  aim = null;
  if (driven()) send({ event: n });
  else goLocally(eventOf(n)?.t ?? shown().t, n + 1);
}

// -- playing -----------------------------------------------------------------------------------------------------------

const hasSpeed = () => driven() || recorded();
const speed = () => (driven() ? state.time?.speed : state.speed);

function isPlaying() {
  if (driven()) return Boolean(state.time?.playing);
  return recorded() ? state.playing : !state.moment;
}

export function toggle() {
  if (driven()) command({ play: !isPlaying() });
  else if (recorded()) setPlaying(!state.playing);
  else {
    state.moment = state.moment ? null : end();
    touch("time");
  }
}

function setPlaying(is) {
  if (!recorded() || state.playing === is) return;
  state.playing = is;
  if (is && shown().t >= end().t) goToTime(first());
  if (is) play(performance.now());
  touch("time");
}

function play(before) {
  setTimeout(() => {
    if (!state.playing || !recorded()) return;
    const now = performance.now();
    const t = shown().t + (state.speed * (now - before)) / 1000;
    const last = end().t;
    goToTime(Math.min(t, last));
    if (t >= last) setPlaying(false);
    else play(now);
  }, TICK_MS);
}

function setSpeed(to) {
  if (driven()) command({ speed: to });
  else {
    state.speed = to;
    touch("time");
  }
}

export function faster(by) {
  if (!hasSpeed()) return;
  const at = SPEEDS.findLastIndex((each) => each <= speed());
  setSpeed(SPEEDS[Math.min(Math.max(at + by, 0), SPEEDS.length - 1)]);
}
