// The selected chain as a sequence diagram: processes as lanes, time downwards.

import { html, nothing, render, svg } from "lit-html";
import { chain } from "tidelog/chain.js";
import { causeOf, isAct, isWord, isWrite, select, timeText, touch } from "tidelog/state.js";

const STEPS_MAX = 40;
const CAUSES_MAX = 20;
const LEFT = 96; // for the times
const LINE = 15;
const OUTSIDE = "outside"; // the lane of acts that concern no single process
const ZOOKEEPER = "zookeeper"; // the lane that writes go to

const measure = document.createElement("canvas").getContext("2d");
const root = document.getElementById("diagram");
new ResizeObserver(() => touch("selected")).observe(root);
let drawn = null;
let drawnAt = 0;

export function diagram() {
  const found = chain();
  root.hidden = !found.event;
  const width = root.clientWidth - 28;
  if (width < 100 || (found === drawn && width === drawnAt)) return;
  drawn = found;
  drawnAt = width;
  measure.font = "600 12px system-ui, sans-serif"; // the selected step is bold
  const causes = found.causes.slice(-CAUSES_MAX);
  const steps = [...causes, found.event, ...found.effects].slice(0, STEPS_MAX);
  const left = found.causes.length - causes.length;
  const more = causes.length + 1 + found.effects.length - steps.length;
  const processes = new Set(steps.map((step) => step.process));
  const laneOf = (step) => step.process || struckBy(step, processes);
  const lanes = [...new Set(steps.flatMap((step) => (isWrite(step) ? [step.process, ZOOKEEPER] : [laneOf(step)])))];
  const at = (lane) => LEFT + ((lanes.indexOf(lane) + 0.5) * (width - LEFT)) / lanes.length;
  let y = 12;
  const rows = steps.map((step) => {
    const cause = steps.find(({ n }) => n === causeOf(step)) ?? step;
    const [from, to] = isWrite(step) ? [step.process, ZOOKEEPER] : [laneOf(cause), laneOf(step)];
    const row = place(step, at(from), at(to), width, y, found.roles.get(step.n));
    y += row.height;
    return row;
  });
  render(
    html`<h2>The chain as a diagram</h2>
      ${left ? html`<p class="soft">${left} earlier causes are not drawn.</p>` : nothing}
      <svg class="lanes" width=${width} height="22" aria-hidden="true">
        ${lanes.map((lane) => svg`<text x=${at(lane)} y="15" text-anchor="middle">${short(lane, width / lanes.length)}</text>`)}
      </svg>
      <svg class="sequence" width=${width} height=${y} role="img" aria-label="sequence diagram, ${steps.length} steps">
        ${lanes.map((lane) => svg`<line class="lane" x1=${at(lane)} x2=${at(lane)} y1="0" y2=${y} />`)}
        ${rows.map(drawRow)}
      </svg>
      ${more ? html`<p class="soft">${more}${found.more ? " or more" : ""} later effects are not drawn.</p>` : nothing}`,
    root,
  );
}

export function scrollToDiagram() {
  root.scrollIntoView();
}

// An act is drawn at the process that its text names first.
function struckBy({ text, struck = [] }, processes) {
  return text.split(/[\s,:]+/).find((word) => word && (processes.has(word) || struck.includes(word))) ?? struck[0] ?? OUTSIDE;
}

function short(name, width) {
  const letters = Math.max(3, Math.floor(width / 8));
  return name.length <= letters ? name : `${name.slice(0, letters - 1)}…`;
}

// Decides where a step is drawn. Texts are wrapped by measure, since SVG does not wrap.
function place(step, from, to, width, y, role) {
  const middle = (from + to) / 2;
  const lines = wrap(step.text, Math.min(width - LEFT - 8, Math.max(420, Math.abs(from - to) - 40)));
  const half = Math.max(...lines.map((line) => measure.measureText(line).width)) / 2;
  const x = Math.min(Math.max(middle, LEFT + half), width - half - 4);
  const top = y + 12;
  const arrow = top + (lines.length - 1) * LINE + 9;
  return { step, role, from, to, x, top, arrow, lines, height: lines.length * LINE + 20 };
}

function wrap(text, width) {
  const lines = [];
  let line = "";
  for (const word of text.split(" ")) {
    const longer = line ? `${line} ${word}` : word;
    if (line && measure.measureText(longer).width > width) {
      lines.push(line);
      line = word;
    } else line = longer;
  }
  lines.push(line);
  return lines.length <= 4 ? lines : [...lines.slice(0, 3), `${lines[3]} …`];
}

function drawRow({ step, role, from, to, x, top, arrow, lines }) {
  const kind = isAct(step) ? "act" : isWord(step) ? "say" : "";
  const way = Math.sign(to - from);
  return svg`<g class="step ${role} ${kind}" data-n=${step.n} @click=${() => select(step.n)}>
    <text class="when" x="0" y=${arrow + 4}>${timeText(step.t)}</text>
    ${way
      ? svg`<line x1=${from} x2=${to - 7 * way} y1=${arrow} y2=${arrow} />
          <path class="head" d="M${to - 9 * way},${arrow - 4} L${to - way},${arrow} L${to - 9 * way},${arrow + 4} Z" />`
      : svg`<circle cx=${to} cy=${arrow} r="4" />`}
    ${lines.map((line, i) => svg`<text class="what" x=${x} y=${top + i * LINE} text-anchor="middle">${line}</text>`)}
  </g>`;
}
