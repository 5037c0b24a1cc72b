// A model's text with its markers as buttons. The text is untrusted and stays plain text.

import { h } from "./dom.js";

const CODE = /(`{3,}[\s\S]*?(?:`{3,}|$)|`[^`\n]*`)/;
const NUMBER = "[1-9][0-9]{0,2}";
const ITEM = `${NUMBER}(?: ?[-–] ?${NUMBER})?`;
const ITEMS = ` *${ITEM}(?: *[,，、;] *${ITEM})* *`;
const MARKER = new RegExp(`(\\[${ITEMS}\\]|【${ITEMS}】)`);

/**
 * Returns nodes for the text. Each number of a marker becomes a button, which calls
 * `onCite(number, citation)`; the citation is undefined where the server sent too few for it.
 * Brackets are a marker only if the citations name all of their numbers; others stay text.
 */
export function citedText(text, citations, onCite) {
  const left = Map.groupBy(citations, ({ marker }) => marker);
  return text.split(CODE).flatMap((part, index) => {
    if (index % 2) return [h("code", {}, part)];
    return part
      .split(MARKER)
      .flatMap((each, at) => (at % 2 ? chips(each, left, onCite) : [each]));
  });
}

function chips(brackets, left, onCite) {
  const found = numbers(brackets, left);
  return found.length ? found.map((number) => chip(number, left, onCite)) : [brackets];
}

/** The numbers in brackets, each once; none if one of them is not in `cited`. */
function numbers(brackets, cited) {
  const found = new Set();
  for (const item of brackets.split(/[,，、;]/)) {
    const [first, last = first] = item.match(/[0-9]+/g).map(Number);
    for (let number = first; number <= last; number += 1) {
      if (!cited.has(number)) return [];
      found.add(number);
    }
  }
  return [...found];
}

function chip(number, left, onCite) {
  const citation = left.get(number).shift();
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
