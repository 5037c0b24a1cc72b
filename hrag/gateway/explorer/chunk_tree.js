// Shows the chunks of a document as a tree that follows the ARIA pattern for trees: one item has
// the focus, and the arrow keys move the focus and open or close items. The top-level chunks are
// shown in pages, because a long document has thousands of top-level chunks.

import { button, data, h, tr } from "./dom.js";

const TOP_PAGE = 50; // The number of top-level chunks on a page.

export class ChunkTree {
  #nodes;
  #on;
  #page = 0;
  #list = h("ul", { role: "tree", tLabel: "document.tree" });
  #pager = h("div", { class: "pager" });

  /**
   * `nodes` is a map from chunk ids to ChunkNodes; entries may be added later. `onSelect` is called
   * with the id of a chunk that the user selects. `onPreview` is called with the id of the chunk
   * under the pointer or with the focus, or with undefined if there is no such chunk. `preview`
   * returns the first words of a node's chunk.
   */
  constructor(nodes, { onSelect, onPreview, preview }) {
    this.#nodes = nodes;
    this.#on = { onSelect, onPreview, preview };
    this.element = h("div", { class: "tree-pane" }, this.#list, this.#pager);
    this.#list.addEventListener("keydown", (event) => this.#onKey(event));
    this.#list.addEventListener("mouseleave", () => onPreview());
    this.#list.addEventListener("focusout", () => onPreview());
  }

  /**
   * Shows a chunk as selected, with all its ancestors open. `topId` is the id of the top-level
   * chunk above the chunk. If the focus was in the tree, the focus moves to the item of the chunk.
   */
  show(chunkId, topId) {
    const hadFocus = this.#list.contains(document.activeElement);
    this.#page = Math.floor((this.#nodes.get(topId).chunk.index ?? 0) / TOP_PAGE);
    this.#render(new Set(this.#pathTo(chunkId)), chunkId, topId);
    if (hadFocus) this.#item(chunkId).focus();
    this.#scrollTo(this.#item(chunkId));
  }

  #pathTo(chunkId) {
    const path = [chunkId];
    while (this.#nodes.get(path[0])?.parentId) path.unshift(this.#nodes.get(path[0]).parentId);
    return path;
  }

  #tops() {
    const tops = [...this.#nodes.values()].filter(({ parentId }) => !parentId);
    return tops.sort((a, b) => (a.chunk.index ?? 0) - (b.chunk.index ?? 0));
  }

  #render(open, selected, topId) {
    const tops = this.#tops();
    const first = this.#page * TOP_PAGE;
    const shown = tops.slice(first, first + TOP_PAGE);
    this.#list.replaceChildren(
      ...shown.map((node, at) =>
        this.#newItem(node, {
          depth: 1,
          place: first + at + 1,
          total: tops.length,
          open,
          selected,
        }),
      ),
    );
    this.#pager.hidden = tops.length <= TOP_PAGE;
    const go = (step) => () => this.#turnTo(this.#page + step, topId);
    this.#pager.replaceChildren(
      button("documents.previous", go(-1), { disabled: first === 0 }),
      tr("document.range", { first: first + 1, last: first + shown.length, total: tops.length }),
      button("documents.next", go(1), { disabled: first + TOP_PAGE >= tops.length }),
    );
    this.#setTabStop(this.#item(selected) ?? this.#list.firstElementChild);
  }

  #turnTo(page, topId) {
    this.#page = page;
    this.#render(new Set(), "", topId);
    this.#list.firstElementChild.focus();
  }

  #newItem(node, { depth, place, total, open, selected }) {
    const { chunkId, level = 0, index = 0, tokenCount = 0 } = node.chunk;
    const children = (node.childIds ?? []).map((id) => this.#nodes.get(id)).filter(Boolean);
    const hasChildren = (node.childIds ?? []).length > 0;
    const isOpen = hasChildren && children.length > 0 && (open.has(chunkId) || depth > 1);
    const label = h(
      "span",
      { class: "tree-label" },
      h("span", { class: `level-dot level-${level}`, "aria-hidden": "true" }),
      h("code", {}, `${level}.${index}`),
      h("span", { class: "tree-tokens", t: ["passage.tokens", { n: tokenCount }] }),
      data(this.#on.preview(node), "tree-preview"),
    );
    const state = {
      "aria-expanded": hasChildren ? String(isOpen) : null,
      "aria-selected": String(chunkId === selected),
    };
    const item = h(
      "li",
      {
        role: "treeitem",
        tabindex: "-1",
        "aria-level": depth,
        "aria-posinset": place,
        "aria-setsize": total,
        ...state,
      },
      label,
    );
    item.dataset.chunk = chunkId;
    label.addEventListener("click", () => this.#click(item));
    label.addEventListener("mouseenter", () => this.#on.onPreview(chunkId));
    item.addEventListener("focus", () => this.#on.onPreview(chunkId));
    if (children.length)
      item.append(
        h(
          "ul",
          { role: "group" },
          children.map((child, at) =>
            this.#newItem(child, {
              depth: depth + 1,
              place: at + 1,
              total: children.length,
              open,
              selected,
            }),
          ),
        ),
      );
    return item;
  }

  #click(item) {
    item.focus();
    if (item.getAttribute("aria-selected") === "true")
      this.#toggle(item, item.getAttribute("aria-expanded") !== "true");
    else this.#on.onSelect(item.dataset.chunk);
  }

  #onKey(event) {
    const item = event.target.closest("[role=treeitem]");
    const move = item && this.#moves(item)[event.key];
    if (!move) return;
    event.preventDefault();
    move();
  }

  #moves(item) {
    const visible = [...this.#list.querySelectorAll("[role=treeitem]")].filter((other) =>
      other.checkVisibility(),
    );
    const at = visible.indexOf(item);
    const select = () => this.#on.onSelect(item.dataset.chunk);
    return {
      ArrowDown: () => this.#focus(visible[at + 1]),
      ArrowUp: () => this.#focus(visible[at - 1]),
      Home: () => this.#focus(visible[0]),
      End: () => this.#focus(visible.at(-1)),
      ArrowRight: () => this.#openOrEnter(item),
      ArrowLeft: () => this.#closeOrLeave(item),
      Enter: select,
      " ": select,
    };
  }

  #openOrEnter(item) {
    const state = item.getAttribute("aria-expanded");
    if (state === "true") this.#focus(item.querySelector("[role=treeitem]"));
    else if (state === "false") this.#toggle(item, true);
  }

  #closeOrLeave(item) {
    if (item.getAttribute("aria-expanded") === "true") this.#toggle(item, false);
    else this.#focus(item.parentElement.closest("[role=treeitem]"));
  }

  /**
   * Opens or closes an item. If the item's children are not read yet, the item is selected instead,
   * because selecting an item reads its children.
   */
  #toggle(item, isOpen) {
    if (!item.hasAttribute("aria-expanded")) return;
    if (!item.querySelector("[role=group]")) this.#on.onSelect(item.dataset.chunk);
    else item.setAttribute("aria-expanded", String(isOpen));
  }

  #focus(item) {
    if (!item) return;
    this.#setTabStop(item);
    item.focus();
  }

  #setTabStop(item) {
    for (const stop of this.#list.querySelectorAll("[tabindex='0']")) stop.tabIndex = -1;
    item.tabIndex = 0;
  }

  #item(chunkId) {
    return this.#list.querySelector(`[data-chunk="${CSS.escape(chunkId)}"]`);
  }

  #scrollTo(item) {
    const label = item.firstElementChild;
    const box = this.#list.getBoundingClientRect();
    const place = label.getBoundingClientRect();
    if (place.top < box.top || place.bottom > box.bottom)
      this.#list.scrollTop += place.top - box.top - box.height / 3;
  }
}
