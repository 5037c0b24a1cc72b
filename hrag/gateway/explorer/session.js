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
  /** The tenant's aliases, as ListAliases returned them. */
  aliases = [];

  /** The fields of every request about the chosen collection. */
  get scope() {
    return { tenantId: this.tenant, collection: this.collection };
  }

  /** The chosen collection, also if it was chosen by an alias; undefined if it does not exist. */
  get chosen() {
    const alias = this.aliases.find(({ name }) => name === this.collection);
    const chosen = alias?.collection ?? this.collection;
    return this.collections.find(({ name }) => name === chosen);
  }

  /** Returns the aliases of a collection. */
  aliasesOf(collection) {
    return this.aliases.filter((alias) => alias.collection === collection);
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
    this.aliases = [];
    this.collection = collection;
    try {
      if (!(await this.#read(tenant))) return;
      this.collection ||= this.collections[0]?.name ?? NEW_COLLECTION;
    } finally {
      this.#dispatch("change");
    }
  }

  choose(collection) {
    this.collection = collection;
    this.#dispatch("change");
  }

  /** Reads the collections and aliases again, after the page has changed something. */
  async refresh() {
    if (await this.#read(this.tenant)) this.#dispatch("refresh");
  }

  /** Returns false if another tenant was opened during the calls; then nothing is changed. */
  async #read(tenant) {
    const [collections, aliases] = tenant
      ? await Promise.all([listCollections(tenant), listAliases(tenant)])
      : [[], []];
    if (this.tenant !== tenant) return false;
    this.collections = collections;
    this.aliases = aliases;
    return true;
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

async function listAliases(tenantId) {
  return (await call("IndexerService/ListAliases", { tenantId })).aliases ?? [];
}
