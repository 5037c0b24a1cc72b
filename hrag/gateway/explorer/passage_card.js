// Shows one passage: its citation, its scores, and its text. In the text all places are marked that
// the response contains: matched leaves, terms of the query, and the sentence to cite.

import { button, data, h, newId, tr } from "./dom.js";
import { score } from "./format.js";
import { markedText, scrollWithin, spanMark } from "./marked_text.js";
import { scoreList } from "./score_list.js";
import { bindText } from "./translation.js";

export class PassageCard {
  #chunk;
  #marks;
  #text = h("div", { class: "passage-text", dir: "auto" });
  #notes = h("span", { class: "card-notes" });
  #expand = button("passage.expand", () => this.#setExpanded(!this.#isExpanded), {
    class: "quiet-button",
    "aria-expanded": "false",
  });

  /**
   * `place` is the position among the passages, from 1. `onOpen` is called with the target of
   * `DocumentView.open`.
   */
  constructor(passage, place, onOpen) {
    this.passage = passage;
    this.#chunk = passage.chunk;
    this.#marks = passageMarks(passage);
    const heading = newId("passage");
    const open = button("passage.open", () => onOpen(this.#target()), { class: "quiet-button" });
    this.element = h(
      "article",
      { class: "card passage", "aria-labelledby": heading, tabindex: "-1" },
      h(
        "header",
        {},
        h("span", { class: "place", "aria-hidden": "true" }, String(place)),
        this.#citation(heading),
        scoreColumn(passage),
      ),
      this.#text,
      h("footer", {}, this.#expand, open, this.#notes),
      this.#leaves(),
    );
    this.#paint();
  }

  get #isExpanded() {
    return this.element.classList.contains("is-expanded");
  }

  /** Adds a note, for example that the other setting also found the passage. */
  addNote(node) {
    this.#notes.append(node);
  }

  /**
   * Cuts the text after some lines and scrolls it to the first match. The element must be on the
   * page.
   */
  settle() {
    const isLong = this.#text.scrollHeight > this.#text.clientHeight + 8;
    this.#expand.hidden = !isLong;
    this.#text.classList.toggle("is-cut", isLong);
    const places = [".mark-cited", ".mark-term", ".mark-leaf"].map((mark) =>
      this.#text.querySelector(mark),
    );
    scrollWithin(this.#text, places.find(Boolean));
  }

  /** Marks a span, expands the text and brings both into view. */
  reveal(span) {
    this.#paint([spanMark("aim", span)]);
    this.#setExpanded(true);
    this.element.focus({ preventScroll: true });
    (this.#text.querySelector(".mark-aim") ?? this.element).scrollIntoView({ block: "center" });
  }

  #paint(addedMarks = []) {
    const start = this.#chunk.span?.charStart ?? 0;
    this.#text.replaceChildren(
      ...markedText(this.#chunk.content ?? "", start, [...this.#marks, ...addedMarks]),
    );
  }

  #setExpanded(isExpanded) {
    this.element.classList.toggle("is-expanded", isExpanded);
    this.#expand.setAttribute("aria-expanded", String(isExpanded));
    bindText(this.#expand, "", isExpanded ? "passage.cut" : "passage.expand");
  }

  #target() {
    const { documentId, chunkId } = this.#chunk;
    return { documentId, chunkId, marks: this.#marks };
  }

  #citation(id) {
    const { title, documentId, chunkId, level = 0, tokenCount = 0, source } = this.#chunk;
    return h(
      "div",
      { class: "citation" },
      h("h3", { id }, data(title || documentId)),
      sections(this.#chunk),
      h(
        "p",
        { class: "meta" },
        h("code", {}, data(chunkId)),
        h("span", { t: ["passage.level", { level }] }),
        h("span", { t: ["passage.tokens", { n: tokenCount }] }),
        pageRange(this.#chunk),
        source && ![title, documentId].includes(source) && data(source, "source"),
      ),
    );
  }

  #leaves() {
    const { matchedChildren = [], mergedChunkIds = [] } = this.passage;
    const rows = matchedChildren.map((leaf) => this.#leaf(leaf));
    return h(
      "details",
      { class: "fold leaves" },
      h("summary", { t: ["passage.leaves", { n: matchedChildren.length }] }),
      h("ol", {}, rows),
      mergedChunkIds.length > 0 &&
        h(
          "p",
          { class: "hint" },
          tr("passage.merged"),
          " ",
          h("code", {}, data(mergedChunkIds.join(" "))),
        ),
    );
  }

  #leaf(leaf) {
    const mark = button("passage.show_leaf", () => this.reveal(leaf.span ?? {}), {
      class: "quiet-button",
    });
    return h(
      "li",
      {},
      h("code", {}, data(leaf.chunkId)),
      h("span", { class: "number" }, score(leaf.score ?? 0)),
      scoreList(leaf),
      mark,
    );
  }
}

function scoreColumn(passage) {
  const total = h(
    "p",
    { class: "score-total" },
    h("span", { class: "unseen", t: "score.total" }),
    score(passage.score ?? 0),
  );
  return h("div", { class: "score-column" }, total, scoreList(passage));
}

/**
 * Returns the section path of a chunk or a section, without a first section that repeats the title.
 * Returns null if the path is empty.
 */
export function sections({ title, sectionPath = [] }) {
  const path = sectionPath[0] === title ? sectionPath.slice(1) : sectionPath;
  return path.length
    ? h(
        "p",
        { class: "sections" },
        path.map((section) => data(section, "crumb")),
      )
    : null;
}

/** Returns the pages of a passage; null if its document has no pages. */
export function pageRange({ firstPage, lastPage }) {
  if (!firstPage) return null;
  if (firstPage === lastPage) return h("span", { t: ["page.one", { page: firstPage }] });
  return h("span", { t: ["page.several", { first: firstPage, last: lastPage }] });
}

function passageMarks({ matchedChildren = [], termSpans = [], matchedSentence }) {
  const leaves = matchedChildren.map(({ span }) => spanMark("leaf", span ?? {}));
  const terms = termSpans.map((span) => spanMark("term", span));
  return [
    ...leaves,
    ...terms,
    ...(matchedSentence ? [spanMark("cited", matchedSentence.span ?? {})] : []),
  ];
}
