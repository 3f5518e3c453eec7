// Where messages come from, and where commands go.

import { fail, state, take, touch } from "tidelog/state.js";

const AGAIN_MS = 2_000;

export function open() {
  const saved = document.getElementById("saved");
  if (saved) {
    document.getElementById("incomplete").remove();
    state.saved = true;
    JSON.parse(saved.textContent).every(take);
    return;
  }
  const stream = new EventSource("./stream");
  stream.onopen = () => connected(true);
  stream.onmessage = ({ data }) => {
    if (!take(JSON.parse(data))) stream.close();
  };
  stream.onerror = () => {
    connected(false);
    if (stream.readyState !== EventSource.CLOSED) return;
    stream.close(); // an answer that is no stream, such as 503: the browser itself does not try again
    reason();
    setTimeout(open, AGAIN_MS);
  };
}

// An EventSource does not tell what the server has said.
async function reason() {
  const control = new AbortController();
  try {
    const answer = await fetch("./stream", { signal: control.signal });
    if (!answer.ok) fail((await answer.text()).trim());
  } catch {
    // the band says that there is no connection
  } finally {
    control.abort();
  }
}

function connected(is) {
  if (state.connected === is) return;
  state.connected = is;
  touch("bands");
}

const token = () => new URLSearchParams(location.hash.slice(1)).get("token") ?? "";

// Asks the server for something. Returns its answer; null if there is none, and then says why.
async function ask(path, body, undone) {
  const headers = { "Content-Type": "application/json", "X-Tidelog-Token": token() };
  try {
    const answer = await fetch(path, { method: "POST", headers, body: JSON.stringify(body) });
    if (answer.ok) return answer;
    const { error } = await answer.json().catch(() => ({}));
    fail(error || `refused, status ${answer.status}`);
  } catch {
    fail(`The server does not answer. ${undone}`);
  }
  return null;
}

export const command = (body) => ask("./do", body, "Nothing was done.");

export async function save(as) {
  const answer = await ask("./save", { as }, "Nothing was saved.");
  if (!answer) return;
  const name = /filename="?([^";]+)"?/.exec(answer.headers.get("Content-Disposition") ?? "");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = name?.[1] ?? (as === "page" ? "tidelog.html" : "tidelog.yaml");
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
