// Stores the tenant and the collection that the page shows. The event `change` tells the views that
// another tenant or collection was chosen. The event `refresh` tells the views that the contents of
// the collections may have changed.

import { call } from "./connect.js";

// The collection of a tenant without collections. The server creates it with its first document.
const NEW_COLLECTION = "default";

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
   * Opens a collection of a tenant, by default the tenant's first collection. If the collections
   * cannot be listed, raises CallError, and the list of collections is empty.
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
