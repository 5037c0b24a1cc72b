// Shows one document: its chunks as a tree and as a map of levels, and the text of one top-level
// chunk. In this text, the span of the selected chunk is marked. Only the text and the descendants
// of this top-level chunk are read, so a long document loads as fast as a short one.

import { changeAddress } from "./address.js";
import { call } from "./connect.js";
import { button, data, facts, h, tr } from "./dom.js";
import { ChunkTree } from "./chunk_tree.js";
import { deleteDocuments, downloadText, editMetadata } from "./document_actions.js";
import { count, countOrDash, size, whole } from "./format.js";
import { LevelMap } from "./level_map.js";
import { scrollWithin, spanMark } from "./marked_text.js";
import { errorBox, fill } from "./notices.js";
import { hasPages, pageAt, pageButton } from "./page_view.js";
import { pageRange, sections } from "./passage_card.js";
import { needsRole, roleNote } from "./roles.js";
import { RichText, sourceSwitch } from "./rich_text.js";
import { utf16Offsets } from "./text_offsets.js";

const MAX_LEVELS = 8;
// The labels of the count of pages, if the numbers of the pages mean something else.
const PAGE_LABELS = { PAGE_UNIT_ROW: "documents.rows", PAGE_UNIT_SECOND: "documents.times" };
const PREVIEW_CHARS = 80;

export class DocumentView {
  #session;
  #info;
  #nodes; // A map from chunk ids to the ChunkNodes that were read.
  #top; // The ChunkNode of the top-level chunk whose text is shown.
  #latestRead; // A symbol that identifies the latest call of #read.
  #content; // The RichText of the text of `#top`.
  #offset; // Converts an offset in the text of `#top` from code points to UTF-16 units.
  #selected; // The id of the selected chunk.
  #running = new AbortController();
  #marks = []; // The ranges that a search marked, in the form of the marks of `markedText`.
  #tree;
  #map;
  #body = h("div", {});
  #chunkFacts = h("div", { class: "chunk-facts" });
  #text = h("div", {
    class: "document-text rich-text",
    dir: "auto",
    tabindex: "0",
    role: "region",
    tLabel: "document.text",
  });

  #on;

  /**
   * `onClose` is called if the user closes the document, `onChange` after a change of its metadata,
   * and `onDelete` after its deletion.
   */
  constructor(session, { onClose, onChange, onDelete }) {
    this.#session = session;
    this.#on = { onChange, onDelete };
    this.element = h(
      "div",
      { class: "view document-view", hidden: true },
      button("document.back", onClose, { class: "quiet-button back" }),
      this.#body,
    );
  }

  /**
   * Opens a document and shows the chunk `chunkId`. Without `chunkId`, shows the first mark;
   * without marks, shows the beginning of the document. If `chunkId` is a chunk of another
   * document, it is ignored; the page's address may contain such an id.
   */
  async open({ documentId, chunkId, marks = [] }) {
    const isInside = chunkId?.startsWith(`${documentId}#`);
    const target = { documentId, chunkId: isInside ? chunkId : "", marks };
    this.#running.abort();
    this.#running = new AbortController();
    const work = () => this.#load(target);
    if (!(await fill(this.#body, work, () => this.open(target)))) return;
    this.#select(target.chunkId || this.#chunkAt(this.#markStart) || this.#top.chunk.chunkId);
    scrollWithin(this.#text, this.#text.querySelector(".mark-cited"));
    this.#body.querySelector("h2").focus();
  }

  async #load({ documentId, chunkId, marks }) {
    const request = { ...this.#session.scope, documentId };
    const { signal } = this.#running;
    this.#info = (await call("RetrieverService/GetDocument", request, signal)).document;
    this.#nodes = new Map();
    this.#marks = marks;
    await this.#read(chunkId || `${documentId}#${this.#topLevel}.0`);
    if (!chunkId) await this.#readAround(this.#markStart);
    return this.#layout();
  }

  /**
   * The offset, in code points, of the first mark of the kind `cited`. If there is none, the offset
   * of the first mark of any kind; undefined without marks.
   */
  get #markStart() {
    return (this.#marks.find(({ kind }) => kind === "cited") ?? this.#marks[0])?.start;
  }

  get #topLevel() {
    return this.#info.chunksPerLevel.length - 1;
  }

  /**
   * Reads the top-level chunk above a chunk, with the siblings and descendants of the top-level
   * chunk. If `#read` is called again before the chunks have arrived, they are dropped.
   */
  async #read(chunkId) {
    const read = (this.#latestRead = Symbol(chunkId));
    let hierarchy = await this.#hierarchy(chunkId);
    if (hierarchy.ancestors?.length)
      hierarchy = await this.#hierarchy(hierarchy.ancestors.at(-1).chunk.chunkId);
    if (read !== this.#latestRead) return;
    const { siblings, node: top, descendants } = hierarchy;
    for (const node of [...(siblings ?? []), top, ...(descendants ?? [])])
      this.#nodes.set(node.chunk.chunkId, node);
    this.#top = top;
    this.#content = new RichText(top.chunk);
    this.#offset = utf16Offsets(top.chunk.content);
  }

  #hierarchy(chunkId) {
    return call(
      "RetrieverService/GetHierarchy",
      { ...this.#session.scope, chunkId, depth: MAX_LEVELS },
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
      h(
        "div",
        { class: "text-pane" },
        this.#chunkFacts,
        sourceSwitch(() => this.#paint()),
        this.#text,
      ),
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
          [PAGE_LABELS[info.pageUnit] ?? "documents.pages", countOrDash(info.pageCount)],
          ...(info.recognisedPageCount
            ? [["documents.recognised", count(info.recognisedPageCount)]]
            : []),
          ["documents.sections", countOrDash(info.sectionCount)],
          ["status.sequence", String(info.sequence ?? 0)],
        ],
        "figures",
      ),
      this.#actions(),
      metadata.length > 0 &&
        h(
          "details",
          { class: "fold" },
          h("summary", { t: ["document.metadata", { n: metadata.length }] }),
          metadataList(metadata),
        ),
    );
  }

  #actions() {
    const info = this.#info;
    const { scope } = this.#session;
    const failure = h("div", {});
    const download = async () => {
      failure.replaceChildren();
      await downloadText(scope, info).catch((error) => failure.append(errorBox(error)));
    };
    const edit = () =>
      editMetadata(scope, info, () => {
        this.#on.onChange();
        this.open({ documentId: info.documentId, chunkId: this.#selected, marks: this.#marks });
      });
    const note = roleNote("write", "role.documents");
    const remove = () => deleteDocuments(scope, [info], this.#on.onDelete);
    return h(
      "div",
      { class: "document-actions" },
      button("document.download", download),
      needsRole("write", button("document.edit", edit), note),
      needsRole("write", button("document.delete", remove, { class: "is-bad" }), note),
      note,
      failure,
    );
  }

  async #readAround(offset) {
    const around = [...this.#nodes.values()].find(
      (node) => whole(node.chunk.level) === this.#topLevel && contains(node, offset),
    );
    if (around && around !== this.#top) await this.#read(around.chunk.chunkId);
  }

  #chunkAt(offset) {
    if (offset === undefined) return "";
    const around = [...this.#nodes.values()].filter((node) => contains(node, offset));
    return (
      around.sort((a, b) => whole(a.chunk.level) - whole(b.chunk.level))[0]?.chunk.chunkId ?? ""
    );
  }

  /** Selects a chunk; reads its text first if the chunk is below another top-level chunk. */
  async #select(chunkId) {
    const read = () => this.#read(chunkId).then(() => []);
    const again = () => this.#select(chunkId);
    if (!this.#isShown(chunkId) && !(await fill(this.#chunkFacts, read, again))) return;
    this.#selected = chunkId;
    changeAddress({ doc: this.#info.documentId, chunk: chunkId });
    this.#tree.show(chunkId, this.#top.chunk.chunkId);
    this.#map.show(this.#nodes, this.#top.chunk.chunkId, chunkId);
    const { chunk } = this.#nodes.get(chunkId);
    this.#chunkFacts.replaceChildren(chunkFacts(chunk, this.#pageOf(chunk)));
    this.#paint(chunkId);
    scrollWithin(this.#text, this.#text.querySelector(".mark-chunk"));
  }

  /**
   * Returns a button that opens the page of a chunk, or of the sentence in it that a search marked.
   * Returns null if the document's pages cannot be shown.
   */
  #pageOf(chunk) {
    if (!hasPages(this.#info) || !chunk.firstPage) return null;
    const passage = spanMark("passage", chunk.span ?? {});
    const cited = this.#marks.filter(
      ({ kind, start, end }) => kind === "cited" && start < passage.end && passage.start < end,
    );
    const page = pageAt(chunk, (cited[0] ?? passage).start);
    return pageButton(this.#session.scope, this.#info, page, [...cited, passage]);
  }

  #isShown(chunkId) {
    let node = this.#nodes.get(chunkId);
    while (node?.parentId) node = this.#nodes.get(node.parentId);
    return node === this.#top;
  }

  /**
   * Marks the span of a chunk, and the parts of the span that neighbouring chunks contain too.
   * Without `chunkId`, marks the span of the selected chunk.
   */
  #paint(chunkId = this.#selected) {
    const chunkMarks = this.#isShown(chunkId)
      ? [spanMark("chunk", this.#nodes.get(chunkId).chunk.span ?? {}), ...this.#shared(chunkId)]
      : [];
    this.#text.replaceChildren(...this.#content.nodes([...chunkMarks, ...this.#marks]));
    this.#map.highlight(chunkId);
  }

  #shared(chunkId) {
    const { chunk } = this.#nodes.get(chunkId);
    const [start, end] = [chunk.span?.charStart ?? 0, chunk.span?.charEnd ?? 0];
    return [-1, 1].flatMap((step) => {
      const neighbour = this.#nodes.get(
        `${chunk.documentId}#${chunk.level ?? 0}.${(chunk.index ?? 0) + step}`,
      );
      if (!neighbour) return [];
      const from = Math.max(start, neighbour.chunk.span?.charStart ?? 0);
      const to = Math.min(end, neighbour.chunk.span?.charEnd ?? 0);
      return [{ kind: "shared", start: from, end: to }];
    });
  }

  /** Returns the first words of a chunk; returns an empty text if the chunk's text is not read. */
  #firstWords({ chunk }) {
    const top = this.#top.chunk;
    const start = top.span?.charStart ?? 0;
    const from = (chunk.span?.charStart ?? 0) - start;
    const to = (chunk.span?.charEnd ?? 0) - start;
    if (from < 0 || to > (top.span?.charEnd ?? 0) - start) return "";
    return top.content.slice(this.#offset(from), this.#offset(Math.min(to, from + PREVIEW_CHARS)));
  }
}

function contains({ chunk }, offset) {
  return (chunk.span?.charStart ?? 0) <= offset && offset < (chunk.span?.charEnd ?? 0);
}

function chunkFacts(chunk, page) {
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
      page,
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
