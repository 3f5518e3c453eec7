// The chain of the selected event: what led to it, up to the fault, and what it led to.

import { causeOf, eventOf, shown, state } from "tidelog/state.js";

const CAUSES_MAX = 200;
const EFFECTS_MAX = 500;

const none = { event: null, causes: [], effects: [], more: false, roles: new Map(), processes: new Map(), subjects: new Map() };
let known = none;
let knownFor = "";

// Returns `event`, `causes` from the first on, `effects` by number, whether there are `more` effects, and the role (`cause`,
// `selected`, `effect`) of each event's number, process and subject.
export function chain() {
  const event = state.selected === null ? null : eventOf(state.selected);
  const { n } = shown();
  if (!event || event.n >= n) return none;
  const last = state.events.at(-1);
  const now = `${event.n} ${n} ${state.events[0].n} ${last.n} ${event.t} ${last.t}`;
  if (now !== knownFor) {
    const found = follow(event, n);
    if (!same(found, known)) known = found;
    knownFor = now;
  }
  return known;
}

// An unchanged chain stays the same object, so that views need not be drawn again.
function same(one, other) {
  const { event, causes, effects } = other;
  return one.event === event && one.causes.length === causes.length && one.effects.length === effects.length;
}

function follow(event, before) {
  const causes = causesOf(event);
  const found = new Set([event.n]);
  for (const n of found) {
    for (const effect of state.effects.get(n) ?? []) if (effect < before && found.size <= EFFECTS_MAX) found.add(effect);
  }
  found.delete(event.n);
  const effects = [...found].sort((a, b) => a - b).map(eventOf).filter(Boolean);
  const roles = new Map();
  const processes = new Map();
  const subjects = new Map();
  for (const [role, events] of [["effect", effects], ["cause", causes], ["selected", [event]]]) {
    for (const each of events) {
      roles.set(each.n, role);
      if (each.process) processes.set(each.process, role === "selected" ? "cause" : role);
      if (each.on) subjects.set(each.on, role === "selected" ? "cause" : role);
    }
  }
  return { event, causes, effects, more: found.size >= EFFECTS_MAX, roles, processes, subjects };
}

function causesOf(event) {
  const causes = [];
  const seen = new Set([event.n]); // a damaged recording may name causes in a circle
  for (let each = event; causes.length < CAUSES_MAX; ) {
    const n = causeOf(each);
    each = n === null || seen.has(n) ? null : eventOf(n);
    if (!each) break;
    seen.add(each.n);
    causes.unshift(each);
  }
  return causes;
}
