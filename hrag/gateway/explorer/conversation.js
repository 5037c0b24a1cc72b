// A conversation of the answer view: its turns, and the list that shows them. The turns go with the
// next question, so that it can refer to them.

import { citedText } from "./answer_text.js";
import { button, h } from "./dom.js";
import { whole } from "./format.js";
import { serverInfo } from "./server_info.js";

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

  /**
   * Returns the last turns, as many as the limits of the server allow. A long text is cut to half of
   * the bytes that are allowed, so that the last question and its answer always fit.
   */
  async history() {
    if (!this.#turns.length) return [];
    const { limits } = await serverInfo();
    const fitting = [];
    let left = whole(limits.historyBytes);
    const longest = Math.floor(left / 2);
    for (const turn of this.#turns.slice(-whole(limits.historyTurns)).reverse()) {
      const text = beginning(turn.text, longest);
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
      h("div", { class: "rich-text", dir: "auto" }, citedText(answer, [])),
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

/** Returns the beginning of a text, with at most `most` bytes, and with whole characters. */
function beginning(text, most) {
  const bytes = new TextEncoder().encode(text).subarray(0, most);
  // In a stream, the decoder keeps the bytes of an incomplete character for the next call.
  return new TextDecoder().decode(bytes, { stream: true });
}

function byteCount(text) {
  return new TextEncoder().encode(text).length;
}
