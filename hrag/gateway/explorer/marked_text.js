// A text with marked ranges, which may overlap: the text is cut at every border, and each piece
// carries all marks that cover it.

import { h } from "./dom.js";
import { utf16Offsets } from "./text_offsets.js";

/**
 * Returns nodes that show `text`, whose first code point has the number `start` in its document.
 * `marks` are `{ kind, start, end }` in code points of the document; parts outside are ignored.
 */
export function markedText(text, start, marks) {
  const offset = utf16Offsets(text);
  const inText = marks
    .map(({ kind, start: from, end }) => ({
      kind,
      from: offset(from - start),
      to: offset(end - start),
    }))
    .filter(({ from, to }) => from < to);
  const borders = new Set([0, text.length, ...inText.flatMap(({ from, to }) => [from, to])]);
  const cuts = [...borders].sort((a, b) => a - b);
  return cuts
    .slice(0, -1)
    .map((from, index) => piece(text.slice(from, cuts[index + 1]), kindsAt(inText, from)));
}

function kindsAt(marks, place) {
  return new Set(
    marks.filter(({ from, to }) => from <= place && place < to).map(({ kind }) => kind),
  );
}

function piece(text, kinds) {
  if (!kinds.size) return document.createTextNode(text);
  return h("mark", { class: [...kinds].map((kind) => `mark-${kind}`).join(" ") }, text);
}

/** Returns the mark of a span of the protocol, in which a 0 is left out. */
export function spanMark(kind, span) {
  return { kind, start: span.charStart ?? 0, end: span.charEnd ?? 0 };
}

/** Scrolls a box, and nothing around it, until one of its marks is well in view. */
export function scrollWithin(box, mark) {
  if (!mark) return;
  const top = mark.getBoundingClientRect().top - box.getBoundingClientRect().top;
  const isVisible = top >= 0 && top + mark.getBoundingClientRect().height <= box.clientHeight;
  if (!isVisible) box.scrollTop += top - box.clientHeight / 4;
}
