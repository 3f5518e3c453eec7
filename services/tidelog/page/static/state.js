// Messages become state here. No other module knows their format, which docs/internals/page.md describes.

const FORMAT = 1;
const EVENTS_MAX = 20_000;
const PICTURES_MAX = 2_000;
const MARKS_MAX = 1_000;
const NAMES_MAX = 1_000;
const TRIM = 1_000; // Dropping many at once keeps the work for each new event constant.
export const NO_FILTER = { process: "", subject: "", family: "" };
export const QUIET = "main steps"; // a choice among the families: all but orders and advances of high watermarks

const empty = () => ({
  hello: null,
  picture: null, // the newest
  pictures: [], // none where the server goes back
  events: [], // in the order of n
  marks: [], // events that have a mark; these outlive other events
  byName: new Map(), // name of an event -> n
  effects: new Map(), // n -> numbers of the events that it caused
  filters: { process: new Set(), subject: new Set(), family: new Set() },
  time: null,
  lesson: null,
  members: new Map(), // group -> names of all members that pictures have shown
  epoch: {}, // another object after each change that is not an addition at the end
});

// What belongs to the reader, until another story begins.
const fresh = () => ({
  selected: null, // n of an event
  filter: { ...NO_FILTER, family: QUIET },
  form: "", // the act whose form is open
  flipped: new Set(), // parts of the lesson that the reader has opened or closed
  moment: null, // `t` and `n` to which the reader went back; null: the newest. Null where the server goes back.
  playing: false, // a recorded run plays
  cut: "", // what the reader's last act has dropped
  missed: 0,
  error: "",
});

export const state = {
  ...empty(),
  ...fresh(),
  saved: false,
  connected: true,
  gone: "",
  speed: 1, // of a recorded run
};

// -- changes -----------------------------------------------------------------------------------------------------------

const changed = new Set();
let listener = () => {};
let scheduled = false;

export function listen(draw) {
  listener = draw;
}

// Says which parts of the state have changed. Views are drawn once per frame, however many messages arrive.
export function touch(...parts) {
  for (const part of parts) changed.add(part);
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    const parts = new Set(changed);
    changed.clear();
    listener(parts);
  });
}

export function fail(text) {
  state.error = text;
  touch("error");
}

// -- messages ----------------------------------------------------------------------------------------------------------

// Takes one message. Returns false for a newer format, after which no message is understood.
export function take(message) {
  if (!message || typeof message !== "object") return true;
  if (message.v > FORMAT) {
    fail(`This page reads messages of version ${FORMAT}, and the server sends version ${message.v}. Reload the page.`);
    return false;
  }
  for (const kind of Object.keys(message)) if (Object.hasOwn(takers, kind)) takers[kind](message[kind]);
  return true;
}

const takers = {
  hello(hello) {
    const old = state.hello;
    const same = old && old.title === hello.title && old.story === hello.story;
    start(same);
    state.hello = state.saved ? { ...hello, time: "recorded", acts: [], saves: [], lessons: [] } : hello;
    state.gone = "";
    touch("hello");
  },
  picture(picture) {
    state.picture = picture;
    for (const group of picture.groups ?? []) {
      const seen = group.members.map(({ name }) => name);
      state.members.set(group.name, new Set([...(state.members.get(group.name) ?? []), ...seen]));
    }
    if (!driven()) {
      state.pictures.push(picture);
      if (state.pictures.length > PICTURES_MAX) state.pictures.splice(0, TRIM / 10);
    }
    touch("picture");
  },
  events(events) {
    for (const event of events) add(event);
    if (state.events.length > EVENTS_MAX) forget(state.events.splice(0, state.events.length - EVENTS_MAX + TRIM));
    touch("events");
  },
  time(time) {
    if (recorded() && !state.moment) state.moment = { t: time.t, n: time.n };
    state.time = time;
    if (time.playing) state.cut = "";
    touch("time");
  },
  lesson(lesson) {
    state.lesson = lesson;
    touch("lesson");
  },
  cut({ n }) {
    const at = indexOf(n);
    state.cut = `${state.events.length - at} events after ${timeText(shown().t)} are dropped: they did not happen in this run`;
    forget(state.events.splice(at, state.events.length - at));
    state.marks = state.marks.filter((mark) => mark.n < n);
    state.pictures = state.pictures.filter((picture) => picture.n <= n);
    if (state.selected >= n) state.selected = null;
    if (state.moment && state.moment.n > n) state.moment = null;
    touch("events", "selected");
  },
  reset: () => start(false),
  dropped({ events }) {
    state.missed += events;
    touch("bands");
  },
  error: ({ text }) => fail(text),
  gone({ text }) {
    state.gone = text;
    touch("bands");
  },
};

function start(same) {
  const { hello, picture, lesson } = state;
  // A new connection to the same story does not blank the page.
  Object.assign(state, empty(), same ? { picture, lesson } : { hello, ...fresh() });
  touch("hello", "picture", "events", "time", "lesson", "selected", "filter", "bands", "error");
}

function add(event) {
  const last = state.events.at(-1);
  if (last && event.n <= last.n) return; // known already
  event.on = subjectText(event.subject);
  state.events.push(event);
  if (event.number !== undefined) state.byName.set(key(event.process, event.life, event.number), event.n);
  const cause = causeOf(event);
  if (cause !== null) {
    if (!state.effects.has(cause)) state.effects.set(cause, []);
    state.effects.get(cause).push(event.n);
  }
  if (event.mark) {
    state.marks.push(event);
    if (state.marks.length > MARKS_MAX) state.marks.shift();
  }
  const { process, subject, family } = state.filters;
  for (const [names, name] of [[process, event.process], [subject, event.on], [family, event.family]]) {
    if (name && names.size < NAMES_MAX) names.add(name);
  }
}

function forget(events) {
  for (const event of events) {
    state.effects.delete(event.n);
    if (event.number !== undefined) state.byName.delete(key(event.process, event.life, event.number));
    const siblings = state.effects.get(causeOf(event));
    if (siblings) siblings.splice(siblings.indexOf(event.n), 1);
  }
  state.epoch = {};
}

const key = (process, life, number) => `${process} ${life} ${number}`;

function subjectText(subject) {
  if (!subject) return "";
  if (subject.topic !== undefined) return `${subject.topic}-${subject.partition}`;
  return subject.broker === undefined ? subject.group ?? "" : `broker-${subject.broker}`;
}

// -- what there is to see ----------------------------------------------------------------------------------------------

export const driven = () => state.hello?.time === "driven";
export const recorded = () => state.hello?.time === "recorded";

export const isAct = (event) => event.kind === "act";
export const isWord = (event) => event.kind === "say";
export const isAdvance = (event) => event.kind === "HighWatermarkAdvanced";
export const isWrite = (event) => event.kind === "StoreWritten";

// Returns the n of what led to an event: another event, or the act that it shows. Null: not known.
export function causeOf(event) {
  if (event.cause) return state.byName.get(key(...event.cause)) ?? null;
  return event.fault ?? null;
}

function firstWhere(list, holds) {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(list[middle])) high = middle;
    else low = middle + 1;
  }
  return low;
}

// Returns the index of the first event with this n or a higher one.
export function indexOf(n) {
  return firstWhere(state.events, (event) => event.n >= n);
}

export function eventOf(n) {
  const event = state.events[indexOf(n)];
  return event && event.n === n ? event : null;
}

// Returns the number of events up to a time.
export function countUntil(t) {
  const at = firstWhere(state.events, (event) => event.t > t);
  return at ? state.events[at - 1].n + 1 : state.events[0]?.n ?? 0;
}

export function end() {
  const last = state.events.at(-1);
  const { t = 0, n = 0 } = state.time?.end ?? {};
  return { t: Math.max(t, state.picture?.t ?? 0, last?.t ?? 0), n: Math.max(n, last ? last.n + 1 : 0) };
}

// Returns the moment on the page: `t`, `n`, and the picture of it.
export function shown() {
  if (driven()) {
    const { t, n } = state.time ?? state.picture ?? { t: 0, n: 0 };
    return { t, n, picture: state.picture };
  }
  if (!state.moment) return { ...end(), picture: state.picture };
  const { t, n } = state.moment;
  const after = firstWhere(state.pictures, (picture) => picture.t > t + 1e-9 || picture.n > n);
  return { t, n, picture: state.pictures[Math.max(0, after - 1)] ?? state.picture };
}

export const brokerOf = (name) => Number(/\d+$/.exec(name)?.[0] ?? NaN);
export const nameOf = (partition) => `${partition.topic}-${partition.number}`;

export function select(n) {
  state.selected = n;
  touch("selected");
}

// -- words -------------------------------------------------------------------------------------------------------------

// Formats a moment: seconds of virtual time, or the time of day (UTC, as in the logs).
export function timeText(t) {
  const wall = state.hello?.wall_ms;
  if (wall === null || wall === undefined) return `${t.toFixed(3)} s`;
  const date = new Date(wall + t * 1000);
  return Number.isNaN(date.getTime()) ? `${t.toFixed(3)} s` : date.toISOString().slice(11, 23);
}

export function seconds(s) {
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  return `${s < 100 ? s.toFixed(1) : Math.round(s)} s`;
}
