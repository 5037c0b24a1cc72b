// Filter messages from rows. Values are read as `hrag search --filter` reads them: JSON numbers,
// true, false, quoted texts and lists as what they are, everything else as a text; bounds are
// numbers or dates. What looks like a mistake is refused, since it would match nothing, or all.

import { CallError } from "./connect.js";
import { translate } from "./translation.js";

const BOUNDS = { at_least: "atLeast", above: "above", at_most: "atMost", below: "below" };
const TEXT_FIELDS = ["document_id", "title", "source"];
const KINDS = { string: "text", number: "number", boolean: "flag" }; // By type; FilterValue's fields.
// Dates and times as RFC 3339 and most of ISO 8601 write them: date, time, seconds, zone.
const TIMESTAMP =
  /^(\d{4}-\d\d-\d\d)(?:[t ]((?:[01]\d|2[0-3]):[0-5]\d)(?::([0-5]\d(?:[.,]\d{1,9})?))?(z|[+-]\d\d:?\d\d)?)?$/i;

/** Returns the Filter of rows `[key, operator, value]`; undefined without any. Raises CallError. */
export function filterMessage({ join, rows }) {
  const filters = rows
    .filter(([key]) => key.trim())
    .map(([key, operator, value]) => condition(key.trim(), operator, value.trim()));
  if (!filters.length) return undefined;
  if (filters.length === 1) return filters[0];
  return { [join === "any" ? "anyOf" : "allOf"]: { filters } };
}

/** Returns what a value is read as: `text`, `number`, `flag`, `timestamp`, `list` or `malformed`. */
export function valueKind(key, operator, value) {
  const found = values(fieldName(key.trim()), operator, value.trim());
  if (!found.length) return "malformed";
  return found.length === 1 ? Object.keys(found[0])[0] : "list";
}

function condition(key, operator, value) {
  const field = fieldName(key);
  if (operator === "present") return { exists: { field } };
  if (operator === "absent") return not({ exists: { field } });
  const found = values(field, operator, value);
  if (!found.length) throw malformed(key, operator, value);
  if (operator in BOUNDS) return { range: { field, [BOUNDS[operator]]: found[0] } };
  const match = { match: { field, values: found } };
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

/** Returns the FilterValues that a value stands for; none if it is malformed. */
function values(field, operator, value) {
  return operator in BOUNDS ? bound(value) : matched(field, value);
}

function matched(field, value) {
  const read = parsed(value);
  const isText = TEXT_FIELDS.includes(field) && ["number", "boolean"].includes(typeof read);
  const found = isText ? [value] : [read].flat();
  return found.every((each) => typeof each in KINDS) ? found.map(filterValue) : [];
}

function bound(value) {
  const read = parsed(value);
  if (typeof read === "number") return [filterValue(read)];
  const moment = typeof read === "string" ? timestamp(read) : undefined;
  return moment ? [{ timestamp: moment }] : [];
}

function filterValue(value) {
  const isInfinite = [Infinity, -Infinity].includes(value); // JSON has a text for it, no number.
  return { [KINDS[typeof value]]: isInfinite ? String(value) : value };
}

/** Returns what JSON `value` is, or else the text itself; undefined if it must be JSON and is not. */
function parsed(value) {
  if (value === "" || value.startsWith("'")) return undefined;
  try {
    return JSON.parse(value) ?? value;
  } catch {
    return /^["[{]/.test(value) ? undefined : value;
  }
}

/** Returns a date, or date and time, as protobuf's JSON has it; undefined for another text. */
function timestamp(text) {
  const [, day, time = "00:00", seconds = "00", zone = "Z"] = TIMESTAMP.exec(text) ?? [];
  if (!day || !new Date(day).toJSON()?.startsWith(day)) return undefined;
  const offset = zone.toUpperCase().replace(/(\d\d)(\d\d)$/, "$1:$2");
  return `${day}T${time}:${seconds.replace(",", ".")}${offset}`;
}
