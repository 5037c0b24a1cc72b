// Reads Markdown: headings, paragraphs, lists, quotations, tables, code, rules, and in them bold,
// italic, deleted and code text, links and pictures. The result is a tree whose leaves are ranges of
// the text, in UTF-16 units, so that a part of the text can be marked wherever it is shown. HTML is
// not read: it stays text. The line ends of a paragraph stay too, so plain text looks as written.
//
// Every search for the end of something is bounded, and so is nesting. So the time is linear in the
// length of the text, whatever the text is.

import { inlineNodes } from "./markdown_inline.js";

const MAX_DEPTH = 8;
const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*[\w+#.-]*[ \t]*$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+|$)/;
const UNDERLINE = /^ {0,3}(=+|-+)[ \t]*$/;
const RULE = /^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^ {0,3}(?:[-*+]|(\d{1,9})[.)])(?:[ \t]+|$)/;
const DELIMITER = /^(:?)-+(:?)$/;

/**
 * Returns the blocks of a text. `atoms` is a map from offsets to the offsets where ranges end that
 * are not read, but become leaves `{ type: "atom", from, to }`. `isPart` is true if the text may
 * begin inside a line of a longer text.
 */
export function markdownBlocks(text, { atoms = new Map(), isPart = false } = {}) {
  return new Reader(text, atoms, isPart).blocks(lines(text), 0);
}

function lines(text) {
  const all = [];
  for (let from = 0; from <= text.length; ) {
    const end = text.indexOf("\n", from);
    const next = end < 0 ? text.length : end;
    all.push({ from, to: text[next - 1] === "\r" ? next - 1 : next });
    from = next + 1;
  }
  return all;
}

class Reader {
  #text;
  #atoms;
  #isPart;

  constructor(text, atoms, isPart) {
    this.#text = text;
    this.#atoms = atoms;
    this.#isPart = isPart;
  }

  /** Returns the blocks in lines. A line is a range without its end and without outer prefixes. */
  blocks(all, depth) {
    const blocks = [];
    for (let at = 0; at < all.length; ) {
      if (this.#isBlank(all[at])) at += 1;
      else {
        const [block, next] = this.#block(all, at, depth);
        blocks.push(block);
        at = next;
      }
    }
    return blocks;
  }

  #block(all, at, depth) {
    const line = this.#line(all[at]);
    if (FENCE.test(line)) return this.#code(all, at);
    if (HEADING.test(line)) return [this.#heading(all[at]), at + 1];
    if (RULE.test(line)) return [{ type: "rule" }, at + 1];
    if (QUOTE.test(line) && depth < MAX_DEPTH) return this.#quote(all, at, depth);
    if (ITEM.test(line) && depth < MAX_DEPTH && !this.#isNumber(all, at))
      return this.#list(all, at, depth);
    if (this.#isTable(all, at)) return this.#table(all, at);
    return this.#paragraph(all, at);
  }

  /**
   * Returns true if a part begins with a number and a dot that need not be the number of an item:
   * they may also be the end of a sentence.
   */
  #isNumber(all, at) {
    if (!this.#isPart || all[at].from !== 0 || !ITEM.exec(this.#line(all[at]))[1]) return false;
    return at + 1 >= all.length || !ITEM.test(this.#line(all[at + 1]));
  }

  #line({ from, to }) {
    return this.#text.slice(from, to);
  }

  #isBlank(range) {
    return !this.#line(range).trim();
  }

  #inline(ranges) {
    return inlineNodes(this.#text, ranges, this.#atoms);
  }

  #code(all, at) {
    const [, fence] = FENCE.exec(this.#line(all[at]));
    const isEnd = (range) => {
      const line = this.#line(range).trim();
      return line.length >= fence.length && line === fence[0].repeat(line.length);
    };
    let end = at + 1;
    while (end < all.length && !isEnd(all[end])) end += 1;
    return [{ type: "code", ranges: all.slice(at + 1, end) }, end + 1];
  }

  #heading({ from, to }) {
    const [prefix, marks] = HEADING.exec(this.#text.slice(from, to));
    const content = this.#trimmed({ from: from + prefix.length, to });
    let end = content.to;
    while (end > content.from && this.#text[end - 1] === "#") end -= 1;
    const isClosed = end === content.from || /\s/.test(this.#text[end - 1]);
    const range = isClosed ? this.#trimmed({ from: content.from, to: end }) : content;
    return { type: "heading", level: marks.length, children: this.#inline([range]) };
  }

  #trimmed({ from, to }) {
    let [start, end] = [from, to];
    while (start < end && /\s/.test(this.#text[start])) start += 1;
    while (end > start && /\s/.test(this.#text[end - 1])) end -= 1;
    return { from: start, to: end };
  }

  #quote(all, at, depth) {
    const inner = [];
    let end = at;
    for (; end < all.length; end += 1) {
      const prefix = QUOTE.exec(this.#line(all[end]));
      if (!prefix) break;
      inner.push({ from: all[end].from + prefix[0].length, to: all[end].to });
    }
    return [{ type: "quote", blocks: this.blocks(inner, depth + 1) }, end];
  }

  #list(all, at, depth) {
    const first = ITEM.exec(this.#line(all[at]));
    const list = { type: "list", start: first[1] && Number(first[1]), items: [] };
    let end = at;
    while (end < all.length) {
      const match = ITEM.exec(this.#line(all[end]));
      if (!match || Boolean(match[1]) !== Boolean(first[1])) break;
      if (RULE.test(this.#line(all[end]))) break;
      const width = match[0].length;
      const inner = [{ from: all[end].from + width, to: all[end].to }];
      end = this.#itemEnd(all, end + 1, width, inner);
      list.items.push(this.blocks(inner, depth + 1));
      const next = this.#afterBlanks(all, end);
      if (next < all.length && ITEM.test(this.#line(all[next]))) end = next;
    }
    return [list, end];
  }

  /** Adds the further lines of an item to `inner`; returns the number of the line after the item. */
  #itemEnd(all, at, width, inner) {
    let end = at;
    while (end < all.length) {
      const next = this.#afterBlanks(all, end);
      if (next >= all.length) return end;
      const line = this.#line(all[next]);
      const indent = indentOf(line);
      const isInside = indent >= Math.min(width, 4) && indent >= 2;
      if (!isInside && (next > end || this.#beginsBlock(line))) return end;
      for (const range of all.slice(end, next)) inner.push({ from: range.to, to: range.to });
      const prefix = isInside ? Math.min(indent, width) : 0;
      inner.push({ from: all[next].from + prefix, to: all[next].to });
      end = next + 1;
    }
    return end;
  }

  #afterBlanks(all, at) {
    let next = at;
    while (next < all.length && this.#isBlank(all[next])) next += 1;
    return next;
  }

  #beginsBlock(line) {
    return [FENCE, HEADING, RULE, QUOTE, ITEM].some((form) => form.test(line));
  }

  /** A table may lack its head, because a chunk may begin inside a table. */
  #isTable(all, at) {
    const line = this.#line(all[at]).trim();
    if (line.length > 1 && line.startsWith("|") && line.endsWith("|")) return true;
    return line.includes("|") && at + 1 < all.length && this.#delimiters(all[at + 1]) !== null;
  }

  /** Returns the alignments of the columns if a line separates the head of a table; else null. */
  #delimiters(range) {
    if (!this.#line(range).includes("|")) return null;
    const cells = this.#cells(range).map((cell) => DELIMITER.exec(this.#line(cell)));
    if (!cells.length || cells.includes(null)) return null;
    return cells.map(([, left, right]) => (right ? (left ? "center" : "right") : ""));
  }

  #table(all, at) {
    const aligned = at + 1 < all.length ? this.#delimiters(all[at + 1]) : null;
    const head = aligned ? this.#row(all[at]) : null;
    const rows = [];
    let end = aligned ? at + 2 : at;
    while (end < all.length && this.#line(all[end]).includes("|")) {
      if (!this.#delimiters(all[end])) rows.push(this.#row(all[end]));
      end += 1;
    }
    return [{ type: "table", aligned: aligned ?? [], head, rows }, end];
  }

  #row(range) {
    return this.#cells(range).map((cell) => this.#inline([cell]));
  }

  #cells(range) {
    const { from, to } = this.#trimmed(range);
    const cells = [];
    let start = this.#text[from] === "|" ? from + 1 : from;
    for (let at = start; at < to; at += 1) {
      if (this.#text[at] === "\\") at += 1;
      else if (this.#text[at] === "|") {
        cells.push(this.#trimmed({ from: start, to: at }));
        start = at + 1;
      }
    }
    if (start < to) cells.push(this.#trimmed({ from: start, to }));
    return cells;
  }

  #paragraph(all, at) {
    let end = at + 1;
    while (end < all.length && !this.#isBlank(all[end])) {
      const line = this.#line(all[end]);
      const underline = UNDERLINE.exec(line);
      if (underline) {
        const level = underline[1][0] === "=" ? 1 : 2;
        return [{ type: "heading", level, children: this.#inline(all.slice(at, end)) }, end + 1];
      }
      if (this.#beginsBlock(line) || this.#isTable(all, end)) break;
      end += 1;
    }
    return [{ type: "paragraph", children: this.#inline(all.slice(at, end)) }, end];
  }
}

function indentOf(line) {
  return /^[ \t]*/.exec(line)[0].length;
}
