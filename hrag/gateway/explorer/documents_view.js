// Shows the documents of a collection: its index status, one page of its documents, and one opened
// document.

import { changeAddress } from "./address.js";
import { call } from "./connect.js";
import { button, data, facts, h, tr } from "./dom.js";
import { DocumentView } from "./document_view.js";
import { count, countOrDash, size, whole } from "./format.js";
import { emptyState, fill, show } from "./notices.js";

const PAGE_SIZE = 25;

export class DocumentsView {
  #session;
  #tokens = [""]; // The page tokens of all pages up to the page that is shown.
  #status = h("div", { class: "status-panel" });
  #table = h("div", { class: "document-list" });
  #list = h("div", { class: "view" }, this.#status, this.#table);
  #document;

  constructor(session) {
    this.#session = session;
    this.#document = new DocumentView(session, () => this.#closeStep());
    this.element = h("div", {}, this.#list, this.#document.element);
    for (const name of ["change", "refresh"]) session.addEventListener(name, () => this.#reset());
    this.#reset();
  }

  /** Reads the list of documents if it is out of date; called when the view is shown. */
  show() {
    if (this.#isStale && this.#document.element.hidden) this.#load();
  }

  #isStale = true;

  /** Opens a document; `target` is the argument of `DocumentView.open`. */
  open(target) {
    this.#list.hidden = true;
    this.#document.element.hidden = false;
    this.#document.open(target);
  }

  /** Closes the opened document and shows the list of documents again. */
  close() {
    this.#document.element.hidden = true;
    this.#list.hidden = false;
    if (this.#isStale) this.#load();
  }

  #closeStep() {
    changeAddress({ doc: "", chunk: "" }, { isStep: true });
    this.close();
    this.#table.querySelector("button")?.focus();
  }

  #reset() {
    this.#tokens = [""];
    this.#isStale = true;
    this.#document.element.hidden = true;
    this.#list.hidden = false;
    if (this.element.closest("[role=tabpanel]:not([hidden])")) this.#load();
  }

  async #load() {
    this.#isStale = false;
    show(this.#status);
    if (!this.#session.tenant) {
      show(this.#table, emptyState("documents.no_tenant_title", "documents.no_tenant_text"));
      return;
    }
    if (this.#session.isNew) {
      show(this.#table, emptyState("documents.none_title", "documents.none_text"));
      return;
    }
    show(this.#table);
    let status = {};
    const readStatus = async () => {
      status = await call("IndexerService/GetIndexStatus", this.#session.scope);
      return statusPanel(status);
    };
    if (await fill(this.#status, readStatus, () => this.#load())) await this.#showPage(status);
  }

  #showPage(status) {
    return fill(this.#table, async () => {
      const pageToken = this.#tokens.at(-1);
      const page = await call("IndexerService/ListDocuments", {
        ...this.#session.scope,
        pageSize: PAGE_SIZE,
        pageToken,
      });
      if (!page.documents?.length && this.#tokens.length === 1)
        return emptyState("documents.none_title", "documents.none_text");
      return [this.#documentTable(page.documents ?? [], status), this.#pager(page, status)];
    });
  }

  #documentTable(documents, status) {
    const heads = ["document", "type", "tokens", "chunks", "pages", "sections", "index"];
    const caption = h("caption", { class: "unseen", t: "documents.caption" });
    const head = h(
      "thead",
      {},
      h(
        "tr",
        {},
        heads.map((name) =>
          h("th", { scope: "col", class: `cell-${name}`, t: `documents.${name}` }),
        ),
      ),
    );
    const rows = documents.map((info) => this.#row(info, status));
    return h(
      "div",
      { class: "table-scroll", role: "region", tLabel: "documents.caption", tabindex: "0" },
      h("table", {}, caption, head, h("tbody", {}, rows)),
    );
  }

  #row(info, status) {
    const cell = (name, content) => h("td", { class: `cell-${name}` }, content);
    const open = h(
      "button",
      { type: "button", class: "link-button", onclick: () => this.#openStep(info.documentId) },
      data(info.title || info.documentId),
    );
    return h(
      "tr",
      {},
      h("th", { scope: "row", class: "cell-document" }, open, h("code", {}, data(info.documentId))),
      cell("type", info.mimeType ?? ""),
      cell("tokens", count(info.tokenCount)),
      cell("chunks", (info.chunksPerLevel ?? []).map(count).join(" / ")),
      cell("pages", countOrDash(info.pageCount)),
      cell("sections", countOrDash(info.sectionCount)),
      cell("index", indexBadge(info, status)),
    );
  }

  #openStep(documentId) {
    changeAddress({ doc: documentId, chunk: "" }, { isStep: true });
    this.open({ documentId });
  }

  #pager(page, status) {
    const first = (this.#tokens.length - 1) * PAGE_SIZE;
    const go = (change) => async () => {
      change();
      await this.#showPage(status);
      this.#table.querySelector(".table-scroll")?.focus();
    };
    const range = {
      first: first + 1,
      last: first + (page.documents?.length ?? 0),
      total: whole(status.documentCount),
    };
    return h(
      "nav",
      { class: "pager", tLabel: "documents.pages_nav" },
      button(
        "documents.previous",
        go(() => this.#tokens.pop()),
        { disabled: this.#tokens.length === 1 },
      ),
      tr("documents.range", range),
      button(
        "documents.next",
        go(() => this.#tokens.push(page.nextPageToken)),
        { disabled: !page.nextPageToken },
      ),
    );
  }
}

/**
 * Returns a badge that says whether the document's leaves are in a segment or in the tail. Returns
 * an empty text if the engine has no segments.
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

function statusPanel(status) {
  const { embedded, tenant = {} } = status;
  const waiting = whole(status.unsummarisedDocuments);
  const pairs = [
    ["status.documents", count(status.documentCount)],
    ["status.chunks", count(status.chunkCount)],
    ["status.leaves", count(status.leafCount)],
    ["status.tokens", count(status.tokenCount)],
    ["status.text", size(status.textBytes)],
    ["status.vectors", size(status.vectorBytes)],
    embedded && ["status.segments", count(embedded.segments?.length)],
    embedded && ["status.tail", count(embedded.tailLeafCount)],
    [
      "status.summaries",
      waiting
        ? tr("status.summaries_waiting", { done: whole(status.summaryCount), waiting })
        : count(status.summaryCount),
    ],
    ["status.sequence", String(status.committedSequence ?? 0)],
    [
      "status.stored",
      usage(size(tenant.storedBytes), tenant.quota?.maxBytes && size(tenant.quota.maxBytes)),
    ],
    [
      "status.tenant_documents",
      usage(
        count(tenant.documents),
        tenant.quota?.maxDocuments && count(tenant.quota.maxDocuments),
      ),
    ],
  ];
  return facts(pairs.filter(Boolean), "figures");
}

function usage(used, quota) {
  return quota ? `${used} / ${quota}` : used;
}
