// The texts of the page in the chosen language. This module stores which text each element shows.
// So a change of the language replaces all texts in place, and the page need not be loaded again.

import chinese from "./chinese.js";
import english from "./english.js";
import { formatText } from "./text_format.js";

const DICTIONARIES = { en: english, "zh-Hans": chinese };
// For each element, a map from its attributes to `[key, values]`, the arguments of `translate`.
const bound = new WeakMap();
let language = "en";

export const LANGUAGES = [
  ["en", "English"],
  ["zh-Hans", "中文"],
];

/** Returns the first language of the browser's list that the page supports, else English. */
export function preferredLanguage(browserLanguages) {
  for (const code of browserLanguages) {
    if (code.toLowerCase().startsWith("zh")) return "zh-Hans";
    if (code.toLowerCase().startsWith("en")) return "en";
  }
  return "en";
}

/** Shows all texts in the language `chosen`. If the page does not support it, shows English. */
export function setLanguage(chosen) {
  language = Object.hasOwn(DICTIONARIES, chosen) ? chosen : "en";
  document.documentElement.lang = language;
  document.title = translate("nav.title");
  for (const node of document.querySelectorAll("[data-t]")) {
    for (const [attribute, [key, values]] of bound.get(node)) show(node, attribute, key, values);
  }
}

/**
 * Makes an attribute of `node` show a text of the dictionary, in the chosen language. If
 * `attribute` is empty, the content of the node shows the text.
 */
export function bindText(node, attribute, key, values = {}) {
  if (!bound.has(node)) bound.set(node, new Map());
  bound.get(node).set(attribute, [key, values]);
  node.setAttribute("data-t", "");
  show(node, attribute, key, values);
}

function show(node, attribute, key, values) {
  if (attribute) node.setAttribute(attribute, translate(key, values));
  else node.textContent = translate(key, values);
}

/**
 * Returns the dictionary's text for `key` with its values, as `formatText` describes them. If the
 * key has no text, returns the key; this may be the name of a limit of a newer server.
 */
export function translate(key, values = {}) {
  return formatText(DICTIONARIES[language][key] ?? key, values, language);
}

/** Returns true if the dictionary has a text for `key`. */
export function hasText(key) {
  return key in english;
}
