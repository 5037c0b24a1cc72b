// Stores in the fragment of the page's address what the page shows: view, tenant, collection,
// document, search, language and theme. So a link with this address opens the same view. The
// fragment never contains an API key, and browsers never send a fragment to the server.

/** Returns the fields of the address's fragment, as an object of texts by name. */
export function readAddress() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

/**
 * Changes fields of the address's fragment; a field whose new value is empty is removed. If
 * `isStep` is true, the browser's back button undoes the change.
 */
export function changeAddress(changes, { isStep = false } = {}) {
  const fields = new URLSearchParams(location.hash.slice(1));
  for (const [name, value] of Object.entries(changes)) {
    if (value) fields.set(name, value);
    else fields.delete(name);
  }
  const next = `#${fields}`;
  if (next === location.hash) return;
  if (isStep) history.pushState(null, "", next);
  else history.replaceState(null, "", next);
}
