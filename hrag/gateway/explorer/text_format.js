// Puts values into a text of the dictionary.

/**
 * Returns `text` with `{name}` replaced by the value `name`. Numbers are formatted for the
 * language. If `text` has plural forms, the value `n` determines the form.
 */
export function formatText(text, values, language) {
  const form = typeof text === "string" ? text : (text[plural(values.n, language)] ?? text.other);
  return form.replace(/\{(\w+)\}/g, (_, name) => formattedValue(values[name], language));
}

function plural(number, language) {
  return new Intl.PluralRules(language).select(Number(number));
}

function formattedValue(value, language) {
  return typeof value === "number" ? new Intl.NumberFormat(language).format(value) : String(value);
}
