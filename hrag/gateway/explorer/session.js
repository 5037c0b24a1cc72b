// The tenant and the collection that the page shows. Views listen to the event `change`, after
// another tenant or collection was chosen, and to `refresh`, after their contents may have changed.

import { call } from "./connect.js";

const NEW_COLLECTION = "default"; // The server creates this collection with its first document.

export class Session extends EventTarget {
  tenant = "";
  collection = "";
  /** The tenant's collections, as ListCollections returned them. */
  collections = [];

  /** The fields of every request about the chosen collection. */
  get scope() {
    return { tenantId: this.tenant, collection: this.collection };
  }

  /** The chosen collection; undefined if it does not exist, or if an alias was chosen. */
  get chosen() {
    return this.collections.find(({ name }) => name === this.collection);
  }

  /** True if the chosen collection does not exist yet and the first upload creates it. */
  get isNew() {
    return this.collection === NEW_COLLECTION && !this.chosen;
  }

  /**
   * Opens a tenant's collection, by default its first one. Raises CallError; then the list of
   * collections is empty.
   */
  async open(tenant, collection = "") {
    this.tenant = tenant;
    this.collections = [];
    this.collection = collection;
    try {
      const collections = tenant ? await listCollections(tenant) : [];
      if (this.tenant !== tenant) return; // Another tenant was opened during the call.
      this.collections = collections;
      this.collection ||= collections[0]?.name ?? NEW_COLLECTION;
    } finally {
      this.#dispatch("change");
    }
  }

  choose(collection) {
    this.collection = collection;
    this.#dispatch("change");
  }

  /** Reads the list of collections again, after an upload. */
  async refresh() {
    const { tenant } = this;
    const collections = await listCollections(tenant);
    if (this.tenant !== tenant) return; // Another tenant was opened during the call.
    this.collections = collections;
    this.#dispatch("refresh");
  }

  #dispatch(name) {
    this.dispatchEvent(new Event(name));
  }
}

async function listCollections(tenantId) {
  const collections = [];
  let pageToken = "";
  do {
    const page = await call("IndexerService/ListCollections", { tenantId, pageToken });
    collections.push(...(page.collections ?? []));
    pageToken = page.nextPageToken;
  } while (pageToken);
  return collections;
}
