// Reads the Markdown inside a block; see `markdown.js`.

const MAX_DEPTH = 8;
// How far the end of a code text, an emphasis, the text or the address of a link is searched for.
const MAX_SPAN = 1000;
const PUNCTUATION = /[!-/:-@[-`{-~]/;
const AUTOLINK = /<((?:https?:\/\/|mailto:)[^\s<>]{1,1000})>/y;
const ADDRESS =
  /\(\s?(<[^<>\n]{0,1000}>|[^\s()<>]{0,1000})(?:\s{1,3}(?:"[^"\n]{0,300}"|'[^'\n]{0,300}'))?\s?\)/y;
const WORD = /[A-Za-z0-9]/;
const EMPHASES = [
  ["**", "strong"],
  ["__", "strong"],
  ["~~", "del"],
  ["*", "em"],
  ["_", "em"],
];

/**
 * Returns the nodes for the content of a block. `ranges` are the ranges of its lines in `text`. A
 * node is a leaf `{ type: "text" | "code" | "atom", from, to }`, or it has `children`; a link also
 * has the range of its `address`. `atoms` is the map of `markdownBlocks`.
 */
export function inlineNodes(text, ranges, atoms) {
  return new InlineReader(text, ranges, atoms).nodes();
}

class InlineReader {
  #flow; // The lines, joined by line ends.
  #starts = []; // The offset of each line in `#flow`.
  #ranges;
  #text;
  #atoms;

  constructor(text, ranges, atoms) {
    this.#text = text;
    this.#ranges = ranges;
    this.#atoms = atoms;
    const parts = ranges.map(({ from, to }) => text.slice(from, to));
    let start = 0;
    for (const part of parts) {
      this.#starts.push(start);
      start += part.length + 1;
    }
    this.#flow = parts.join("\n");
  }

  nodes() {
    return this.#nodes(0, this.#flow.length, 0);
  }

  #nodes(start, end, depth) {
    const nodes = [];
    let [at, plain] = [start, start];
    while (at < end) {
      const [node, next] = this.#special(at, end, depth);
      if (node) {
        nodes.push(...this.#leaves("text", plain, at), ...node);
        plain = next;
      }
      at = next;
    }
    nodes.push(...this.#leaves("text", plain, end));
    return nodes;
  }

  /**
   * Returns the nodes of what begins at an offset, and the offset after it. Without something
   * special at this offset, returns null, and the offset from which to continue.
   */
  #special(at, end, depth) {
    const char = this.#flow[at];
    if (char === "[" || char === "【") {
      const atomEnd = this.#atoms.get(this.#source(at));
      if (atomEnd) {
        const next = at + atomEnd - this.#source(at);
        return [this.#leaves("atom", at, next), next];
      }
    }
    if (char === "\\" && at + 1 < end && PUNCTUATION.test(this.#flow[at + 1]))
      return [this.#leaves("text", at + 1, at + 2), at + 2];
    if (char === "`") return this.#code(at, end);
    if (char === "<") return this.#autolink(at, end);
    if (char === "[" || (char === "!" && this.#flow[at + 1] === "["))
      return this.#link(at, end, depth);
    if ("*_~".includes(char) && depth < MAX_DEPTH) return this.#emphasis(at, end, depth);
    return [null, at + 1];
  }

  #code(at, end) {
    let start = at;
    while (start < end && this.#flow[start] === "`") start += 1;
    const fence = "`".repeat(start - at);
    const limit = Math.min(end, start + MAX_SPAN);
    let close = this.#flow.indexOf(fence, start);
    while (close >= 0 && close < limit) {
      let after = close + fence.length;
      if (this.#flow[after] !== "`") {
        if (after > end) break;
        return [this.#leaves("code", ...this.#unpadded(start, close)), after];
      }
      while (this.#flow[after] === "`") after += 1;
      close = this.#flow.indexOf(fence, after);
    }
    return [null, start];
  }

  /** Code that begins or ends with a backtick has a space around it, which is not part of it. */
  #unpadded(start, end) {
    const isPadded =
      end - start > 2 && this.#flow[start] === " " && this.#flow[end - 1] === " ";
    return isPadded ? [start + 1, end - 1] : [start, end];
  }

  #autolink(at, end) {
    AUTOLINK.lastIndex = at;
    const match = AUTOLINK.exec(this.#flow);
    const next = at + (match?.[0].length ?? 1);
    if (!match || next > end) return [null, at + 1];
    return [[{ type: "address", children: this.#leaves("text", at + 1, next - 1) }], next];
  }

  #link(at, end, depth) {
    const open = this.#flow[at] === "!" ? at + 2 : at + 1;
    const close = this.#closingBracket(open, end);
    ADDRESS.lastIndex = close + 1;
    const match = close > 0 && depth < MAX_DEPTH ? ADDRESS.exec(this.#flow) : null;
    const next = close + 1 + (match?.[0].length ?? 0);
    if (!match || next > end) return [null, at + 1];
    const start = close + 1 + match[0].indexOf(match[1]);
    const label = this.#nodes(open, close, depth + 1);
    const address = this.#leaves("text", start, start + match[1].length);
    return [[{ type: "link", children: label, address }], next];
  }

  #closingBracket(open, end) {
    let depth = 1;
    for (let at = open; at < Math.min(end, open + MAX_SPAN); at += 1) {
      if (this.#flow[at] === "\\") at += 1;
      else if (this.#flow[at] === "[") depth += 1;
      else if (this.#flow[at] === "]" && (depth -= 1) === 0) return at;
    }
    return -1;
  }

  #emphasis(at, end, depth) {
    const [mark, type] = EMPHASES.find(([each]) => this.#flow.startsWith(each, at)) ?? [];
    if (!mark) return [null, at + 1];
    const start = at + mark.length;
    const isInWord = mark !== "**" && mark !== "~~" && WORD.test(this.#flow[at - 1] ?? "");
    const close = isInWord || isSpace(this.#flow[start]) ? -1 : this.#closing(mark, start, end);
    if (close < 0) return [null, start];
    return [[{ type, children: this.#nodes(start, close, depth + 1) }], close + mark.length];
  }

  #closing(mark, start, end) {
    const limit = Math.min(end - mark.length, start + MAX_SPAN);
    for (let at = start; at <= limit; at += 1) {
      const char = this.#flow[at];
      if (char === "\\") at += 1;
      else if (char === "`") at = this.#code(at, end)[1] - 1;
      else if (char === mark[0]) {
        let after = at;
        while (after < end && this.#flow[after] === char) after += 1;
        const isOfLength = mark.length === 1 ? (after - at) % 2 === 1 : after - at >= 2;
        const place = after - mark.length;
        const isInWord = mark.length === 1 && WORD.test(this.#flow[after] ?? "");
        if (isOfLength && place > start && !isSpace(this.#flow[at - 1]) && !isInWord)
          return place + mark.length <= end ? place : -1;
        at = after - 1;
      }
    }
    return -1;
  }

  /** Returns leaves for a range of `#flow`; a leaf is a range of the text without gaps. */
  #leaves(type, from, to) {
    const leaves = [];
    for (let at = from; at < to; ) {
      const line = this.#lineOf(at);
      const lineEnd = this.#starts[line] + this.#ranges[line].to - this.#ranges[line].from;
      const next = at < lineEnd ? Math.min(to, lineEnd) : at + 1;
      const start = at < lineEnd ? this.#source(at) : this.#lineFeed(line);
      const last = leaves.at(-1);
      if (last?.to === start) last.to = start + next - at;
      else leaves.push({ type, from: start, to: start + next - at });
      at = next;
    }
    return leaves;
  }

  #source(at) {
    const line = this.#lineOf(at);
    return this.#ranges[line].from + at - this.#starts[line];
  }

  #lineFeed(line) {
    const { to } = this.#ranges[line];
    return this.#text[to] === "\r" ? to + 1 : to;
  }

  /** Returns the number of the line that contains an offset of `#flow`, by binary search. */
  #lineOf(at) {
    let [low, high] = [0, this.#starts.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.#starts[middle] <= at) low = middle;
      else high = middle - 1;
    }
    return low;
  }
}

function isSpace(char) {
  return char === undefined || /\s/.test(char);
}
