// Shows the text of a chunk with marks: as Markdown, or as it is stored if the user wants that or
// if it is source code.

import { h, newId } from "./dom.js";
import { markdownBlocks } from "./markdown.js";
import { markdownNodes } from "./markdown_view.js";
import { textPainter } from "./marked_text.js";

// The extensions of files whose text is not Markdown.
const EXTENSIONS =
  "py pyi js mjs cjs jsx ts tsx c h cc cpp cxx hh hpp cs go java kt lua pl pm php rb rs scala sh bash " +
  "sql swift";
const CODE = new RegExp(`\\.(?:${EXTENSIONS.replaceAll(" ", "|")})$`, "i");

let isSource = false; // Whether the user wants to see texts as they are stored.

export class RichText {
  #text;
  #start;
  #isCode;
  #blocks = null;

  /** `chunk` is a Chunk of the protocol. */
  constructor({ content = "", span = {}, source, documentId = "" }) {
    this.#text = content;
    this.#start = span.charStart ?? 0;
    this.#isCode = CODE.test(source || documentId);
  }

  /** Returns nodes for the text, with marks in the form of `marked_text.js`. */
  nodes(marks) {
    const paint = textPainter(this.#text, this.#start, marks);
    if (isSource || this.#isCode) return paint(0, this.#text.length);
    this.#blocks ??= markdownBlocks(this.#text, { isPart: this.#start > 0 });
    return markdownNodes(this.#blocks, paint);
  }
}

/** Returns a switch between Markdown and the stored text. `onChange` must show all texts again. */
export function sourceSwitch(onChange) {
  const box = h("input", { type: "checkbox", role: "switch", id: newId("source") });
  box.checked = isSource;
  box.addEventListener("change", () => {
    isSource = box.checked;
    onChange();
  });
  return h("span", { class: "flag" }, box, h("label", { for: box.id, t: "markdown.source" }));
}
