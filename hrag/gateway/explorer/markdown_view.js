// Shows Markdown. Only elements of this module appear: a text cannot add a link, a picture or any
// other element. A link is shown as its text with its address, and a picture as its description.

import { h } from "./dom.js";

/**
 * Returns nodes for the blocks of `markdownBlocks`. `paint` is called with the range of each leaf,
 * and returns the nodes for this part of the text.
 */
export function markdownNodes(blocks, paint) {
  return blocks.map((block) => BLOCKS[block.type](block, paint));
}

const BLOCKS = {
  paragraph: ({ children }, paint) => h("p", {}, inline(children, paint)),
  heading: ({ level, children }, paint) =>
    h("p", { class: `md-heading md-${level}` }, inline(children, paint)),
  code: ({ ranges }, paint) =>
    h(
      "pre",
      { class: "code-block", tabindex: "0" },
      h("code", {}, ranges.map(({ from, to }, at) => [at > 0 && "\n", paint(from, to)])),
    ),
  quote: ({ blocks }, paint) => h("blockquote", {}, markdownNodes(blocks, paint)),
  rule: () => h("hr"),
  list: ({ start, items }, paint) =>
    h(
      start === undefined ? "ul" : "ol",
      { class: "md-list", start },
      items.map((blocks) => h("li", {}, markdownNodes(blocks, paint))),
    ),
  table: ({ aligned, head, rows }, paint) => {
    const row = (tag, cells) =>
      h(
        "tr",
        {},
        cells.map((cell, at) =>
          h(tag, { class: aligned[at] ? `align-${aligned[at]}` : null }, inline(cell, paint)),
        ),
      );
    return h(
      "div",
      { class: "md-table", tabindex: "0", role: "group", tLabel: "markdown.table" },
      h(
        "table",
        {},
        head && h("thead", {}, row("th", head)),
        h(
          "tbody",
          {},
          rows.map((cells) => row("td", cells)),
        ),
      ),
    );
  },
};

function inline(nodes, paint) {
  return nodes.map((node) => {
    const { type, from, to, children, address } = node;
    if (type === "code") return h("code", {}, paint(from, to));
    if (type === "text" || type === "atom") return paint(from, to);
    if (type === "address") return h("span", { class: "address" }, inline(children, paint));
    if (type === "link") {
      const target = h("span", { class: "address" }, inline(address, paint));
      const shown = address.length > 0 && [" ", target];
    return h("span", { class: "link" }, inline(children, paint), shown);
    }
    return h(type, {}, inline(children, paint));
  });
}
