// Reads the pages of a list of documents, with a filter and in an order. The server lists documents
// in the order of their ids. For any other order, the page reads all documents and sorts them here,
// so their number is limited.

import { CallError, call } from "./connect.js";
import { whole } from "./format.js";
import { translate } from "./translation.js";

export const PAGE_SIZE = 25;
const READ_SIZE = 1000; // The largest page that the server returns.
const MAX_SORTED = 10_000; // Ten calls, and some megabytes of this page's memory.

const compareTexts = new Intl.Collator(undefined, { numeric: true }).compare;
const byText = (text) => (a, b) => compareTexts(text(a), text(b));
const byNumber = (number) => (a, b) => number(a) - number(b);

/** The orders of a list. The order without a function is that of the server. */
export const ORDERS = {
  id: null,
  title: byText(({ title, documentId }) => title || documentId),
  type: byText(({ mimeType = "" }) => mimeType),
  tokens: byNumber(({ tokenCount }) => whole(tokenCount)),
  pages: byNumber(({ pageCount }) => whole(pageCount)),
  sections: byNumber(({ sectionCount }) => whole(sectionCount)),
  changed: byNumber(({ sequence }) => whole(sequence)),
};

export class DocumentPages {
  #request;
  #compare;
  #tokens = [""]; // The page tokens of the pages from the first one on, as far as they are known.
  #sorted = null;

  /** `filter` is a Filter message or undefined, and `order` a key of `ORDERS`. */
  constructor(scope, filter, order, isDescending) {
    this.#request = { ...scope, filter };
    const ascending = ORDERS[order] ?? (isDescending ? byText((info) => info.documentId) : null);
    this.#compare = ascending && isDescending ? (a, b) => ascending(b, a) : ascending;
  }

  /**
   * Returns a page, from 0, as `{ documents, first, total, isLast }`: its documents, the position of
   * the first one from 0, and the number of all documents that pass the filter.
   */
  async page(number) {
    this.total ??= whole(
      (await call("IndexerService/CountDocuments", this.#request)).documentCount,
    );
    const first = number * PAGE_SIZE;
    if (!this.#compare) return { ...(await this.#listed(number)), first, total: this.total };
    this.#sorted ??= (await this.#all()).sort(this.#compare);
    const documents = this.#sorted.slice(first, first + PAGE_SIZE);
    const isLast = first + PAGE_SIZE >= this.#sorted.length;
    return { documents, first, total: this.#sorted.length, isLast };
  }

  async #listed(number) {
    while (this.#tokens.length <= number) {
      const { nextPageToken } = await this.#list(PAGE_SIZE, this.#tokens.at(-1));
      if (!nextPageToken) return { documents: [], isLast: true };
      this.#tokens.push(nextPageToken);
    }
    const page = await this.#list(PAGE_SIZE, this.#tokens[number]);
    this.#tokens[number + 1] = page.nextPageToken;
    return { documents: page.documents ?? [], isLast: !page.nextPageToken };
  }

  async #all() {
    if (this.total > MAX_SORTED) {
      const values = { total: this.total, most: MAX_SORTED };
      const message = translate("documents.too_many_to_sort", values);
      throw new CallError({ code: "invalid_argument", message });
    }
    const documents = [];
    let pageToken = "";
    do {
      const page = await this.#list(READ_SIZE, pageToken);
      documents.push(...(page.documents ?? []));
      pageToken = page.nextPageToken;
    } while (pageToken);
    return documents;
  }

  #list(pageSize, pageToken) {
    return call("IndexerService/ListDocuments", { ...this.#request, pageSize, pageToken });
  }
}
