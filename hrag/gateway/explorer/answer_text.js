// Shows the text of a chat model as Markdown, with the citation markers in it as buttons. The text
// is untrusted, so it is never read as HTML.

import { h } from "./dom.js";
import { markdownBlocks } from "./markdown.js";
import { markdownNodes } from "./markdown_view.js";

const CODE = /(`{3,}[\s\S]*?(?:`{3,}|$)|`[^`\n]*`)/;
const NUMBER = "[1-9][0-9]{0,2}";
const ITEM = `${NUMBER}(?: ?[-–] ?${NUMBER})?`;
const ITEMS = ` *${ITEM}(?: *[,，、;] *${ITEM})* *`;
const MARKER = new RegExp(`\\[${ITEMS}\\]|【${ITEMS}】`, "g");

/**
 * Returns nodes for the text. A marker is a pair of brackets with the numbers of passages, for
 * example `[1, 3]`. Each number of a marker becomes a button, which calls `onCite(number,
 * citation)`. If a number occurs several times, its n-th button gets its n-th citation. `citation`
 * is undefined if the server sent fewer citations of this number. Brackets are a marker only if
 * `citations` contains all numbers in the brackets; other brackets stay text.
 */
export function citedText(text, citations, onCite) {
  const unused = Map.groupBy(citations, ({ marker }) => marker);
  const buttons = new Map(); // The buttons of a marker, by the offset of the marker.
  const atoms = new Map(); // The offset after a marker, by its offset.
  let offset = 0;
  for (const [index, part] of text.split(CODE).entries()) {
    for (const { 0: brackets, index: at } of index % 2 ? [] : part.matchAll(MARKER)) {
      const cited = numbers(brackets, unused);
      if (!cited.length) continue;
      atoms.set(offset + at, offset + at + brackets.length);
      buttons.set(
        offset + at,
        cited.map((number) => chip(number, unused, onCite)),
      );
    }
    offset += part.length;
  }
  const paint = (from, to) => buttons.get(from) ?? text.slice(from, to);
  return markdownNodes(markdownBlocks(text, { atoms }), paint);
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
