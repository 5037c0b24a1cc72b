// A model's text with its markers as buttons. The text is untrusted and stays plain text.

import { h } from "./dom.js";

const CODE = /(`{3,}[\s\S]*?(?:`{3,}|$)|`[^`\n]*`)/;
const MARKER = /([[【] *[0-9][0-9 ,，、;–-]*[\]】])/;
const ITEM = /([0-9]+)(?: ?[-–] ?([0-9]+))?/g;

/**
 * Returns nodes for the text. Each number of a marker becomes a button, which calls
 * `onCite(number, citation)`; the citation is undefined where the server sent none for it.
 */
export function citedText(text, citations, onCite) {
  const left = Map.groupBy(citations, ({ marker }) => marker);
  return text.split(CODE).flatMap((part, index) => {
    if (index % 2) return [h("code", {}, part)];
    return part
      .split(MARKER)
      .flatMap((each, at) =>
        at % 2 ? numbers(each).map((number) => chip(number, left, onCite)) : [each],
      );
  });
}

function numbers(marker) {
  return [...marker.matchAll(ITEM)].flatMap(([, first, last]) => {
    const length = Number(last ?? first) - Number(first) + 1;
    return Array.from({ length: Math.max(length, 1) }, (_, step) => Number(first) + step);
  });
}

function chip(number, left, onCite) {
  const citation = left.get(number)?.shift();
  return h(
    "button",
    {
      type: "button",
      class: "cite",
      tLabel: ["answer.cite", { number }],
      onclick: () => onCite(number, citation),
    },
    String(number),
  );
}
