// Builds the Filter message from the rows of a filter. A value is read by the rules of
// `hrag search --filter`: numbers, true, false, quoted texts and lists have their JSON meaning, and
// every other value is a text. A bound is a number or a date. A value that looks like a mistake is
// refused, because it would match no document or all documents.

import { CallError } from "./connect.js";
import { translate } from "./translation.js";

const BOUNDS = { at_least: "atLeast", above: "above", at_most: "atMost", below: "below" };
const TEXT_FIELDS = ["document_id", "title", "source", "mime_type", "format"];
// The field of FilterValue for each JavaScript type.
const KINDS = { string: "text", number: "number", boolean: "flag" };
// Matches a date or a time in a form of RFC 3339, or in most forms of ISO 8601. The groups are
// date, time, seconds and zone.
const TIMESTAMP =
  /^(\d{4}-\d\d-\d\d)(?:[t ]((?:[01]\d|2[0-3]):[0-5]\d)(?::([0-5]\d(?:[.,]\d{1,9})?))?(z|[+-]\d\d:?\d\d)?)?$/i;

/**
 * Returns the Filter message for the rows `[key, operator, value]`; undefined if no row has a key.
 * Raises CallError for a malformed value.
 */
export function filterMessage({ join, rows }) {
  const filters = rows
    .filter(([key]) => key.trim())
    .map(([key, operator, value]) => condition(key.trim(), operator, value.trim()));
  if (!filters.length) return undefined;
  if (filters.length === 1) return filters[0];
  return { [join === "any" ? "anyOf" : "allOf"]: { filters } };
}

/** Returns the kind of a value: `text`, `number`, `flag`, `timestamp`, `list` or `malformed`. */
export function valueKind(key, operator, value) {
  const filterValues = values(fieldName(key.trim()), operator, value.trim());
  if (!filterValues.length) return "malformed";
  return filterValues.length === 1 ? Object.keys(filterValues[0])[0] : "list";
}

function condition(key, operator, value) {
  const field = fieldName(key);
  if (operator === "present") return { exists: { field } };
  if (operator === "absent") return not({ exists: { field } });
  const filterValues = values(field, operator, value);
  if (!filterValues.length) throw malformed(key, operator, value);
  if (operator in BOUNDS) return { range: { field, [BOUNDS[operator]]: filterValues[0] } };
  const match = { match: { field, values: filterValues } };
  return operator === "is_not" ? not(match) : match;
}

function not(filter) {
  return { noneOf: { filters: [filter] } };
}

function fieldName(key) {
  return TEXT_FIELDS.includes(key) || key.startsWith("metadata.") ? key : `metadata.${key}`;
}

function malformed(key, operator, value) {
  const text = operator in BOUNDS ? "filter.malformed_bound" : "filter.malformed_value";
  return new CallError({ code: "invalid_argument", message: translate(text, { key, value }) });
}

/**
 * Returns the FilterValue messages for a value, as an array; it is empty if `value` is malformed.
 */
function values(field, operator, value) {
  return operator in BOUNDS ? bound(value) : matched(field, value);
}

function matched(field, value) {
  const read = parsed(value);
  const isText = TEXT_FIELDS.includes(field) && ["number", "boolean"].includes(typeof read);
  const items = isText ? [value] : [read].flat();
  return items.every((item) => typeof item in KINDS) ? items.map(filterValue) : [];
}

function bound(value) {
  const read = parsed(value);
  if (typeof read === "number") return [filterValue(read)];
  const moment = typeof read === "string" ? timestamp(read) : undefined;
  return moment ? [{ timestamp: moment }] : [];
}

function filterValue(value) {
  // JSON has no number for infinity; ProtoJSON writes it as a text.
  const isInfinite = [Infinity, -Infinity].includes(value);
  return { [KINDS[typeof value]]: isInfinite ? String(value) : value };
}

/**
 * Returns the value of a JSON text, or the text itself if it is not JSON. Returns undefined for an
 * empty text, and for a text that begins with a quote or a bracket but is not JSON.
 */
function parsed(value) {
  if (value === "" || value.startsWith("'")) return undefined;
  try {
    return JSON.parse(value) ?? value;
  } catch {
    return /^["[{]/.test(value) ? undefined : value;
  }
}

/** Returns a date, with or without a time, in ProtoJSON's form; undefined for any other text. */
function timestamp(text) {
  const [, day, time = "00:00", seconds = "00", zone = "Z"] = TIMESTAMP.exec(text) ?? [];
  if (!day || !new Date(day).toJSON()?.startsWith(day)) return undefined;
  const offset = zone.toUpperCase().replace(/(\d\d)(\d\d)$/, "$1:$2");
  return `${day}T${time}:${seconds.replace(",", ".")}${offset}`;
}
