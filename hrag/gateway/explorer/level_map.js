// A map of a document's levels. Each level is a row, and each chunk is a bar as wide as its span.
// The map is only for pointers; the tree next to it has the same functions for the keyboard and for
// screen readers.

import { h } from "./dom.js";

export class LevelMap {
  #on;
  #bars = new Map();

  constructor({ onSelect, onPreview }) {
    this.#on = { onSelect, onPreview };
    this.element = h("div", {
      class: "level-map",
      "aria-hidden": "true",
      onmouseleave: () => onPreview(),
    });
  }

  /**
   * Draws a row for the top-level chunk `topId`, and a row for each level of its descendants. If
   * the document has several top-level chunks, a row above these rows shows all top-level chunks.
   */
  show(nodes, topId, selected) {
    this.#bars.clear();
    const all = [...nodes.values()].map(({ chunk }) => chunk);
    all.sort((a, b) => (a.index ?? 0) - (b.index ?? 0));
    const top = nodes.get(topId).chunk;
    const tops = all.filter(({ level = 0 }) => level === (top.level ?? 0));
    const inside = all.filter(
      ({ chunkId, level = 0 }) =>
        chunkId === topId || (level < (top.level ?? 0) && isInside(nodes, chunkId, topId)),
    );
    const levels = [...new Set(inside.map(({ level = 0 }) => level))].sort((a, b) => b - a);
    const rows = levels.map((level) =>
      this.#row(
        inside.filter((chunk) => (chunk.level ?? 0) === level),
        top.span ?? {},
        "map.level",
        level,
      ),
    );
    if (tops.length > 1)
      rows.unshift(this.#row(tops, wholeSpan(tops), "map.document", top.level ?? 0, topId));
    this.element.replaceChildren(...rows);
    this.highlight(selected);
  }

  /** Highlights the bars of the chunk `chunkId`, and no other bars. */
  highlight(chunkId) {
    for (const [id, bars] of this.#bars)
      for (const bar of bars) bar.classList.toggle("is-meant", id === chunkId);
  }

  #row(chunks, within, key, level, opened = "") {
    const bars = chunks.map((chunk) => this.#bar(chunk, within, level, chunk.chunkId === opened));
    return h(
      "div",
      { class: "map-row" },
      h("span", { class: "map-name", t: [key, { level, n: chunks.length }] }),
      h("div", { class: "map-track" }, bars),
    );
  }

  #bar({ chunkId, span = {} }, within, level, isOpened) {
    const bar = h("span", {
      class: `map-bar level-${level}${isOpened ? " is-opened" : ""}`,
      onclick: () => this.#on.onSelect(chunkId),
      onmouseenter: () => this.#on.onPreview(chunkId),
    });
    const [from, to] = [within.charStart ?? 0, within.charEnd ?? 1];
    bar.style.left = `${(100 * ((span.charStart ?? 0) - from)) / (to - from)}%`;
    bar.style.width = `${(100 * ((span.charEnd ?? 0) - (span.charStart ?? 0))) / (to - from)}%`;
    this.#bars.set(chunkId, [...(this.#bars.get(chunkId) ?? []), bar]);
    return bar;
  }
}

function isInside(nodes, chunkId, topId) {
  let node = nodes.get(chunkId);
  while (node?.parentId) node = nodes.get(node.parentId);
  return node?.chunk.chunkId === topId;
}

function wholeSpan(chunks) {
  return { charStart: 0, charEnd: Math.max(...chunks.map(({ span }) => span?.charEnd ?? 0)) };
}
