// What the page keeps in this browser beyond its own life: the tenant that was opened last, and the
// searches of some tenants. Values are stored for each address of a gateway. A value that contains
// the API key is not stored. A browser that stores nothing only makes the page forget.

import { containsKey } from "./connect.js";

/** Returns a stored value; null if nothing is stored under this name. */
export function remembered(name) {
  try {
    return JSON.parse(localStorage.getItem(storageKey(name)));
  } catch {
    return null;
  }
}

export function remember(name, value) {
  if (containsKey(name) || containsKey(JSON.stringify(value))) return;
  try {
    localStorage.setItem(storageKey(name), JSON.stringify(value));
  } catch {
    // The browser forbids to store anything, or its space is full.
  }
}

export function forget(name) {
  try {
    localStorage.removeItem(storageKey(name));
  } catch {
    // The browser forbids access to what is stored, so nothing was stored.
  }
}

function storageKey(name) {
  return `hrag ${location.pathname} ${name}`;
}
