// The fragment of the page's address says what the page shows, for example
// `#/acme/guide/search?q=gasket&mode=CONTEXT`: the tenant, the collection, the view, the document
// and further fields. So a link with this address opens the same view, and the browser's back
// button leads to the view before. `changeAddress` leaves out each field that contains the API key.
// Browsers never send a fragment to the server.

import { containsKey } from "./connect.js";

const PATH = ["tenant", "collection", "view", "doc"];
// The fields that stay in the address when another view is shown.
const KEPT = ["tenant", "collection", "lang", "theme"];

/** Returns the fields of the address's fragment, as an object of texts by name. */
export function readAddress() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const parts = path.split("/").map(decoded);
  const fields = Object.fromEntries(new URLSearchParams(query));
  PATH.forEach((name, at) => {
    if (parts[at]) fields[name] = parts[at];
  });
  return fields;
}

/** Returns the fragment for `fields`; fields with an empty value are left out. */
export function fragment(fields) {
  const parts = PATH.map((name) => encoded(fields[name] ?? ""));
  while (parts.length && !parts.at(-1)) parts.pop();
  const query = Object.entries(fields)
    .filter(([name, value]) => value && !PATH.includes(name))
    .map(([name, value]) => `${encoded(name)}=${encoded(value)}`);
  return `#/${parts.join("/")}${query.length ? `?${query.join("&")}` : ""}`;
}

/**
 * Changes fields of the address's fragment; a field whose new value is empty is removed. If the
 * view changes, the fields of the view before are removed. Fields that contain the API key are
 * removed too, whether they are new or not. If `isStep` is true, the browser's back button undoes
 * the change.
 */
export function changeAddress(changes, { isStep = false } = {}) {
  const before = readAddress();
  const isOtherView = "view" in changes && changes.view !== before.view;
  const kept = isOtherView ? KEPT : Object.keys(before);
  const fields = Object.fromEntries(kept.map((name) => [name, before[name]]));
  const next = fragment(withoutKey({ ...fields, ...changes }));
  if (next === location.hash) return;
  if (isStep) history.pushState(null, "", next);
  else history.replaceState(null, "", next);
}

function withoutKey(fields) {
  return Object.fromEntries(
    Object.entries(fields).filter(([, value]) => !containsKey(String(value ?? ""))),
  );
}

/** Encodes only what a fragment cannot contain, so that the address stays readable. */
function encoded(text) {
  return encodeURIComponent(text)
    .replace(/%(?:3A|2C|40)/g, decodeURIComponent)
    .replaceAll("%20", "+");
}

function decoded(text) {
  try {
    return decodeURIComponent(text.replaceAll("+", " "));
  } catch {
    return "";
  }
}
