// Creates elements. Only this module turns data into nodes, and data becomes only text. So a text
// from a document, a file name or a server cannot become an element, an event handler or a link.

import { bindText } from "./translation.js";

const TRANSLATED = {
  t: "",
  tLabel: "aria-label",
  tLabelText: "label",
  tPlaceholder: "placeholder",
  tTitle: "title",
};

/**
 * Returns a new element. An attribute whose name begins with `on`, for example `onclick`, adds a
 * listener. The names in `TRANSLATED` set a translated text. Their value is a key of the dictionary,
 * or an array of a key and values: `["search.found", { n: 3 }]`. Attributes and children that are
 * null, undefined or false are left out.
 */
export function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) setAttribute(node, name, value);
  node.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return node;
}

function setAttribute(node, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name in TRANSLATED) bindText(node, TRANSLATED[name], ...[value].flat());
  else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
  else node.setAttribute(name, value === true ? "" : value);
}

/** Returns an element that shows the dictionary's text for `key` in the chosen language. */
export function tr(key, values = {}) {
  return h("span", { t: [key, values] });
}

/**
 * Returns an element that shows a text of a document or a server. The text is isolated (`bdi`), so
 * that its direction, for example right to left, does not change the text around it.
 */
export function data(text, className = "") {
  return h("bdi", { class: className || null }, text);
}

/** Returns a button; `key` is the dictionary's key for the text of the button. */
export function button(key, onclick, attributes = {}) {
  return h("button", { type: "button", t: key, onclick, ...attributes });
}

let lastId = 0;

/** Returns an id that no other element of the page has. */
export function newId(prefix) {
  lastId += 1;
  return `${prefix}-${lastId}`;
}

/**
 * Returns a node with a control and the control's label; `key` is the dictionary's key of the
 * label.
 */
export function field(key, control, hint = null) {
  control.id ||= newId("field");
  return h("div", { class: "field" }, h("label", { for: control.id, t: key }), control, hint);
}

/**
 * Returns a list of terms and descriptions. Each pair contains the dictionary's key of the term,
 * and the description, which is a text or a node.
 */
export function facts(pairs, className = "facts") {
  const rows = pairs.map(([key, value]) => h("div", {}, h("dt", { t: key }), h("dd", {}, value)));
  return h("dl", { class: className }, rows);
}
