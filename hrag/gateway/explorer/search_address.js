// Writes a search into fields of the page's address, and reads it from them. A search is
// `{ q, a, b }`: the query, the setting A and the setting B. A setting is an object of texts by the
// name of the option, with the conditions of its filter in `filters`; without `b`, only one setting
// is shown. In the address, the options of the setting B begin with `b.`. Each condition is written
// as `key~operator~value`, and two tildes separate conditions.

import { MAIN_OPTIONS, MORE_OPTIONS } from "./search_options.js";

const OPTIONS = [...MAIN_OPTIONS, ...MORE_OPTIONS].map(({ name }) => name);
const SECOND = "b.";
const NO_FILTERS = { join: "all", rows: [] };

/** Returns the fields of the address for a search. All other fields of a search are empty. */
export function searchFields({ q = "", a, b }) {
  return { q, ...settingFields(a, ""), ...settingFields(b, SECOND) };
}

/** Returns the search that the fields of an address contain. */
export function searchIn(fields) {
  const hasSecond = Object.keys(fields).some((name) => name.startsWith(SECOND));
  return {
    q: fields.q ?? "",
    a: settingIn(fields, ""),
    b: hasSecond ? settingIn(fields, SECOND) : undefined,
  };
}

function settingFields(setting = {}, prefix) {
  const { filters = NO_FILTERS, ...options } = setting;
  const fields = OPTIONS.map((name) => [prefix + name, String(options[name] ?? "")]);
  const conditions = filters.rows.filter(([key]) => key.trim()).map(condition);
  return {
    ...Object.fromEntries(fields),
    [`${prefix}filter`]: conditions.join("~~"),
    [`${prefix}join`]: conditions.length > 1 && filters.join === "any" ? "any" : "",
  };
}

function settingIn(fields, prefix) {
  const options = OPTIONS.filter((name) => fields[prefix + name] !== undefined).map((name) => [
    name,
    fields[prefix + name],
  ]);
  const conditions = fields[`${prefix}filter`]?.split("~~") ?? [];
  const rows = conditions.map((text) => {
    const [key, operator = "is", value = ""] = text.split("~").map(unescaped);
    return [key, operator, value];
  });
  return {
    ...Object.fromEntries(options),
    filters: { join: fields[`${prefix}join`] ?? "all", rows },
  };
}

function condition([key, operator, value]) {
  const parts = value ? [key, operator, value] : [key, operator];
  return parts
    .map((part) => part.replaceAll("%", "%25").replaceAll("~", "%7E"))
    .join("~");
}

function unescaped(part) {
  return part.replaceAll("%7E", "~").replaceAll("%25", "%");
}
