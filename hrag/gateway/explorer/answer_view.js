// Requests an answer and shows it while the model writes it. The passages are shown next to the
// answer, and each citation is a button that shows the cited sentence of its passage. The next
// question may refer to the questions and answers before it.

import { citedText } from "./answer_text.js";
import { answerEvents } from "./connect.js";
import { Conversation } from "./conversation.js";
import { button, data, field, h, tr } from "./dom.js";
import { count, duration, score, whole } from "./format.js";
import { firstSteps } from "./first_steps.js";
import { spanMark } from "./marked_text.js";
import { announce, emptyState, errorBox, loading } from "./notices.js";
import { pageButton } from "./page_view.js";
import { pageRange } from "./passage_card.js";
import { ResultList } from "./result_list.js";
import { SettingForm } from "./setting_form.js";
import { utf16Offsets } from "./text_offsets.js";

export class AnswerView {
  #session;
  #onOpen;
  #go;
  #running = new AbortController();
  #question = h("textarea", {
    rows: "2",
    required: true,
    tPlaceholder: "answer.placeholder",
    onkeydown: (event) => this.#sendOnEnter(event),
  });
  #form = new SettingForm("setting.only", "CONTEXT");
  #stop = button("answer.stop", () => this.#running.abort(), { hidden: true });
  #output = h("div", { class: "answer-output", role: "region", tLabel: "answer.region" });
  #passages = h("div", { class: "result-column", role: "region", tLabel: "answer.passages" });
  #text = "";
  #reasoning = h("div", { class: "reasoning-text", dir: "auto" });
  #fold = h("details", { class: "fold" }, h("summary", { t: "answer.reasoning" }), this.#reasoning);
  #asked = "";
  #list = null;
  #documents = null; // A promise of the documents whose pages can be shown.
  #conversation = new Conversation(() => this.#clear());

  /** `onOpen` is called with an argument for `DocumentView.open`, and `go` with a view's name. */
  constructor(session, onOpen, go) {
    this.#session = session;
    this.#onOpen = onOpen;
    this.#go = go;
    const form = h(
      "form",
      { class: "search-form", onsubmit: (event) => this.#submit(event) },
      h(
        "div",
        { class: "query-row" },
        field("answer.question", this.#question),
        button("answer.run", null, { type: "submit", class: "main-button" }),
        this.#stop,
      ),
      h(
        "details",
        { class: "fold setting-fold" },
        h("summary", { t: "answer.setting" }),
        this.#form.element,
      ),
    );
    this.element = h(
      "div",
      { class: "view answer-view" },
      form,
      this.#conversation.element,
      h("div", { class: "columns" }, this.#output, this.#passages),
    );
    session.addEventListener("change", () => this.#clear());
    session.addEventListener("refresh", () => {
      if (this.#output.querySelector(".empty")) this.#showEmpty();
    });
    this.#clear();
  }

  #clear() {
    this.#running.abort();
    // `#submit` shows the error of a call only if its controller is the current one. So the new
    // controller prevents that the aborted call shows its error.
    this.#running = new AbortController();
    this.#finish();
    this.#conversation.clear();
    this.#showEmpty();
    this.#passages.replaceChildren();
  }

  #showEmpty() {
    this.#output.replaceChildren(
      firstSteps(this.#session, this.#go) ?? emptyState("answer.empty_title", "answer.empty_text"),
    );
  }

  #sendOnEnter(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    event.target.form.requestSubmit();
  }

  async #submit(event) {
    event.preventDefault();
    this.#running.abort();
    this.#running = new AbortController();
    const { signal } = this.#running;
    this.#begin();
    try {
      const history = await this.#conversation.history();
      const search = { ...this.#session.scope, text: this.#asked, ...this.#form.request };
      const events = answerEvents({ search, history, reasoning: true }, signal);
      for await (const { name, value } of events) this.#show(name, value);
    } catch (error) {
      if (signal === this.#running.signal) this.#fail(error);
    } finally {
      if (signal === this.#running.signal) this.#finish();
    }
  }

  #begin() {
    this.#text = "";
    this.#reasoning.replaceChildren();
    this.#fold.hidden = true;
    this.#fold.open = false;
    this.#asked = this.#question.value;
    this.#list = null;
    this.#conversation.listLast();
    this.#began = performance.now();
    this.#stop.hidden = false;
    this.#passages.replaceChildren();
    this.#output.replaceChildren(this.#fold, loading());
    this.#output.setAttribute("aria-busy", "true");
  }

  #began = 0;

  #show(name, value) {
    if (name === "passages") this.#showPassages(value);
    else if (name === "reasoning") this.#showReasoning(value);
    else if (name === "text") this.#showText(value);
    else if (name === "end") this.#showEnd(value);
  }

  #showPassages(response) {
    this.#list = new ResultList(
      response,
      { text: response.standaloneQuestion?.text ?? this.#asked },
      { roundTripMs: performance.now() - this.#began, onOpen: this.#onOpen },
    );
    this.#passages.replaceChildren(this.#list.element);
    this.#list.settle();
    this.#documents = this.#list.offerPages(this.#session);
  }

  #showReasoning(piece) {
    this.#reasoning.append(piece);
    this.#fold.hidden = false;
  }

  #showText(piece) {
    this.#text += piece;
    this.#output.replaceChildren(
      this.#fold,
      h(
        "div",
        { class: "answer-text rich-text is-writing", dir: "auto" },
        citedText(this.#text, []),
      ),
    );
  }

  #showEnd(end) {
    const citations = end.citations ?? [];
    const shown = citedText(this.#text, citations, (number, citation) =>
      this.#reveal(number, citation),
    );
    const finish = (end.finishReason ?? "FINISH_REASON_UNSPECIFIED").slice("FINISH_REASON_".length);
    const isEmpty = finish === "FAILED" && !this.#text;
    const reason = isEmpty ? "finish.FAILED_EARLY" : `finish.${finish}`;
    const parts = [
      this.#fold,
      this.#text && h("div", { class: "answer-text rich-text", dir: "auto" }, shown),
      h(
        "p",
        { class: finish === "STOP" ? "meta" : "warning" },
        tr(reason),
        " ",
        end.error && data(end.error.message ?? ""),
      ),
      end.model && usage(end),
      citations.length > 0 && this.#citationList(citations),
    ];
    this.#output.replaceChildren(...parts.filter(Boolean));
    if (finish !== "FAILED") this.#conversation.add(this.#asked, this.#text);
    announce(reason);
  }

  #citationList(citations) {
    const offset = utf16Offsets(this.#text);
    const row = (citation) => {
      const statement = this.#text.slice(
        offset(citation.statementStart ?? 0),
        offset(citation.statementEnd ?? 0),
      );
      return h(
        "li",
        {},
        h(
          "button",
          {
            type: "button",
            class: "cite",
            tLabel: ["answer.cite", { number: citation.marker }],
            onclick: () => this.#reveal(citation.marker, citation),
          },
          String(citation.marker),
        ),
        h(
          "div",
          {},
          h("div", { class: "rich-text statement", dir: "auto" }, citedText(statement, [])),
          h(
            "p",
            { class: "meta" },
            h("code", {}, data(citation.chunkId)),
            pageRange(citation),
            citation.score !== undefined &&
              h("span", { t: ["answer.nearness", { score: score(citation.score) }] }),
            this.#citedPage(citation),
          ),
        ),
      );
    };
    return h(
      "section",
      { class: "citations" },
      h("h3", {}, tr("answer.citations")),
      h("ol", {}, citations.map(row)),
    );
  }

  /** Returns a node that gets a button for the page of a citation, if the page can be shown. */
  #citedPage({ marker, documentId, firstPage, span = {} }) {
    const slot = h("span", {});
    const { scope } = this.#session;
    const passage = this.#list.cards[marker - 1]?.passage.chunk.span ?? {};
    const marks = [spanMark("cited", span), spanMark("passage", passage)];
    this.#documents?.then((documents) => {
      const info = documents.get(documentId);
      if (info && firstPage) slot.append(pageButton(scope, info, firstPage, marks));
    });
    return slot;
  }

  #reveal(number, citation) {
    this.#list?.cards[number - 1]?.reveal(citation?.span ?? {});
  }

  #fail(error) {
    if (error.name === "AbortError")
      this.#output.append(h("p", { class: "warning", t: "answer.stopped" }));
    else this.#output.append(errorBox(error));
  }

  #finish() {
    this.#stop.hidden = true;
    this.#output.setAttribute("aria-busy", "false");
    this.#output.querySelector(".loading")?.remove();
    this.#output.querySelector(".is-writing")?.classList.remove("is-writing");
  }
}

function usage({ model, promptTokens, completionTokens, firstTextUs, totalUs }) {
  return h(
    "p",
    { class: "meta" },
    data(model),
    tr("answer.usage", { prompt: count(promptTokens), text: count(completionTokens) }),
    whole(firstTextUs)
      ? tr("answer.times", { first: duration(firstTextUs), total: duration(totalUs) })
      : tr("answer.total", { total: duration(totalUs) }),
  );
}
