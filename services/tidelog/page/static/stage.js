// The cluster at the moment shown: processes as boxes, partitions as rows, replicas as bars.

import { html, nothing, render, svg } from "lit-html";
import { pastNote, quickActs } from "tidelog/acts.js";
import { chain } from "tidelog/chain.js";
import { brokerOf, nameOf, seconds, shown, state } from "tidelog/state.js";

const COLOURS = 6;
const SPANS = [16, 32, 64, 128, 256, 512, 1024]; // offsets that a bar shows; of a log that is further behind the end is not drawn

const root = document.getElementById("stage");
let drawn = [];

export function stage(changed) {
  const { picture } = shown();
  const found = chain();
  const busy = state.time?.busy;
  const past = !busy && state.hello?.acts?.length ? pastNote() : "";
  const note = past ? `what you do happens ${past}` : state.cut;
  const says = state.lesson?.says;
  const now = [picture, found, note, says, busy?.text, busy?.share];
  if (now.every((each, i) => each === drawn[i]) && !changed.has("hello")) return;
  drawn = now;
  root.classList.toggle("busy", Boolean(busy));
  const work = busy ? html`<p id="busy"><progress max="1" value=${busy.share}></progress> ${busy.text}</p>` : nothing;
  if (!picture) return render(html`<h2>Stage</h2><p class="soft">waiting for the first picture</p>${work}`, root);
  const brokers = brokersOf(picture);
  const others = picture.processes.filter((process) => process.kind !== "broker");
  const [below, above] = [true, false].map((is) => others.filter(({ kind }) => (kind === "agent") === is));
  return render(
    html`<div class="row"><h2>Stage</h2>${says ? html`<span class="says" id="says">${says}</span>` : nothing}
        <small class="warn" id="note">${note}</small></div>
      <div class="boxes">${above.map((process) => box(process, found))}</div>
      <div class="wide"><table class=${brokers.length > 5 ? "many" : ""}>
        <thead><tr><th class="name"><span class="soft">partition</span></th>
          ${brokers.map((process) => html`<th data-process=${process.name} class=${look(process, found)}>${about(process)}</th>`)}
        </tr></thead>
        <tbody>${picture.partitions.map((partition) => row(partition, brokers, found))}</tbody>
      </table></div>
      ${picture.partitions.length ? nothing : html`<p class="soft">There is no partition yet.</p>`}
      ${picture.hidden
        ? html`<p class="warn" id="hidden">${picture.hidden} more partitions are not shown.</p>`
        : nothing}
      ${picture.faults?.length
        ? html`<ul class="faults">${picture.faults.map((fault) => html`<li>${fault}</li>`)}</ul>` : nothing}
      ${below.length ? html`<div class="boxes">${below.map((process) => box(process, found))}</div>` : nothing}
      ${(picture.groups ?? []).map((group) => groupBox(group, found))}
      ${legend}${work}`,
    root,
  );
}

// -- processes ---------------------------------------------------------------------------------------------------------

function brokersOf(picture) {
  const brokers = picture.processes.filter((process) => process.kind === "broker");
  const known = new Set(brokers.map((process) => brokerOf(process.name)));
  for (const { replicas } of picture.partitions) {
    for (const { broker } of replicas) {
      if (known.has(broker)) continue;
      known.add(broker);
      brokers.push({ name: `broker-${broker}`, kind: "broker", state: "unknown", note: "", faults: [] });
    }
  }
  return brokers.sort((one, other) => brokerOf(one.name) - brokerOf(other.name));
}

function look(process, { processes }) {
  return `${process.state} ${processes.get(process.name) ?? ""} ${/\bactive\b/.test(process.note ?? "") ? "active" : ""}`;
}

function box(process, found) {
  return html`<div class="box ${look(process, found)}" data-process=${process.name}>${about(process)}</div>`;
}

function about(process) {
  const up = process.state === "up";
  return html`<b>${process.name}</b>
    <small>${up ? "" : html`<em>${process.state}</em> `}${process.note || (up ? "up" : "")}</small>
    ${(process.faults ?? []).map((fault) => html`<small class="fault">${fault}</small>`)}
    ${quickActs(process)}`;
}

// -- partitions --------------------------------------------------------------------------------------------------------

function row(partition, brokers, { subjects }) {
  const name = nameOf(partition);
  const view = windowOf(partition.replicas);
  const { leader, epoch, isr, pending, stands } = partition;
  return html`<tr data-partition=${name} class=${subjects.get(name) ?? ""}>
    <th class="name" scope="row" title=${name}><b>${name}</b>
      <small>${leader < 0 ? html`<em>no leader</em>, ` : nothing}epoch ${epoch}, ISR ${isr.join(",") || "empty"}</small>
      ${pending ? html`<small class="warn">asked for: ${pending.join(",") || "empty"}</small>` : nothing}
      ${stands ? html`<small class="warn">high watermark has not moved for ${seconds(stands.seconds)}: ${stands.why}</small>` : nothing}</th>
    ${brokers.map((process) => {
      const broker = brokerOf(process.name);
      const replica = partition.replicas.find((each) => each.broker === broker);
      return html`<td data-broker=${broker}>${replica ? bar(replica, partition, view) : nothing}</td>`;
    })}
  </tr>`;
}

// All bars of a row show the same offsets, up to the longest log, so that differences can be seen.
function windowOf(replicas) {
  const known = replicas.filter((replica) => replica.end >= 0);
  const end = Math.max(0, ...known.map((replica) => replica.end));
  const first = Math.min(end, ...known.flatMap(({ end, high }) => (high < 0 ? [end] : [end, high])));
  const span = SPANS.find((each) => each >= (end - first) * 1.3) ?? SPANS.at(-1);
  const step = span / 4; // The window moves in steps, so that a bar is seen to grow.
  const from = Math.max(0, Math.ceil((end - span) / step) * step);
  return { from, to: from + span };
}

function bar(replica, partition, view) {
  const { broker, state, leads, start, end, high, epochs } = replica;
  const isIn = partition.isr.includes(broker);
  const isAsked = !isIn && (partition.pending ?? []).includes(broker);
  const gone = state === "down" || state === "offline" || state === "unknown";
  const fill = gone ? "gone" : isIn ? "in" : isAsked ? "asked" : "out";
  const is = broker === partition.leader;
  const words = [
    is ? (leads || gone ? "leads" : "is to lead") : leads && !gone ? "believes it leads" : "",
    state === "up" ? "" : state,
    isIn ? "" : isAsked ? "asked for" : "not in sync",
  ].filter(Boolean);
  const x = (offset) => (100 * (Math.min(Math.max(offset, view.from), view.to) - view.from)) / (view.to - view.from);
  const known = end >= 0;
  const label = `${partition.topic}-${partition.number} on broker-${broker}: ${words.join(", ") || "in sync"}` +
    (known ? `, log end ${end}, high watermark ${high < 0 ? "unknown" : high}` : ", log not known");
  return svg`<svg class="log ${fill} ${is ? "leader" : ""}" role="img" aria-label=${label}>
    <text class="words" x="0" y="10">${is ? "★ " : ""}${words.join(", ")}</text>
    <line class="track" x1="0" x2="100%" y1="27.5" y2="27.5" />
    ${known ? segments(start, end, epochs, x, view) : svg`<text x="0" y="24">not known</text>`}
    ${known ? svg`<text class="end" x="${x(end)}%" dx="4" y="24">${end < view.from ? "‹ " : ""}${end}</text>` : nothing}
    ${high >= 0 && known
      ? svg`<rect class="high" x="${x(high)}%" y="12" width="2" height="19" />
          <text class="hw" x="${x(high)}%" y="41" text-anchor=${x(high) < 12 ? "start" : "middle"}>${high}</text>`
      : nothing}
  </svg>`;
}

function segments(start, end, epochs, x, view) {
  const entries = epochs.length ? epochs : [[-1, start]];
  return entries.map(([epoch, first], i) => {
    const from = Math.max(first, start, view.from);
    const to = Math.min(i + 1 < entries.length ? entries[i + 1][1] : end, end);
    if (to <= from) return nothing;
    const width = x(to) - x(from);
    const colour = (epoch < 0 ? 0 : epoch) % COLOURS;
    return svg`<rect class="seg c${colour}" x="${x(from)}%" y="15" width="${width}%" height="12" />
      ${width > 16 && epoch >= 0
        ? svg`<text class="epoch t${colour}" x="${x(from)}%" dx="3" y="24.5">e${epoch}</text>`
        : nothing}`;
  });
}

// -- groups ------------------------------------------------------------------------------------------------------------

function groupBox(group, { subjects }) {
  const owned = new Map(group.members.map(({ name }) => [name, []]));
  const notes = new Map(group.members.map(({ name, note }) => [name, note]));
  for (const each of group.partitions) {
    const owner = each.owner || "no owner";
    if (!owned.has(owner)) owned.set(owner, []);
    owned.get(owner).push(each);
  }
  return html`<div class="group ${subjects.get(group.name) ?? ""}" data-group=${group.name}>
    <b>group ${group.name}</b>
    <small>${group.phase}, generation ${group.generation}, coordinator ${group.coordinator || "none"}</small>
    <table><thead><tr><th>member</th><th>partitions, with the offsets committed / processed</th></tr></thead><tbody>
      ${[...owned].map(([member, partitions]) => html`<tr data-member=${member}><th scope="row">${member}
        ${notes.get(member) ? html`<small class="warn">${notes.get(member)}</small>` : nothing}</th><td>
        ${partitions.length ? partitions.map((each) => html`<span class="owned">${nameOf(each)}
          <small>${offset(each.committed)} / ${offset(each.processed)}</small></span> `) : html`<span class="soft">none</span>`}
      </td></tr>`)}
    </tbody></table></div>`;
}

const offset = (value) => (value < 0 ? "?" : value);

const sample = (fill, word) => html`<span><svg class="log ${fill} sample" aria-hidden="true">
  <rect class="seg c0" x="1" y="1" width="20" height="9" /></svg>${word}</span>`;
const patterns = html`<svg id="patterns" width="0" height="0" aria-hidden="true">${Array.from({ length: COLOURS }, (_, i) => svg`
  <pattern id="hatch-${i}" class="c${i}" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
  <path d="M1,0V5" /></pattern>`)}</svg>`;
const legend = html`<div class="legend">${patterns}
  ${sample("in", "in the ISR")}${sample("asked", "asked for")}${sample("out", "not in sync")}${sample("gone", "down")}
  <span><svg class="log sample" aria-hidden="true"><rect class="high" x="9" width="2" height="12" /></svg>high watermark</span>
  <span>numbers: log end (right), high watermark (below)</span>
  <span>★ leader</span><span>colour and e<i>n</i>: leader epoch <i>n</i></span></div>`;
