// Makes elements. The only module that turns data into nodes, and it knows text alone: what a
// document, a file name or a server says can become no element, attribute of code, or address.

import { bindText } from "./translation.js";

const TRANSLATED = { t: "", tLabel: "aria-label", tPlaceholder: "placeholder", tTitle: "title" };

/**
 * Returns a new element. An attribute `onclick` adds a listener; `t`, `tLabel`, `tPlaceholder` and
 * `tTitle` are keys of the dictionary, alone or with values: `["search.found", { n: 3 }]`.
 * Attributes that are null or false are left out; so are such children.
 */
export function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) setAttribute(node, name, value);
  node.append(
    ...children.flat().filter((child) => child !== null && child !== undefined && child !== false),
  );
  return node;
}

function setAttribute(node, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name in TRANSLATED) bindText(node, TRANSLATED[name], ...[value].flat());
  else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
  else node.setAttribute(name, value === true ? "" : value);
}

/** Returns a translated text as an element. */
export function tr(key, values = {}) {
  return h("span", { t: [key, values] });
}

/** Returns text of a document or a server: isolated, so that its direction changes nothing else. */
export function data(text, className = "") {
  return h("bdi", { class: className || null }, text);
}

/** Returns a button. */
export function button(key, onclick, attributes = {}) {
  return h("button", { type: "button", t: key, onclick, ...attributes });
}

let lastId = 0;

/** Returns an id that no other element of the page has. */
export function newId(prefix) {
  lastId += 1;
  return `${prefix}-${lastId}`;
}

/** Returns a control under its label. */
export function field(key, control, hint = null) {
  control.id ||= newId("field");
  return h("div", { class: "field" }, h("label", { for: control.id, t: key }), control, hint);
}

/** Returns a list of terms and descriptions from pairs; a description is a text or a node. */
export function facts(pairs, className = "facts") {
  const rows = pairs.map(([key, value]) => h("div", {}, h("dt", { t: key }), h("dd", {}, value)));
  return h("dl", { class: className }, rows);
}
