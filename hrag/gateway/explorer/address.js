// What the page shows, in the fragment of its address: view, tenant, collection, document, search,
// language, theme. A link opens the same view. Never a key, and the server never sees a fragment.

/** Returns the fields of the fragment. */
export function readAddress() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

/** Changes fields; empty ones are removed. With `isStep`, the browser's back button undoes it. */
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
