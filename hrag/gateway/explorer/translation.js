// The page's texts in the chosen language. An element remembers which text it shows, so that
// changing the language changes all texts in place and interrupts nothing.

import chinese from "./chinese.js";
import english from "./english.js";

const DICTIONARIES = { en: english, "zh-Hans": chinese };
const bound = new WeakMap();
let language = "en";

export const LANGUAGES = [
  ["en", "English"],
  ["zh-Hans", "中文"],
];

/** Returns the language of the page that suits a browser's list of languages. */
export function preferredLanguage(wanted) {
  for (const each of wanted) {
    if (each.toLowerCase().startsWith("zh")) return "zh-Hans";
    if (each.toLowerCase().startsWith("en")) return "en";
  }
  return "en";
}

/** Shows everything in `chosen`; an unknown language counts as English. */
export function setLanguage(chosen) {
  language = Object.hasOwn(DICTIONARIES, chosen) ? chosen : "en";
  document.documentElement.lang = language;
  document.title = translate("nav.title");
  for (const node of document.querySelectorAll("[data-t]")) {
    for (const [attribute, [key, values]] of bound.get(node)) show(node, attribute, key, values);
  }
}

/** Binds an attribute of `node`, or with "" its text, to a text of the dictionary. */
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
 * Returns a text. `{name}` stands for a value; numbers are written as the language does. A text
 * with forms for one and for other numbers is chosen by the value `n`. A key without a text, such as
 * that of a limit which a newer server has, stands for itself.
 */
export function translate(key, values = {}) {
  const found = DICTIONARIES[language][key] ?? key;
  const form = typeof found === "string" ? found : (found[plural(values.n)] ?? found.other);
  return form.replace(/\{(\w+)\}/g, (_, name) => written(values[name]));
}

/** Whether the dictionary has a text. */
export function hasText(key) {
  return key in english;
}

function plural(number) {
  return new Intl.PluralRules(language).select(Number(number));
}

function written(value) {
  return typeof value === "number" ? new Intl.NumberFormat(language).format(value) : String(value);
}
