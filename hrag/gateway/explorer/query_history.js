// The last searches of each tenant, which the browser stores. Their number and their size are
// limited, and the user can delete them. A search that contains the API key is not stored.

import { forget, remember, remembered } from "./browser_memory.js";
import { containsKey } from "./connect.js";

const MAX_SEARCHES = 50; // More would make the list long, and older ones are seldom wanted.
const MAX_TENANTS = 20; // The searches of the tenants that were searched last are kept.
const MAX_CHARS = 2000; // A longer search, with its settings, is not stored.

/**
 * Returns the last searches of a tenant, newest first, as fields of the page's address. A search
 * that was stored before its API key was entered is left out.
 */
export function lastSearches(tenant) {
  const stored = remembered(storedName(tenant));
  return Array.isArray(stored) ? stored.filter(isFields).filter((one) => !hasKeyIn(one)) : [];
}

/** Stores a search. A search that is stored already moves to the front. */
export function storeSearch(tenant, fields) {
  const filled = Object.fromEntries(Object.entries(fields).filter(([, value]) => value));
  const text = JSON.stringify(filled);
  if (text.length > MAX_CHARS || hasKeyIn(filled)) return;
  const others = lastSearches(tenant).filter((other) => JSON.stringify(other) !== text);
  remember(storedName(tenant), [filled, ...others].slice(0, MAX_SEARCHES));
  dropOldTenants(tenant);
}

export function forgetSearches(tenant) {
  forget(storedName(tenant));
}

function dropOldTenants(tenant) {
  const stored = remembered("searched tenants");
  const others = Array.isArray(stored) ? stored.filter((name) => name !== tenant) : [];
  const tenants = [tenant, ...others];
  tenants.slice(MAX_TENANTS).forEach(forgetSearches);
  remember("searched tenants", tenants.slice(0, MAX_TENANTS));
}

function storedName(tenant) {
  return `searches of ${tenant}`;
}

function hasKeyIn(fields) {
  return Object.values(fields).some(containsKey);
}

function isFields(stored) {
  return stored && Object.values(stored).every((value) => typeof value === "string");
}
