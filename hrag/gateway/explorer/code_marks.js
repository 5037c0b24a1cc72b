// Leaves out marks that cover only a part of a code. The lexical index also has the parts of a code:
// a search for `AB-4711` finds `AB` alone, so the server marks the `AB` of `AB-9999` too. That is
// how the leaf was found, but to a reader it looks like a match of the code.

const CODE = /[\p{L}\p{N}]+(?:[-_./:][\p{L}\p{N}]+)*/gu;
const PART = /[\p{L}\p{N}]+/gu;
const HAS_DIGIT = /\p{N}/u;

/**
 * Returns the spans of terms without those that cover a part of a code in `text`, unless the query
 * itself has this part as a word. Spans have offsets in the document, in code points; `start` is the
 * offset of the text.
 */
export function wholeTerms(spans, text, start, query) {
  const words = new Set(query.toLowerCase().match(CODE));
  const codes = partialCodes(spans, text, start);
  const points = codes.length ? [...text] : [];
  return spans.filter((span) => {
    const code = codes.find(({ from, to }) => from <= begin(span) && span.charEnd <= to);
    if (!code || words.has(code.covered)) return true;
    const part = points.slice(begin(span) - start, span.charEnd - start).join("");
    return words.has(part.toLowerCase());
  });
}

/**
 * Returns the ranges of the codes of which the spans cover some parts, but not all. `covered` is the
 * text from the first of these parts to the last one, in lower case.
 */
function partialCodes(spans, text, start) {
  const codes = [];
  let [place, units] = [start, 0]; // `place` is the offset of the UTF-16 unit `units`.
  for (const { 0: code, index } of text.matchAll(CODE)) {
    place += [...text.slice(units, index)].length;
    units = index;
    const from = place;
    if (!HAS_DIGIT.test(code)) continue;
    const parts = [...code.matchAll(PART)].map(({ 0: part, index: at }) => {
      const first = from + [...code.slice(0, at)].length;
      return { first, last: first + [...part].length };
    });
    const isCovered = ({ first, last }) =>
      spans.some((span) => begin(span) < last && first < span.charEnd);
    const found = parts.filter(isCovered);
    if (!found.length || found.length === parts.length) continue;
    const covered = [...code].slice(found[0].first - from, found.at(-1).last - from).join("");
    codes.push({ from, to: from + [...code].length, covered: covered.toLowerCase() });
  }
  return codes;
}

function begin({ charStart = 0 }) {
  return charStart;
}
