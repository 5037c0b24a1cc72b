// Shows the reply to a request while it arrives.

import { element } from "./elements.js";

const MAX_CHARACTERS = 200_000; // Longer replies make pages slow. curl shows them.
const MAX_TEXT = 400; // Longer texts in base64 are shortened.
const BASE64 = /^[A-Za-z0-9+/]+=*$/;

/** Sends a request with `send` and shows the reply in `node`; shows why it failed if it does. */
export async function showReply(node, name, send) {
  const status = element("p", { role: "status" }, "Sending");
  const text = element("pre", { tabIndex: 0, hidden: true });
  text.setAttribute("aria-label", `Reply of ${name}`);
  node.replaceChildren(status, text);
  const started = performance.now();
  try {
    const response = await send();
    const facts = () => {
      const id = response.headers.get("x-request-id");
      const took = Math.round(performance.now() - started);
      return `HTTP ${response.status} after ${took} ms, request id ${id}`;
    };
    status.className = response.ok ? "" : "is-bad";
    status.textContent = facts();
    text.hidden = false;
    await showBody(text, response);
    status.textContent = facts();
  } catch (error) {
    const isStopped = error.name === "AbortError";
    status.className = isStopped ? "" : "is-bad";
    status.textContent = isStopped ? "Stopped" : `Not answered: ${error.message}`;
  }
}

async function showBody(node, response) {
  const type = response.headers.get("content-type") ?? "";
  if (type.startsWith("application/json")) {
    node.textContent = cut(JSON.stringify(await response.json(), (_, value) => shortened(value), 2));
  } else if (type.startsWith("text/event-stream") || response.headers.get("content-disposition") === null) {
    await showStream(node, response.body.pipeThrough(new TextDecoderStream()));
  } else {
    const { size } = await response.blob();
    node.textContent = `A file of ${size} bytes: ${response.headers.get("content-disposition")}`;
  }
}

async function showStream(node, stream) {
  let shown = "";
  const reader = stream.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    shown += value;
    node.textContent = cut(shown);
    if (shown.length > MAX_CHARACTERS) return reader.cancel();
  }
}

/** Returns a value of a reply; of a long text in base64, its beginning and its length. */
function shortened(value) {
  const isLong = typeof value === "string" && value.length > MAX_TEXT && BASE64.test(value);
  return isLong ? `${value.slice(0, 40)}… (${value.length} characters of base64)` : value;
}

function cut(text) {
  if (text.length <= MAX_CHARACTERS) return text;
  return `${text.slice(0, MAX_CHARACTERS)}\n… only the first ${MAX_CHARACTERS} characters are shown`;
}
