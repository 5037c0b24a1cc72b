// Shows one passage: its citation, its scores, and its text. The matched leaves, the terms of the
// query and the sentence to cite are marked in the text.

import { wholeTerms } from "./code_marks.js";
import { button, data, h, newId, tr } from "./dom.js";
import { score } from "./format.js";
import { scrollWithin, spanMark } from "./marked_text.js";
import { pageAt, pageButton } from "./page_view.js";
import { RichText } from "./rich_text.js";
import { scoreList } from "./score_list.js";
import { bindText } from "./translation.js";

export class PassageCard {
  #chunk;
  #marks;
  #content;
  #added = []; // The marks of a leaf or a citation that the user has asked for.
  #page = h("span", {}); // The button that opens the page, if the document's pages can be shown.
  #paged = null; // The scope and the DocumentInfo of such a document.
  #text = h("div", { class: "passage-text rich-text", dir: "auto" });
  #notes = h("span", { class: "card-notes" });
  #expand = button("passage.expand", () => this.#setExpanded(!this.#isExpanded), {
    class: "quiet-button",
    "aria-expanded": "false",
  });

  /**
   * `rank` is the position of the passage among all passages, from 1. `query` is the text that was
   * searched for. `onOpen` is called with an argument for `DocumentView.open`.
   */
  constructor(passage, rank, query, onOpen) {
    this.passage = passage;
    this.#chunk = passage.chunk;
    this.#content = new RichText(passage.chunk);
    this.#marks = passageMarks(passage, query);
    const heading = newId("passage");
    const open = button("passage.open", () => onOpen(this.#target()), { class: "quiet-button" });
    this.element = h(
      "article",
      { class: "card passage", "aria-labelledby": heading, tabindex: "-1" },
      h(
        "header",
        {},
        h("span", { class: "place", "aria-hidden": "true" }, String(rank)),
        this.#citation(heading),
        scoreColumn(passage),
      ),
      this.#text,
      h("footer", {}, this.#expand, open, this.#page, this.#notes),
      this.#leaves(),
    );
    this.paint();
  }

  get #isExpanded() {
    return this.element.classList.contains("is-expanded");
  }

  /** Adds a note below the text, for example that the other setting also found the passage. */
  addNote(node) {
    this.#notes.append(node);
  }

  clearNotes() {
    this.#notes.replaceChildren();
  }

  /** Adds a button that opens the page of the sentence. `info` is the passage's DocumentInfo. */
  offerPage(scope, info) {
    this.#paged = { scope, info };
    this.#paintPage();
  }

  /**
   * Cuts a long text to some lines, and scrolls the text to its first mark. Must be called after
   * `element` was added to the page.
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

  /** Marks a span, shows the whole text of the passage, and scrolls the page to the span. */
  reveal(span) {
    this.#added = [spanMark("aim", span)];
    this.paint();
    this.#paintPage();
    this.#setExpanded(true);
    this.element.focus({ preventScroll: true });
    (this.#text.querySelector(".mark-aim") ?? this.element).scrollIntoView({ block: "center" });
  }

  /** Shows the text again, for example after the user has chosen another form of texts. */
  paint() {
    const nodes = this.#content.nodes([...this.#marks, ...this.#added]);
    this.#text.replaceChildren(...nodes);
  }

  /** The page is that of the leaf or citation that the user has asked for, or of the sentence. */
  #paintPage() {
    if (!this.#paged) return;
    const [asked] = this.#added;
    const { span = {}, firstPage } = this.passage.matchedSentence ?? {};
    const cited = spanMark("cited", span);
    const sentence = asked ? { ...asked, kind: "cited" } : cited;
    const page = asked ? pageAt(this.#chunk, asked.start) : firstPage || this.#chunk.firstPage;
    const marks = [sentence, spanMark("passage", this.#chunk.span ?? {})];
    this.#page.replaceChildren(pageButton(this.#paged.scope, this.#paged.info, page, marks));
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
 * Returns a node with the section path of a chunk or a section. The first section of the path is
 * left out if it equals the title. Returns null if nothing is left of the path.
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

/**
 * Returns a node with the pages of a passage, or its rows or times if the numbers of its pages mean
 * these. It says if text of the pages was recognised in a picture. Returns null if the passage has
 * no page numbers.
 */
export function pageRange({
  firstPage,
  lastPage,
  pageUnit,
  pageStarts = [],
  recognisedPages = [],
}) {
  if (!firstPage) return null;
  const numbers = [firstPage, ...pageStarts.map(({ number }) => number), lastPage];
  const range = h("span", { t: rangeText(numbers, pageUnit) });
  if (!recognisedPages.length) return range;
  return h("span", {}, range, " ", h("span", { t: "page.recognised" }));
}

/** `numbers` are those of all pages, as far as they are known, in order. */
function rangeText(numbers, unit) {
  const [first, last] = [numbers[0], numbers.at(-1)];
  if (unit === "PAGE_UNIT_SECOND") {
    if (first === last) return ["time.one", { time: time(first) }];
    return ["time.several", { first: time(first), last: time(last) }];
  }
  if (unit === "PAGE_UNIT_ROW") {
    // Each sheet counts its rows from 1, so a smaller number is in the next sheet.
    if (numbers.some((number, at) => number < numbers[at - 1])) return ["row.from", { row: first }];
    return first === last ? ["row.one", { row: first }] : ["row.several", { first, last }];
  }
  return first === last ? ["page.one", { page: first }] : ["page.several", { first, last }];
}

/** Returns a number of seconds as hours, minutes and seconds, for example "00:01:12". */
function time(seconds) {
  const parts = [seconds / 3600, (seconds / 60) % 60, seconds % 60];
  return parts.map((part) => String(Math.floor(part)).padStart(2, "0")).join(":");
}

function passageMarks({ chunk, matchedChildren = [], termSpans = [], matchedSentence }, query) {
  const { content = "", span: { charStart = 0 } = {} } = chunk;
  const leaves = matchedChildren.map(({ span }) => spanMark("leaf", span ?? {}));
  const terms = wholeTerms(termSpans, content, charStart, query).map((span) => spanMark("term", span));
  return [
    ...leaves,
    ...terms,
    ...(matchedSentence ? [spanMark("cited", matchedSentence.span ?? {})] : []),
  ];
}
