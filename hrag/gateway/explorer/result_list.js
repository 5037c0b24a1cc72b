// Shows the result of a search: warnings, timings, the plan of the search, and the passages.

import { data, facts, h, tr } from "./dom.js";
import { count, score, whole } from "./format.js";
import { emptyState } from "./notices.js";
import { documentsWithPages } from "./page_view.js";
import { PassageCard, pageRange, sections } from "./passage_card.js";
import { sourceSwitch } from "./rich_text.js";
import { requestView } from "./request_view.js";
import { TimingsChart } from "./timings_chart.js";

export class ResultList {
  /**
   * `request` is the SearchRequest of the response. If `hasCode` is true, it is shown as code; an
   * answer's search may differ from it.
   */
  constructor(response, request, { roundTripMs, onOpen, hasCode = false }) {
    this.timings = new TimingsChart(response.timings ?? {}, roundTripMs);
    this.cards = (response.passages ?? []).map(
      (passage, index) => new PassageCard(passage, index + 1, request.text, onOpen),
    );
    const tokens = this.cards.reduce(
      (sum, { passage }) => sum + whole(passage.chunk.tokenCount),
      0,
    );
    this.element = h(
      "div",
      { class: "results" },
      h(
        "p",
        { class: "result-title" },
        h(
          "span",
          {},
          tr("search.found", { n: this.cards.length }),
          " · ",
          tr("passage.tokens", { n: tokens }),
        ),
        this.cards.length > 0 && sourceSwitch(() => this.#paint()),
      ),
      standaloneQuestion(response),
      warnings(response),
      this.timings.element,
      plan(response),
      hasCode && requestView(request),
      chosenSections(response.sections ?? [], onOpen),
      this.cards.length
        ? this.cards.map(({ element }) => element)
        : emptyState("search.none_title", "search.none_text"),
    );
  }

  #paint() {
    for (const card of this.cards) card.paint();
    this.settle();
  }

  /**
   * Adds to the passages of documents whose pages can be shown a button that opens the page. Returns
   * these documents, as a map from their ids to their DocumentInfos.
   */
  async offerPages(session) {
    const { scope } = session;
    const passages = this.cards.map(({ passage }) => passage);
    const documents = await documentsWithPages(session, passages);
    for (const card of this.cards) {
      const info = documents.get(card.passage.chunk.documentId);
      if (info) card.offerPage(scope, info);
    }
    return documents;
  }

  /** Cuts the long texts of passages. Must be called after `element` was added to the page. */
  settle() {
    for (const card of this.cards) card.settle();
  }
}

/** Adds to each passage a note with the positions of passages in the other list that overlap it. */
export function compare(cards, otherCards, otherName) {
  for (const card of cards) {
    const places = otherCards.flatMap((other, index) =>
      overlap(card.passage.chunk, other.passage.chunk) ? [index + 1] : [],
    );
    const key = places.length ? "search.also_in" : "search.only_here";
    card.addNote(
      h("span", {
        class: places.length ? "badge" : "badge badge-only",
        t: [key, { other: otherName, places: places.join(", ") }],
      }),
    );
  }
}

function overlap(chunk, other) {
  const [a, b] = [chunk.span ?? {}, other.span ?? {}];
  return (
    chunk.documentId === other.documentId &&
    whole(a.charStart) < whole(b.charEnd) &&
    whole(b.charStart) < whole(a.charEnd)
  );
}

/** Says what was searched for in place of a question that refers to earlier turns. */
function standaloneQuestion({ standaloneQuestion: question }) {
  return question && h("p", { class: "meta" }, tr("conversation.searched"), " ", data(question.text));
}

function warnings({ fallback, rerankFailure, standaloneQuestion }) {
  const present = [
    ["conversation.failure", standaloneQuestion?.failure],
    ["search.fallback", fallback],
    ["search.rerank_failure", rerankFailure],
  ].filter(([, text]) => text);
  return present.map(([key, text]) => h("p", { class: "warning" }, tr(key), " ", data(text)));
}

function plan(response) {
  const name = (value, prefix) => (value ?? `${prefix}UNSPECIFIED`).slice(prefix.length);
  return h(
    "details",
    { class: "fold" },
    h("summary", {}, tr("plan.title"), " ", h("code", {}, name(response.plan, "SEARCH_PLAN_"))),
    facts([
      ["plan.plan", h("span", { t: `plan.${name(response.plan, "SEARCH_PLAN_")}` })],
      ["option.mode", h("code", {}, name(response.mode, "SEARCH_MODE_"))],
      ["option.retrieval", h("code", {}, name(response.retrieval, "RETRIEVAL_"))],
      ["plan.levels", `${response.matchedAtLevel ?? 0} → ${response.returnedAtLevel ?? 0}`],
      ["plan.eligible", count(response.eligibleLeaves)],
      ["plan.considered", count(response.candidatesConsidered)],
      ["plan.exhausted", tr(response.exhausted ? "plan.yes" : "plan.no")],
      ["plan.reranked", tr(response.reranked ? "plan.yes" : "plan.no")],
      ["plan.sequence", String(response.sequence ?? 0)],
    ]),
  );
}

function chosenSections(chosen, onOpen) {
  if (!chosen.length) return null;
  return h(
    "details",
    { class: "fold", open: true },
    h("summary", { t: ["summary.title", { n: chosen.length }] }),
    h(
      "ol",
      { class: "sections-list" },
      chosen.map((section) => chosenSection(section, onOpen)),
    ),
  );
}

function chosenSection(chosen, onOpen) {
  const { documentId, title, summary, span = {} } = chosen;
  const target = {
    documentId,
    marks: [{ kind: "cited", start: span.charStart ?? 0, end: span.charEnd ?? 0 }],
  };
  return h(
    "li",
    {},
    h("h3", {}, data(title || documentId)),
    sections(chosen),
    h("p", { dir: "auto" }, summary ?? ""),
    h(
      "p",
      { class: "meta" },
      h("span", { class: "number" }, score(chosen.score ?? 0)),
      pageRange(chosen),
      h("button", {
        type: "button",
        class: "quiet-button",
        t: "passage.open",
        onclick: () => onOpen(target),
      }),
    ),
  );
}
