// Shows the scores of a passage or a leaf, one for each source.

import { h } from "./dom.js";
import { score } from "./format.js";

const SOURCES = [
  ["lexical", "lexicalScore"],
  ["dense", "denseScore"],
  ["rerank", "rerankScore"],
];

/**
 * Returns a node with the scores of `scored`, which is a passage or a leaf. Sources without a score
 * are left out. A score has a bar, except that of the reranker, whose scale is not 0 to 1.
 */
export function scoreList(scored) {
  const present = SOURCES.filter(([, name]) => scored[name] !== undefined);
  return h(
    "dl",
    { class: "scores" },
    present.map(([source, name]) => entry(source, scored[name])),
  );
}

function entry(source, value) {
  const bar = h(
    "span",
    { class: `score-bar source-${source}`, "aria-hidden": "true" },
    h("span", {}),
  );
  bar.firstChild.style.width = `${100 * Math.min(Math.max(value, 0), 1)}%`;
  return h(
    "div",
    {},
    h("dt", { t: `score.${source}` }),
    h("dd", {}, source !== "rerank" && bar, score(value)),
  );
}
