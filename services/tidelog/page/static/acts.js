// What a reader does to the cluster.

import { html, nothing, render } from "lit-html";
import { command } from "tidelog/source.js";
import { brokerOf, driven, end, nameOf, shown, state, timeText, touch } from "tidelog/state.js";

const GROUPS = { process: "Processes", link: "Links", records: "Records", groups: "Groups", topics: "Topics" };
// Acts of one process that have buttons at it, with the states in which they make sense.
const QUICK = {
  kill: ["up", "paused", "stopping"], start: ["down"], pause: ["up"], resume: ["paused"], restart: ["up"], stop: ["up"],
  heal: ["down", "paused"],
};
const BUTTONS = ["kill", "start", "pause", "resume", "restart", "heal"];

const root = document.getElementById("acts");
const dialog = document.getElementById("confirm");
let values = {};
let focus = false;

export const actOf = (name) => state.hello?.acts?.find((act) => act.do === name);

// Says when an act takes place if the page shows a moment of the past.
export function pastNote() {
  const { t, n } = shown();
  return n >= end().n ? "" : driven() ? `at ${timeText(t)}; later events are dropped` : "now, and not at the moment shown";
}

function isQuick(act) {
  const fields = act?.fields ?? [];
  return fields.some((field) => field.name === "process") && fields.every((field) => field.name === "process" || !field.needed);
}

export function quickActs(process) {
  if (process.kind === "producer" || !state.hello?.acts?.length) return nothing;
  const names = process.kind === "zookeeper" ? ["kill", "start", "heal"] : BUTTONS;
  const fit = names.filter((name) => QUICK[name].includes(process.state) && isQuick(actOf(name)));
  if (!fit.length) return nothing;
  return html`<span class="quick">${fit.map(
    (name) => html`<button data-act=${name} data-on=${process.name} title=${pastNote() || nothing}
      aria-label="${actOf(name).label}: ${process.name}"
      @click=${() => carryOut(actOf(name), { process: process.name })}>${name}</button>`,
  )}</span>`;
}

export function acts() {
  const all = state.hello?.acts ?? [];
  root.hidden = !all.length;
  const groups = [...new Set(all.map((act) => act.group))];
  render(
    html`<h2>Break it</h2>
      ${groups.map((group) => html`<div class="row"><span class="soft">${GROUPS[group] ?? group}</span>
        ${all.filter((act) => act.group === group).map(
          (act) => html`<button data-do=${act.do} title=${act.about ?? nothing} aria-expanded=${state.form === act.do} @click=${() => choose(act.do)}
            >${act.label}</button>`,
        )}</div>`)}
      ${actOf(state.form) ? form(actOf(state.form)) : nothing}`,
    root,
  );
  if (!focus) return;
  focus = false;
  (root.querySelector("form [name]") ?? root.querySelector("form button"))?.focus();
}

// Opens the form of an act, or does it at once if there is nothing to fill in.
export function choose(name, toggle = true) {
  const act = actOf(name);
  if (!act?.fields.length) {
    if (act) carryOut(act, {});
    return;
  }
  state.form = toggle && state.form === name ? "" : name;
  values = Object.fromEntries(act.fields.map((field) => [field.name, field.value ?? firstOf(act, field)]));
  focus = state.form !== "";
  touch("acts");
}

export function closeForm() {
  const was = state.form !== "";
  state.form = "";
  touch("acts");
  return was;
}

// -- the form ----------------------------------------------------------------------------------------------------------

function firstOf(act, field) {
  if (field.kind === "flag") return false;
  const options = optionsOf(field);
  if (!options?.length || !field.needed) return "";
  if (field.kind !== "process" || !QUICK[act.do]) return options[field.name === "to" && options.length > 1 ? 1 : 0];
  const { picture } = shown();
  return picture.processes.find(({ name, state }) => options.includes(name) && QUICK[act.do].includes(state))?.name ?? options[0];
}

// Returns what a field offers; null: any text.
function optionsOf({ kind, choices }) {
  const picture = shown().picture ?? { processes: [], partitions: [], groups: [] };
  const { processes, partitions } = picture;
  switch (kind) {
    case "process":
      return processes.filter(({ kind }) => kind !== "producer" && (!choices?.length || choices.includes(kind)))
        .map(({ name }) => name).sort(brokersFirst);
    case "end":
      return processes.map(({ name }) => name).sort(brokersFirst);
    case "topic":
      return [...new Set(partitions.map(({ topic }) => topic))];
    case "partition":
      return partitions.map(nameOf);
    case "broker":
      return processes.filter((process) => process.kind === "broker").map(({ name }) => String(brokerOf(name)));
    case "group":
      return (picture.groups ?? []).map(({ name }) => name);
    case "choice":
      return (choices ?? []).map(String);
    default:
      return null;
  }
}

const brokersFirst = (one, other) => other.startsWith("broker") - one.startsWith("broker");
const PLACEHOLDERS = { brokers: "0, 1, 2", settings: "key=value, key=value", seconds: "2s", number: "" };

function form(act) {
  const submit = (event) => {
    event.preventDefault();
    send(act);
  };
  return html`<form @submit=${submit} @keydown=${enter}>
    <b>${act.label}</b>${act.about ? html`<small class="soft">${act.about}</small>` : nothing}
    ${act.fields.map((field) => html`<label title=${field.about ?? nothing}>${field.label}${unless(field)} ${input(field)}</label>`)}
    <button class="main" type="submit">Do it</button>
    <small class="warn">${pastNote()}</small>
  </form>`;
}

const unless = ({ needed, value }) => (needed ? "" : value ? ` (default ${value})` : " (optional)");

// Enter opens the list of a select; here it sends the form, as in other fields. Space opens the list.
function enter(event) {
  if (event.key !== "Enter" || event.target.localName !== "select") return;
  event.preventDefault();
  event.currentTarget.requestSubmit();
}

function input(field) {
  const { name, kind, needed } = field;
  const set = (change) => {
    values[name] = kind === "flag" ? change.target.checked : change.target.value;
    touch("acts");
  };
  if (kind === "flag") return html`<input type="checkbox" name=${name} .checked=${values[name]} @change=${set}>`;
  const options = optionsOf(field);
  const isFree = !options || ((kind === "topic" || kind === "partition") && shown().picture?.hidden) || kind === "group";
  if (isFree) {
    return html`<input name=${name} ?required=${needed} list="options-${name}" autocomplete="off" spellcheck="false"
      placeholder=${PLACEHOLDERS[kind] ?? ""} inputmode=${kind === "number" ? "decimal" : "text"}
      .value=${values[name]} @input=${set}>
      <datalist id="options-${name}">${(options ?? []).map((each) => html`<option value=${each}></option>`)}</datalist>`;
  }
  // A chosen value stays on offer, so that a process that goes away does not turn the choice into another one.
  const offered = [...new Set([...(needed ? [] : [""]), ...options, values[name]])];
  return html`<select name=${name} ?required=${needed} @change=${set}>${offered.map(
    (each) => html`<option value=${each} .selected=${each === values[name]}>${each || "–"}</option>`,
  )}</select>`;
}

function send(act) {
  const sent = {};
  for (const field of act.fields) {
    const value = values[field.name];
    if (field.kind === "flag" ? value || field.needed : String(value).trim() !== "") sent[field.name] = encode(field.kind, value);
  }
  carryOut(act, sent);
}

function encode(kind, value) {
  const text = String(value).trim();
  switch (kind) {
    case "flag":
      return value;
    case "number":
    case "broker":
      return Number.isFinite(Number(text)) ? Number(text) : text; // the server says what is wrong with a text
    case "brokers":
      return text.split(/[\s,]+/).filter(Boolean).map((each) => encode("number", each));
    case "seconds":
      return /^-?[\d.]+$/.test(text) ? `${text}s` : text;
    case "settings":
      return Object.fromEntries(text.split(",").map((pair) => pair.split("=")).filter(([name]) => name.trim())
        .map(([name, ...rest]) => [name.trim(), rest.join("=").trim()]));
    default:
      return text;
  }
}

// -- doing it ----------------------------------------------------------------------------------------------------------

async function carryOut(act, sent) {
  if (act.asks && !(await confirmed(act, sent))) return;
  await command({ act: { do: act.do, ...sent } });
}

function confirmed(act, sent) {
  const what = Object.values(sent).map((value) => (typeof value === "object" ? JSON.stringify(value) : String(value))).join(", ");
  render(
    html`<form method="dialog"><p><b>${act.label}</b> ${what}</p><p>This is a real cluster. Do it?</p>
      <button value="yes" class="main">${act.label}</button> <button value="" autofocus>Cancel</button></form>`,
    dialog,
  );
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}
