// Shows the documents of a collection: its index status, one page of its documents, and one opened
// document. The list can be filtered and sorted, and documents in it can be deleted.

import { changeAddress } from "./address.js";
import { call } from "./connect.js";
import { button, facts, h, tr } from "./dom.js";
import { deleteDocuments, deleteMatching } from "./document_actions.js";
import { DocumentPages, ORDERS } from "./document_pages.js";
import { DocumentTable } from "./document_table.js";
import { DocumentView } from "./document_view.js";
import { FilterRows } from "./filter_rows.js";
import { count, size, whole } from "./format.js";
import { firstSteps } from "./first_steps.js";
import { emptyState, fill, show } from "./notices.js";
import { needsRole, roleNote } from "./roles.js";

export class DocumentsView {
  #session;
  #go;
  #pages;
  #number = 0; // The number of the page that is shown, from 0.
  #isStale = true;
  #status = h("div", { class: "status-panel" });
  #filters = new FilterRows();
  #order = h(
    "select",
    { tLabel: "documents.order", onchange: () => this.#load() },
    Object.keys(ORDERS).map((value) => h("option", { value, t: `order.${value}` })),
  );
  #isDescending = h("input", {
    type: "checkbox",
    id: "documents-descending",
    onchange: () => this.#load(),
  });
  #table = h("div", { class: "document-list" });
  #note = roleNote("write", "role.documents");
  #list;
  #tools;
  #document;

  /** `go` is called with the name of a view that the user chooses. */
  constructor(session, go) {
    this.#session = session;
    this.#go = go;
    this.#tools = this.#newTools();
    this.#list = h("div", { class: "view" }, this.#status, this.#tools, this.#note, this.#table);
    this.#document = new DocumentView(session, {
      onClose: () => this.#closeStep(),
      onChange: () => (this.#isStale = true),
      onDelete: () => this.#afterDeletion(),
    });
    this.element = h("div", {}, this.#list, this.#document.element);
    for (const name of ["change", "refresh"]) session.addEventListener(name, () => this.#reset());
    this.#reset();
  }

  /** Reads the list of documents again; called when the view is shown. */
  show() {
    if (this.#document.element.hidden) this.#load(this.#number);
    else this.#isStale = true;
  }

  /** Opens a document; `target` is the argument of `DocumentView.open`. */
  open(target) {
    this.#list.hidden = true;
    this.#document.element.hidden = false;
    this.#document.open(target);
  }

  /** Closes the opened document and shows the list of documents again. */
  close() {
    if (this.#document.element.hidden) return;
    this.#document.element.hidden = true;
    this.#list.hidden = false;
  }

  async #closeStep() {
    changeAddress({ doc: "", chunk: "" }, { isStep: true });
    this.close();
    if (this.#isStale) await this.#load();
    this.#table.querySelector("button")?.focus();
  }

  async #afterDeletion() {
    changeAddress({ doc: "", chunk: "" });
    await this.#session.refresh();
  }

  #newTools() {
    const apply = h("button", { type: "submit", t: "documents.apply" });
    return h(
      "form",
      { class: "document-tools", onsubmit: (event) => this.#apply(event) },
      h(
        "details",
        { class: "fold" },
        h("summary", { t: "documents.filter" }),
        h("p", { class: "hint", t: "documents.filter_hint" }),
        this.#filters.element,
        apply,
      ),
      h(
        "div",
        { class: "order" },
        this.#order,
        h(
          "div",
          { class: "flag" },
          this.#isDescending,
          h("label", { for: this.#isDescending.id, t: "documents.descending" }),
        ),
      ),
    );
  }

  #apply(event) {
    event.preventDefault();
    this.#load();
  }

  #reset() {
    this.#isStale = true;
    this.#number = 0;
    this.#document.element.hidden = true;
    this.#list.hidden = false;
    if (this.element.closest("[role=tabpanel]:not([hidden])")) this.#load();
  }

  /** Reads the status and the page `number` of the list, from 0. */
  async #load(number = 0) {
    this.#isStale = false;
    this.#number = number;
    this.#pages = null;
    const { tenant, isNew } = this.#session;
    this.#tools.hidden = !tenant || isNew;
    show(this.#status);
    show(this.#table);
    if (this.#tools.hidden) {
      this.#table.append(firstSteps(this.#session, this.#go));
      return;
    }
    let status = {};
    const readStatus = async () => {
      status = await call("IndexerService/GetIndexStatus", this.#session.scope);
      return statusPanel(status);
    };
    if (await fill(this.#status, readStatus, () => this.#load())) await this.#showPage(status);
  }

  #showPage(status) {
    return fill(this.#table, async () => {
      const filter = this.#filters.message;
      const { value: order } = this.#order;
      const { scope } = this.#session;
      this.#pages ??= new DocumentPages(scope, filter, order, this.#isDescending.checked);
      const page = await this.#pages.page(this.#number);
      if (!page.documents.length)
        return filter
          ? emptyState("documents.no_match_title", "documents.no_match_text")
          : emptyState(
              "documents.none_title",
              "documents.none_text",
              needsRole(
                "write",
                button("nav.upload", () => this.#go("upload"), { class: "main-button" }),
                this.#note,
              ),
            );
      const table = new DocumentTable(page.documents, status, {
        onOpen: (documentId) => this.#openStep(documentId),
        onSelect: () => showSelection(table, remove),
      });
      const remove = this.#removal(() => this.#delete(table.selected));
      showSelection(table, remove);
      return [
        h("div", { class: "list-actions" }, remove, filter && this.#removeAll(filter, page.total)),
        table.element,
        this.#pager(page, status),
      ];
    });
  }

  #removeAll(filter, total) {
    const ask = () =>
      deleteMatching(this.#session.scope, filter, total, () => this.#session.refresh());
    return this.#removal(ask, tr("documents.delete_matching", { n: total }));
  }

  /** Returns a button that deletes documents; its text is `text` or is set later. */
  #removal(onclick, text) {
    const attributes = { type: "button", class: "quiet-button is-bad", onclick };
    return needsRole("write", h("button", attributes, text), this.#note);
  }

  #delete(infos) {
    deleteDocuments(this.#session.scope, infos, () => this.#session.refresh());
  }

  #openStep(documentId) {
    changeAddress({ doc: documentId, chunk: "" }, { isStep: true });
    this.open({ documentId });
  }

  #pager({ documents, first, total, isLast }, status) {
    const go = (step) => async () => {
      this.#number += step;
      await this.#showPage(status);
      this.#table.querySelector(".table-scroll")?.focus();
    };
    return h(
      "nav",
      { class: "pager", tLabel: "documents.pages_nav" },
      button("documents.previous", go(-1), { disabled: first === 0 }),
      tr("documents.range", { first: first + 1, last: first + documents.length, total }),
      button("documents.next", go(1), { disabled: isLast }),
    );
  }
}

function showSelection(table, remove) {
  const n = table.selected.length;
  remove.hidden = n === 0;
  remove.replaceChildren(tr("documents.delete_selected", { n }));
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
