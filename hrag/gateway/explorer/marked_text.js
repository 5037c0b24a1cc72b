// Shows a text with marked ranges, which may overlap. The text is cut at the start and the end of
// every range, and each piece gets all marks that cover it.

import { h } from "./dom.js";
import { utf16Offsets } from "./text_offsets.js";

/**
 * Returns a function that returns nodes for a range of `text`, in UTF-16 units. `start` is the
 * offset of the text in its document, in code points. `marks` are `{ kind, start, end }`, where
 * `start` and `end` are also offsets in the document, in code points. If a part of a mark is outside
 * the text, this part is ignored.
 */
export function textPainter(text, start, marks) {
  const offset = utf16Offsets(text);
  const inText = marks
    .map(({ kind, start: from, end }) => ({
      kind,
      from: offset(from - start),
      to: offset(end - start),
    }))
    .filter(({ from, to }) => from < to);
  const borders = [...new Set(inText.flatMap(({ from, to }) => [from, to]))].sort((a, b) => a - b);
  return (from, to) => {
    const cuts = [from, ...borders.filter((border) => from < border && border < to), to];
    return cuts
      .slice(0, -1)
      .map((cut, index) => piece(text.slice(cut, cuts[index + 1]), kindsAt(inText, cut)));
  };
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

/**
 * Returns a mark that covers `span`. A field that is missing in the span has the value 0, because
 * ProtoJSON leaves out zeros.
 */
export function spanMark(kind, span) {
  return { kind, start: span.charStart ?? 0, end: span.charEnd ?? 0 };
}

/** Scrolls only `box`, and not the page, until the mark inside the box is visible. */
export function scrollWithin(box, mark) {
  if (!mark) return;
  const top = mark.getBoundingClientRect().top - box.getBoundingClientRect().top;
  const isVisible = top >= 0 && top + mark.getBoundingClientRect().height <= box.clientHeight;
  if (!isVisible) box.scrollTop += top - box.clientHeight / 4;
}
