// Creates elements. Texts of the document and of replies become text, never HTML.

/** Returns a new element with properties and children; strings become text. */
export function element(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

/** Returns the nodes of a line; its parts between backticks become code. */
export function prose(line) {
  return line.split("`").map((part, at) => (at % 2 ? element("code", {}, part) : part));
}

/** Returns the paragraphs and lists of a comment. The items of a list begin with `* `. */
export function paragraphs(comment) {
  const blocks = [];
  for (const line of comment.split("\n")) {
    if (!line) continue;
    if (!line.startsWith("* ")) {
      blocks.push(element("p", {}, ...prose(line)));
    } else {
      if (blocks.at(-1)?.tagName !== "UL") blocks.push(element("ul"));
      blocks.at(-1).append(element("li", {}, ...prose(line.slice(2))));
    }
  }
  return blocks;
}
