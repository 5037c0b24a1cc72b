// Whose data the page shows: tenant and collection. Views listen to `change`, when others were
// chosen, and to `refresh`, when their contents may have changed.

import { call } from "./connect.js";

const NEW_COLLECTION = "default"; // The one that the server creates when it is written to.

export class Session extends EventTarget {
  tenant = "";
  collection = "";
  /** The tenant's collections as ListCollections returned them. */
  collections = [];

  /** What every request about a collection begins with. */
  get scope() {
    return { tenantId: this.tenant, collection: this.collection };
  }

  /** The chosen collection; undefined if it does not exist, or goes by an alias. */
  get chosen() {
    return this.collections.find(({ name }) => name === this.collection);
  }

  /** Whether the chosen collection does not exist yet, but will by the first upload. */
  get isNew() {
    return this.collection === NEW_COLLECTION && !this.chosen;
  }

  /** Opens a tenant's collection, by default its first one. Raises CallError; the list is then empty. */
  async open(tenant, wanted = "") {
    this.tenant = tenant;
    this.collections = [];
    this.collection = wanted;
    try {
      const found = tenant ? await listCollections(tenant) : [];
      if (this.tenant !== tenant) return; // Another was opened meanwhile.
      this.collections = found;
      this.collection ||= found[0]?.name ?? NEW_COLLECTION;
    } finally {
      this.#tell("change");
    }
  }

  choose(collection) {
    this.collection = collection;
    this.#tell("change");
  }

  /** Reads the list again, after an upload. */
  async refresh() {
    const { tenant } = this;
    const found = await listCollections(tenant);
    if (this.tenant !== tenant) return; // Another was opened meanwhile.
    this.collections = found;
    this.#tell("refresh");
  }

  #tell(name) {
    this.dispatchEvent(new Event(name));
  }
}

async function listCollections(tenantId) {
  const found = [];
  let pageToken = "";
  do {
    const page = await call("IndexerService/ListCollections", { tenantId, pageToken });
    found.push(...(page.collections ?? []));
    pageToken = page.nextPageToken;
  } while (pageToken);
  return found;
}
