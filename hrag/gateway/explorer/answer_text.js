// Shows the text of a chat model, with the citation markers in it as buttons. The text is
// untrusted, so it is never read as HTML.

import { h } from "./dom.js";

const CODE = /(`{3,}[\s\S]*?(?:`{3,}|$)|`[^`\n]*`)/;
const NUMBER = "[1-9][0-9]{0,2}";
const ITEM = `${NUMBER}(?: ?[-–] ?${NUMBER})?`;
const ITEMS = ` *${ITEM}(?: *[,，、;] *${ITEM})* *`;
const MARKER = new RegExp(`(\\[${ITEMS}\\]|【${ITEMS}】)`);

/**
 * Returns nodes for the text. A marker is a pair of brackets with the numbers of passages, for
 * example `[1, 3]`. Each number of a marker becomes a button, which calls `onCite(number,
 * citation)`. If a number occurs several times, its n-th button gets its n-th citation. `citation`
 * is undefined if the server sent fewer citations of this number. Brackets are a marker only if
 * `citations` contains all numbers in the brackets; other brackets stay text.
 */
export function citedText(text, citations, onCite) {
  const unused = Map.groupBy(citations, ({ marker }) => marker);
  return text.split(CODE).flatMap((part, index) => {
    if (index % 2) return [h("code", {}, part)];
    return part
      .split(MARKER)
      .flatMap((piece, at) => (at % 2 ? chips(piece, unused, onCite) : [piece]));
  });
}

function chips(brackets, unused, onCite) {
  const cited = numbers(brackets, unused);
  return cited.length ? cited.map((number) => chip(number, unused, onCite)) : [brackets];
}

/**
 * Returns the numbers in brackets, each once; returns none if one number is not a key of `cited`.
 */
function numbers(brackets, cited) {
  const distinct = new Set();
  for (const item of brackets.split(/[,，、;]/)) {
    const [first, last = first] = item.match(/[0-9]+/g).map(Number);
    for (let number = first; number <= last; number += 1) {
      if (!cited.has(number)) return [];
      distinct.add(number);
    }
  }
  return [...distinct];
}

function chip(number, unused, onCite) {
  const citation = unused.get(number).shift();
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
