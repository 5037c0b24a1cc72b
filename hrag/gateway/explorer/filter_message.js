// Filter messages from rows. Values are read as `hrag search --filter` reads them: JSON numbers,
// true, false, quoted texts and lists as what they are, everything else as a text; bounds are
// numbers or dates.

const BOUNDS = { at_least: "atLeast", above: "above", at_most: "atMost", below: "below" };
const TEXT_FIELDS = ["document_id", "title", "source"];

/** Returns the Filter of rows `[key, operator, value]`; undefined without any. */
export function filterMessage({ join, rows }) {
  const filters = rows
    .filter(([key]) => key.trim())
    .map(([key, operator, value]) => condition(key.trim(), operator, value.trim()));
  if (!filters.length) return undefined;
  if (filters.length === 1) return filters[0];
  return { [join === "any" ? "anyOf" : "allOf"]: { filters } };
}

/** Returns what a value is read as: `text`, `number`, `flag`, `list` or `date`. */
export function valueKind(key, operator, value) {
  if (operator in BOUNDS) return "number" in bound(value) ? "number" : "date";
  const read = values(fieldName(key), value);
  return read.length === 1 ? Object.keys(read[0])[0] : "list";
}

function condition(key, operator, value) {
  const field = fieldName(key);
  if (operator === "present") return { exists: { field } };
  if (operator === "absent") return not({ exists: { field } });
  if (operator in BOUNDS) return { range: { field, [BOUNDS[operator]]: bound(value) } };
  const match = { match: { field, values: values(field, value) } };
  return operator === "is_not" ? not(match) : match;
}

function not(filter) {
  return { noneOf: { filters: [filter] } };
}

function fieldName(key) {
  return TEXT_FIELDS.includes(key) || key.startsWith("metadata.") ? key : `metadata.${key}`;
}

function values(field, value) {
  const read = json(value);
  if (Array.isArray(read)) return read.map(filterValue);
  return [filterValue(TEXT_FIELDS.includes(field) ? value : read)];
}

function filterValue(value) {
  if (typeof value === "number") return { number: value };
  if (typeof value === "boolean") return { flag: value };
  return { text: typeof value === "string" ? value : JSON.stringify(value) };
}

/** Returns what JSON `value` is, or else the text itself. */
function json(value) {
  try {
    const read = JSON.parse(value);
    return read === null || (typeof read === "object" && !Array.isArray(read)) ? value : read;
  } catch {
    return value;
  }
}

function bound(value) {
  const read = json(value);
  return typeof read === "number" ? { number: read } : { timestamp: timestamp(value) };
}

/** Returns an ISO 8601 date, or date and time, as protobuf's JSON has it: in UTC if it names no zone. */
function timestamp(value) {
  if (/^\d{4}-\d\d-\d\d$/.test(value)) return `${value}T00:00:00Z`;
  const time = value.replace(" ", "T");
  return /(Z|[+-]\d\d:?\d\d)$/i.test(time) ? time : `${time}Z`;
}
