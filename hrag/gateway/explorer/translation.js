// The texts of the page in the chosen language. For each element this module stores which text it
// shows. So a change of the language replaces all texts in place and interrupts nothing.

import chinese from "./chinese.js";
import english from "./english.js";

const DICTIONARIES = { en: english, "zh-Hans": chinese };
const bound = new WeakMap();
let language = "en";

export const LANGUAGES = [
  ["en", "English"],
  ["zh-Hans", "中文"],
];

/** Returns the first language of a browser's list that the page has, or else English. */
export function preferredLanguage(browserLanguages) {
  for (const code of browserLanguages) {
    if (code.toLowerCase().startsWith("zh")) return "zh-Hans";
    if (code.toLowerCase().startsWith("en")) return "en";
  }
  return "en";
}

/** Shows all texts in the language `chosen`; an unknown language counts as English. */
export function setLanguage(chosen) {
  language = Object.hasOwn(DICTIONARIES, chosen) ? chosen : "en";
  document.documentElement.lang = language;
  document.title = translate("nav.title");
  for (const node of document.querySelectorAll("[data-t]")) {
    for (const [attribute, [key, values]] of bound.get(node)) show(node, attribute, key, values);
  }
}

/** Binds an attribute of `node` to a text of the dictionary; the attribute "" is its content. */
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
 * Returns a text of the dictionary. `{name}` in it is replaced by a value; numbers are formatted
 * for the language. If a text has plural forms, the value `n` determines the form. If a key has no
 * text, for example the name of a limit of a newer server, the key is returned.
 */
export function translate(key, values = {}) {
  const text = DICTIONARIES[language][key] ?? key;
  const form = typeof text === "string" ? text : (text[plural(values.n)] ?? text.other);
  return form.replace(/\{(\w+)\}/g, (_, name) => written(values[name]));
}

/** Returns true if the dictionary has a text for `key`. */
export function hasText(key) {
  return key in english;
}

function plural(number) {
  return new Intl.PluralRules(language).select(Number(number));
}

function written(value) {
  return typeof value === "number" ? new Intl.NumberFormat(language).format(value) : String(value);
}
