// The table of one page of documents. Documents in it can be opened and selected.

import { count, countOrDash } from "./format.js";
import { data, h } from "./dom.js";

const HEADS = ["document", "type", "tokens", "chunks", "pages", "sections", "index"];

export class DocumentTable {
  #on;
  #boxes;
  #all = h("input", {
    type: "checkbox",
    tLabel: "documents.select_all",
    onchange: () => this.#selectAll(),
  });

  /**
   * `status` is the response of GetIndexStatus. `onOpen` is called with the id of a document that
   * the user opens, and `onSelect` when `selected` has changed.
   */
  constructor(documents, status, { onOpen, onSelect }) {
    this.#on = { onOpen, onSelect };
    this.#boxes = new Map(documents.map((info) => [info, this.#newBox(info)]));
    const heads = HEADS.map((name) =>
      h("th", { scope: "col", class: `cell-${name}`, t: `documents.${name}` }),
    );
    const head = h("tr", {}, h("td", { class: "cell-select" }, this.#all), heads);
    this.element = h(
      "div",
      { class: "table-scroll", role: "region", tLabel: "documents.caption", tabindex: "0" },
      h(
        "table",
        {},
        h("caption", { class: "unseen", t: "documents.caption" }),
        h("thead", {}, head),
        h(
          "tbody",
          {},
          documents.map((info) => this.#row(info, status)),
        ),
      ),
    );
  }

  /** The documents that are selected. */
  get selected() {
    return [...this.#boxes].filter(([, box]) => box.checked).map(([info]) => info);
  }

  #newBox({ title, documentId }) {
    return h("input", {
      type: "checkbox",
      tLabel: ["documents.select", { name: title || documentId }],
      onchange: () => this.#select(),
    });
  }

  #select() {
    const { length } = this.selected;
    this.#all.checked = length === this.#boxes.size;
    this.#all.indeterminate = length > 0 && length < this.#boxes.size;
    this.#on.onSelect();
  }

  #selectAll() {
    for (const box of this.#boxes.values()) box.checked = this.#all.checked;
    this.#select();
  }

  #row(info, status) {
    const cell = (name, content) => h("td", { class: `cell-${name}` }, content);
    const open = h(
      "button",
      { type: "button", class: "link-button", onclick: () => this.#on.onOpen(info.documentId) },
      data(info.title || info.documentId),
    );
    return h(
      "tr",
      {},
      cell("select", this.#boxes.get(info)),
      h("th", { scope: "row", class: "cell-document" }, open, h("code", {}, data(info.documentId))),
      cell("type", info.mimeType ?? ""),
      cell("tokens", count(info.tokenCount)),
      cell("chunks", (info.chunksPerLevel ?? []).map(count).join(" / ")),
      cell("pages", countOrDash(info.pageCount)),
      cell("sections", countOrDash(info.sectionCount)),
      cell("index", indexBadge(info, status)),
    );
  }
}

/**
 * Returns a badge that says whether the document's leaves are in a segment or in the tail. Both are
 * healthy. Returns an empty text if the engine has no segments.
 */
function indexBadge({ sequence }, { embedded }) {
  if (!embedded) return "";
  const isSealed = BigInt(sequence ?? 0) <= BigInt(embedded.sealedSequence ?? 0);
  return h("span", {
    class: isSealed ? "badge" : "badge badge-tail",
    t: isSealed ? "documents.sealed" : "documents.tail",
    tTitle: isSealed ? "documents.sealed_hint" : "documents.tail_hint",
  });
}
