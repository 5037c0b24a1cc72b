// A conversation of the answer view: its turns, and the list that shows them. The turns go with the
// next question, so that it can refer to them.

import { button, h } from "./dom.js";

// The server refuses more turns and bytes (`historyTurns` and `historyBytes` of GetServerInfo).
const MAX_TURNS = 32;
const MAX_BYTES = 16384;
// The text of one turn is cut to this size, so that the last answer and its question always fit.
const MAX_TURN_BYTES = 7000;

export class Conversation {
  #turns = [];
  #unlisted = null;
  #list = h("ol", { class: "turns" });

  /** `onNew` is called if the user wants a new conversation. It has to call `clear`. */
  constructor(onNew) {
    this.element = h(
      "details",
      { class: "fold conversation", open: true, hidden: true },
      h("summary", { t: "conversation.title" }),
      this.#list,
      button("conversation.new", onNew),
    );
  }

  /** The last turns, as many as a request may have. */
  get history() {
    const fitting = [];
    let left = MAX_BYTES;
    for (const turn of this.#turns.slice(-MAX_TURNS).reverse()) {
      const text = beginning(turn.text);
      left -= byteCount(text);
      if (left < 0) break;
      fitting.unshift({ ...turn, text });
    }
    return fitting;
  }

  /** Adds a question and its answer. */
  add(question, answer) {
    this.#turns.push({ role: "TURN_ROLE_USER", text: question });
    if (answer.trim()) this.#turns.push({ role: "TURN_ROLE_ASSISTANT", text: answer });
    this.#unlisted = h(
      "li",
      {},
      h("p", { class: "asked", dir: "auto" }, question),
      h("p", { dir: "auto" }, answer),
    );
    this.element.hidden = false;
  }

  /** Lists the last answer that was added. Until then, the page shows it elsewhere. */
  listLast() {
    if (this.#unlisted) this.#list.append(this.#unlisted);
    this.#unlisted = null;
  }

  clear() {
    this.#turns = [];
    this.#unlisted = null;
    this.#list.replaceChildren();
    this.element.hidden = true;
  }
}

/** Returns the beginning of a text, with at most `MAX_TURN_BYTES` bytes, and with whole characters. */
function beginning(text) {
  const bytes = new TextEncoder().encode(text).subarray(0, MAX_TURN_BYTES);
  // In a stream, the decoder keeps the bytes of an incomplete character for the next call.
  return new TextDecoder().decode(bytes, { stream: true });
}

function byteCount(text) {
  return new TextEncoder().encode(text).length;
}
