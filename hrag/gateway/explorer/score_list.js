// Shows the scores of a passage or a leaf, one for each source.

import { h } from "./dom.js";
import { score } from "./format.js";

const SOURCES = [
  ["lexical", "lexicalScore"],
  ["dense", "denseScore"],
  ["rerank", "rerankScore"],
];

/**
 * Returns the scores of the sources that scored the passage or leaf. A score whose scale is 0 to 1
 * has a bar.
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
