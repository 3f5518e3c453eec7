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

function post(path, body) {
  const headers = { "Content-Type": "application/json", "X-Tidelog-Token": token() };
  return fetch(path, { method: "POST", headers, body: JSON.stringify(body) });
}

async function refusal(answer) {
  const text = await answer.text();
  try {
    return JSON.parse(text).error || `refused, status ${answer.status}`;
  } catch {
    return `refused, status ${answer.status}`;
  }
}

// Sends a command. Returns whether the server has taken it.
export async function command(body) {
  try {
    const answer = await post("./do", body);
    if (answer.ok) return true;
    fail(await refusal(answer));
  } catch {
    fail("The server does not answer. Nothing was done.");
  }
  return false;
}

export async function save(as) {
  try {
    const answer = await post("./save", { as });
    if (!answer.ok) {
      fail(await refusal(answer));
      return;
    }
    const name = /filename="?([^";]+)"?/.exec(answer.headers.get("Content-Disposition") ?? "");
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await answer.blob());
    link.download = name?.[1] ?? (as === "page" ? "tidelog.html" : "tidelog.yaml");
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  } catch {
    fail("The server does not answer. Nothing was saved.");
  }
}
