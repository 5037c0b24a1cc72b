// One document: its chunks as a tree and as a map of levels, and the text of one top-level chunk
// with the span of a chunk shown in it. Only that text and the chunks below it are read, so a long
// document is as quick as a short one.

import { changeAddress } from "./address.js";
import { call } from "./connect.js";
import { button, data, facts, h, tr } from "./dom.js";
import { ChunkTree } from "./chunk_tree.js";
import { count, countOrDash, size, whole } from "./format.js";
import { LevelMap } from "./level_map.js";
import { markedText, scrollWithin, spanMark } from "./marked_text.js";
import { fill } from "./notices.js";
import { pageRange, sections } from "./passage_card.js";
import { utf16Offsets } from "./text_offsets.js";

const MOST_LEVELS = 8;
const PREVIEW_CHARS = 80;

export class DocumentView {
  #session;
  #info;
  #nodes; // By chunk id: ChunkNode, of the chunks that were read.
  #top; // The top-level chunk whose text is shown.
  #wanted; // The latest reading of a chunk.
  #offset; // From code points of that text to its UTF-16 units.
  #selected;
  #running = new AbortController();
  #marks = []; // What a search marked.
  #tree;
  #map;
  #body = h("div", {});
  #chunkFacts = h("div", { class: "chunk-facts" });
  #text = h("div", {
    class: "document-text",
    dir: "auto",
    tabindex: "0",
    role: "region",
    tLabel: "document.text",
  });

  constructor(session, onClose) {
    this.#session = session;
    this.element = h(
      "div",
      { class: "view document-view", hidden: true },
      button("document.back", onClose, { class: "quiet-button back" }),
      this.#body,
    );
  }

  /**
   * Opens a document at `chunkId`, or else where its first mark is, or at its start. A chunk of
   * another document, which an address may name, is ignored.
   */
  async open({ documentId, chunkId, marks = [] }) {
    const isOwn = chunkId?.startsWith(`${documentId}#`);
    const target = { documentId, chunkId: isOwn ? chunkId : "", marks };
    this.#running.abort();
    this.#running = new AbortController();
    const work = () => this.#load(target);
    if (!(await fill(this.#body, work, () => this.open(target)))) return;
    this.#select(target.chunkId || this.#chunkAt(this.#place) || this.#top.chunk.chunkId);
    scrollWithin(this.#text, this.#text.querySelector(".mark-cited"));
    this.#body.querySelector("h2").focus();
  }

  async #load({ documentId, chunkId, marks }) {
    const request = { ...this.#session.scope, documentId };
    const { signal } = this.#running;
    this.#info = (await call("IndexerService/GetDocument", request, signal)).document;
    this.#nodes = new Map();
    this.#marks = marks;
    await this.#read(chunkId || `${documentId}#${this.#topLevel}.0`);
    if (!chunkId) await this.#readAround(this.#place);
    return this.#layout();
  }

  /** The first code point of the place to cite or of another mark; undefined without any. */
  get #place() {
    return (this.#marks.find(({ kind }) => kind === "cited") ?? this.#marks[0])?.start;
  }

  get #topLevel() {
    return this.#info.chunksPerLevel.length - 1;
  }

  /** Reads a chunk's top-level chunk with all that is below it; the latest call counts. */
  async #read(chunkId) {
    const wanted = (this.#wanted = Symbol(chunkId));
    let found = await this.#hierarchy(chunkId);
    if (found.ancestors?.length)
      found = await this.#hierarchy(found.ancestors.at(-1).chunk.chunkId);
    if (wanted !== this.#wanted) return;
    for (const node of [...(found.siblings ?? []), found.node, ...(found.descendants ?? [])])
      this.#nodes.set(node.chunk.chunkId, node);
    this.#top = found.node;
    this.#offset = utf16Offsets(found.node.chunk.content);
  }

  #hierarchy(chunkId) {
    return call(
      "RetrieverService/GetHierarchy",
      { ...this.#session.scope, chunkId, depth: MOST_LEVELS },
      this.#running.signal,
    );
  }

  #layout() {
    this.#tree = new ChunkTree(this.#nodes, {
      onSelect: (chunkId) => this.#select(chunkId),
      onPreview: (chunkId) => this.#paint(chunkId),
      preview: (node) => this.#firstWords(node),
    });
    this.#map = new LevelMap({
      onSelect: (chunkId) => this.#select(chunkId),
      onPreview: (chunkId) => this.#paint(chunkId),
    });
    const panes = h(
      "div",
      { class: "document-panes" },
      this.#tree.element,
      h("div", { class: "text-pane" }, this.#chunkFacts, this.#text),
    );
    return [this.#header(), this.#map.element, panes];
  }

  #header() {
    const info = this.#info;
    const metadata = Object.entries(info.metadata ?? {});
    return h(
      "header",
      { class: "document-header" },
      h("h2", { tabindex: "-1" }, data(info.title || info.documentId)),
      h(
        "p",
        { class: "meta" },
        h("code", {}, data(info.documentId)),
        info.source && info.source !== info.documentId && data(info.source, "source"),
      ),
      facts(
        [
          ["documents.type", info.mimeType ?? ""],
          ["documents.tokens", count(info.tokenCount)],
          ["status.text", size(info.textBytes)],
          ["documents.pages", countOrDash(info.pageCount)],
          ["documents.sections", countOrDash(info.sectionCount)],
          ["status.sequence", String(info.sequence ?? 0)],
        ],
        "figures",
      ),
      metadata.length > 0 &&
        h(
          "details",
          { class: "fold" },
          h("summary", { t: ["document.metadata", { n: metadata.length }] }),
          metadataList(metadata),
        ),
    );
  }

  async #readAround(place) {
    const around = [...this.#nodes.values()].find(
      (node) => whole(node.chunk.level) === this.#topLevel && holds(node, place),
    );
    if (around && around !== this.#top) await this.#read(around.chunk.chunkId);
  }

  #chunkAt(place) {
    if (place === undefined) return "";
    const around = [...this.#nodes.values()].filter((node) => holds(node, place));
    return (
      around.sort((a, b) => whole(a.chunk.level) - whole(b.chunk.level))[0]?.chunk.chunkId ?? ""
    );
  }

  /** Selects a chunk; reads its text first if it is another top-level chunk's. */
  async #select(chunkId) {
    const read = () => this.#read(chunkId).then(() => []);
    const again = () => this.#select(chunkId);
    if (!this.#isShown(chunkId) && !(await fill(this.#chunkFacts, read, again))) return;
    this.#selected = chunkId;
    changeAddress({ doc: this.#info.documentId, chunk: chunkId });
    this.#tree.show(chunkId, this.#top.chunk.chunkId);
    this.#map.show(this.#nodes, this.#top.chunk.chunkId, chunkId);
    this.#chunkFacts.replaceChildren(chunkFacts(this.#nodes.get(chunkId)));
    this.#paint(chunkId);
    scrollWithin(this.#text, this.#text.querySelector(".mark-chunk"));
  }

  #isShown(chunkId) {
    let node = this.#nodes.get(chunkId);
    while (node?.parentId) node = this.#nodes.get(node.parentId);
    return node === this.#top;
  }

  /** Marks the span of a chunk, by default the selected one, and what it shares with its neighbours. */
  #paint(chunkId = this.#selected) {
    const isHere = this.#isShown(chunkId);
    const own = isHere
      ? [spanMark("chunk", this.#nodes.get(chunkId).chunk.span ?? {}), ...this.#shared(chunkId)]
      : [];
    const { content = "", span = {} } = this.#top.chunk;
    this.#text.replaceChildren(
      ...markedText(content, span.charStart ?? 0, [...own, ...this.#marks]),
    );
    this.#map.highlight(chunkId);
  }

  #shared(chunkId) {
    const { chunk } = this.#nodes.get(chunkId);
    const [start, end] = [chunk.span?.charStart ?? 0, chunk.span?.charEnd ?? 0];
    return [-1, 1].flatMap((step) => {
      const near = this.#nodes.get(
        `${chunk.documentId}#${chunk.level ?? 0}.${(chunk.index ?? 0) + step}`,
      );
      if (!near) return [];
      const from = Math.max(start, near.chunk.span?.charStart ?? 0);
      return [{ kind: "shared", start: from, end: Math.min(end, near.chunk.span?.charEnd ?? 0) }];
    });
  }

  /** Returns how a chunk's text begins; empty where the text is not read. */
  #firstWords({ chunk }) {
    const top = this.#top.chunk;
    const start = top.span?.charStart ?? 0;
    const from = (chunk.span?.charStart ?? 0) - start;
    const to = (chunk.span?.charEnd ?? 0) - start;
    if (from < 0 || to > (top.span?.charEnd ?? 0) - start) return "";
    return top.content.slice(this.#offset(from), this.#offset(Math.min(to, from + PREVIEW_CHARS)));
  }
}

function holds({ chunk }, place) {
  return (chunk.span?.charStart ?? 0) <= place && place < (chunk.span?.charEnd ?? 0);
}

function chunkFacts({ chunk }) {
  const { chunkId, level = 0, tokenCount = 0, span = {} } = chunk;
  return h(
    "div",
    {},
    h(
      "p",
      { class: "meta" },
      h("code", {}, data(chunkId)),
      h("span", { t: ["passage.level", { level }] }),
      h("span", { t: ["passage.tokens", { n: tokenCount }] }),
      pageRange(chunk),
      tr("document.chars", { start: span.charStart ?? 0, end: span.charEnd ?? 0 }),
      tr("document.bytes", { start: span.byteStart ?? 0, end: span.byteEnd ?? 0 }),
    ),
    sections(chunk),
  );
}

function metadataList(entries) {
  const rows = entries.map(([key, value]) =>
    h(
      "div",
      {},
      h("dt", {}, data(key)),
      h("dd", {}, data(typeof value === "string" ? value : JSON.stringify(value))),
    ),
  );
  return h("dl", { class: "metadata" }, rows);
}
