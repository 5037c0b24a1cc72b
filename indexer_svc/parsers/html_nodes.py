"""Visits the nodes of an HTML page. No function here recurses, so nodes may be nested to any depth.

Lexbor parses a page by the algorithm of the HTML standard, as browsers do.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from selectolax.lexbor import LexborHTMLParser, LexborNode

HEADINGS = {f"h{depth}": depth for depth in range(1, 7)}
PREFORMATTED = ("pre", "listing", "xmp", "plaintext")
LISTS = ("ul", "ol", "menu", "dir")
BLOCKS = frozenset((
    *HEADINGS, *PREFORMATTED, *LISTS, "address", "article", "aside", "blockquote", "body",
    "caption", "center", "dd", "details", "dialog", "div", "dl", "dt", "fieldset", "figcaption",
    "figure", "footer", "form", "header", "hgroup", "hr", "legend", "li", "main", "nav", "noscript",
    "p", "search", "section", "summary", "table", "tbody", "td", "tfoot", "th", "thead", "tr",
))  # fmt: skip

# Characters of Chinese, Japanese and Korean.
WIDE_CHARACTER = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")

Attributes = dict[str, str | None]
Shows = Callable[[LexborNode], bool]


def walk(
    root: LexborNode,
    shows: Shows,
    enter: Callable[[LexborNode], bool],
    leave: Callable[[LexborNode], None],
) -> None:
    """Visits the nodes below `root` for which `shows` returns True, in document order.

    Calls `enter` for each node, and visits its child nodes if `enter` returns True. Then it calls
    `leave` for the node, after its last child node.
    """
    ancestors = [root]
    node = root.child
    while True:
        if node is None:
            parent = ancestors.pop()
            if not ancestors:
                return
            leave(parent)
            node = parent.next
        elif shows(node) and enter(node):
            ancestors.append(node)
            node = node.child
        else:
            node = node.next


def holders(page: LexborHTMLParser, selector: str) -> frozenset[int]:
    """Returns the `mem_id` of each element that matches a selector or contains such an element.

    To search each element of a page on its own would take time in proportion to the square of the
    depth of the page.
    """
    found: set[int] = set()
    for match in page.css(selector):
        node: LexborNode | None = match
        while node is not None and node.mem_id not in found:
            found.add(node.mem_id)
            node = node.parent
    return frozenset(found)


def children(node: LexborNode, tags: Sequence[str], shows: Shows) -> Iterator[LexborNode]:
    """Yields the visible children of a node that have one of `tags`, in order."""
    child = node.child
    while child is not None:
        if child.tag in tags and shows(child):
            yield child
        child = child.next


def words_of(attributes: Attributes, *names: str) -> set[str]:
    """Returns the words in the values of attributes, in lower case.

    A word ends at any sign and where a capital letter follows a small one, so `siteFooter` and
    `site-footer` have the same words.
    """
    values = " ".join(attributes.get(name) or "" for name in names)
    return {word.lower() for word in _WORD.findall(values)}


def heading_depth(tag: str, attributes: Attributes) -> int:
    """Returns the depth of a heading from 1, or 0 for an element that is not a heading.

    A heading is one of the elements `h1` to `h6`, or any element with the role `heading`, whose
    depth is its `aria-level`, or 2 without one.
    """
    role = attributes.get("role")
    if role == "heading":
        level = attributes.get("aria-level") or ""
        default = HEADINGS.get(tag, 2)
        return min(int(level), 9) or default if level.isascii() and level.isdigit() else default
    return 0 if role in ("presentation", "none") else HEADINGS.get(tag, 0)
