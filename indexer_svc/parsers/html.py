"""Parses HTML pages: headings, paragraphs, lists, tables and preformatted lines.

Lexbor parses a page by the algorithm of the HTML standard, as browsers do, so the text is what a
browser shows. Parts that a browser does not show are left out: scripts, styles, templates,
comments, and elements that are `hidden` or have the style `display: none`. Controls, pictures and
navigation are left out too. Nothing that a page refers to is loaded. No function of this module
calls itself recursively, so elements may be nested to any depth.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from selectolax.lexbor import LexborHTMLParser, LexborNode

from indexer_svc.parsers.html_charset import decoded
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.text_writer import TextWriter
from indexer_svc.titles import metadata_title

_HEADINGS = {f"h{depth}": depth for depth in range(1, 7)}
_NOT_TEXT = frozenset((
    "head", "title", "script", "style", "template", "noscript", "nav", "dialog", "button", "select",
    "datalist", "input", "textarea", "progress", "meter", "object", "embed", "iframe", "svg", "map",
    "canvas", "audio", "video", "img", "rp",
))  # fmt: skip
_ROLES_NOT_TEXT = ("navigation", "search")
_BLOCKS = frozenset((
    *_HEADINGS, "address", "article", "aside", "blockquote", "body", "caption", "center", "dd",
    "details", "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "header",
    "hgroup", "hr", "legend", "li", "main", "menu", "ol", "p", "pre", "section", "summary", "table",
    "tbody", "td", "tfoot", "th", "thead", "tr", "ul",
))  # fmt: skip
_LISTS = ("ul", "ol", "menu")
_ROW_GROUPS = ("thead", "tbody", "tfoot")
_CELLS = ("td", "th")
_LAYOUT_ROLES = ("presentation", "none")
_LAYOUT_CONTENT = frozenset(("table", "pre", *_HEADINGS))
_HIDING_STYLE = re.compile(
    r"(?:^|[;\s])(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE
)
_START_NUMBER = re.compile(r"-?[0-9]{1,9}")
_SPAN = re.compile(r"[0-9]{1,4}")
_WHITE_SPACE = re.compile(r"\s+")
# Matches markup of XML that HTML does not have: CDATA sections, and elements that are written as a
# single tag (`<a/>`), except elements that never have an end tag in HTML. The pattern also matches
# whole comments, so that it does not match markup inside a comment. A comment that is not closed
# matches to the end of the page. Without this rule, a page with many unclosed comments would be
# searched to its end for each of these comments, which takes quadratic time.
_XML_ONLY_MARKUP = re.compile(
    r"<!--.*?(?:-->|\Z)"
    r"|<!\[CDATA\[(?P<text>.*?)(?:\]\]>|\Z)"
    r"|<(?!(?:area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr)\b)"
    r"(?P<tag>[a-z][\w:.-]*+)(?P<attributes>[^<>]*?)/>",
    re.IGNORECASE | re.DOTALL,
)
_XHTML_SIGNS = ("<?xml", "//DTD XHTML", "http://www.w3.org/1999/xhtml")
_SEARCHED_CHARS = 4096
_MAX_SPANNED_COLUMNS = 1_000


def parse_html(content: bytes, max_text_bytes: int) -> ParsedFile:
    """Returns the text of a page, its headings and its title.

    The title is the title in the page's head, or else the first heading of level 1. Raises
    UnreadableDocument if the encoding is unknown, and TooLarge if the text has more than
    `max_text_bytes` bytes.
    """
    text = decoded(content)
    page = LexborHTMLParser(as_html(text) if _is_xhtml(text) else text)
    writer = TextWriter(max_text_bytes)
    write_html(page, writer)
    title = page.css_first("head > title")
    head_title = "" if title is None else metadata_title(title.text())
    return writer.parsed(head_title or first_heading(writer))


def as_html(xhtml: str) -> str:
    """Rewrites the CDATA sections and `/>` endings of XHTML as HTML; returns the HTML.

    An HTML parser does not know CDATA sections and `/>`. Without the change, it would treat the
    page's text after `<title/>` or `<script/>` as the content of the title or script.
    """
    return _XML_ONLY_MARKUP.sub(_to_html, xhtml)


def _is_xhtml(text: str) -> bool:
    """Returns True if the first _SEARCHED_CHARS characters show that a page is XHTML."""
    start = text[:_SEARCHED_CHARS]
    return any(sign in start for sign in _XHTML_SIGNS)


def _to_html(match: re.Match[str]) -> str:
    if match["text"] is not None:
        return escape(match["text"], quote=False)
    return f"<{match['tag']}{match['attributes']}></{match['tag']}>" if match["tag"] else match[0]


def first_heading(writer: TextWriter) -> str:
    """Returns the title of the first heading of depth 1, or an empty string."""
    return next((heading.title for heading in writer.headings if heading.depth == 1), "")


def write_html(page: LexborHTMLParser, writer: TextWriter) -> None:
    """Writes the visible text of a page's body to `writer`.

    Raises TooLarge if the text exceeds the limit of `writer`.
    """
    if page.body is not None:
        has_tables = page.css_first("table") is not None
        layouts = _layout_tables(page.body) if has_tables else set()
        _BodyReader(writer, layouts).read(page.body)


@dataclass(slots=True)
class _List:
    """A list whose items are being read. `count` is the list number of the last item so far."""

    is_ordered: bool
    count: int

    def next_marker(self) -> str:
        self.count += 1
        return f"{self.count}." if self.is_ordered else "-"


class _BodyReader:
    """Visits the nodes of a page's body and writes the text of each block when the block ends."""

    def __init__(self, writer: TextWriter, layout_tables: set[int]) -> None:
        self._writer = writer
        self._layout_tables = layout_tables
        self._inline: list[str] = []
        self._lists: list[_List] = []
        self._marker = ""

    def read(self, body: LexborNode) -> None:
        _walk(body, self._enter, self._leave)
        self._end_block()

    def _enter(self, node: LexborNode) -> bool:
        tag = node.tag or ""
        if tag in _BLOCKS:
            self._end_block()
            return self._enter_block(node, tag)
        self._inline.append(_inline_text(node, tag))
        return True

    def _enter_block(self, node: LexborNode, tag: str) -> bool:
        """Begins a block element; returns True if its child nodes must be visited.

        If the element is a heading, a table or preformatted text, writes the whole text of the
        element. In this case, the child nodes need not be visited.
        """
        if tag in _HEADINGS:
            self._writer.heading(_HEADINGS[tag], _visible_text(node))
        elif tag == "pre":
            self._writer.code(_visible_text(node))
        elif tag == "table" and node.mem_id not in self._layout_tables:
            self._write_table(node)
        else:
            self._begin_item(node, tag)
            return True
        return False

    def _begin_item(self, node: LexborNode, tag: str) -> None:
        if tag in _LISTS:
            start = node.attributes.get("start") or ""
            count = int(start) - 1 if _START_NUMBER.fullmatch(start) else 0
            self._lists.append(_List(tag == "ol", count))
        elif tag == "li":
            self._marker = self._lists[-1].next_marker() if self._lists else "-"

    def _leave(self, node: LexborNode) -> None:
        if node.tag not in _BLOCKS:
            return
        self._end_block()
        if node.tag in _LISTS:
            self._lists.pop()
        elif node.tag == "li":
            self._marker = ""

    def _end_block(self) -> None:
        lines = (" ".join(line.split()) for line in "".join(self._inline).split("\n"))
        text = "\n".join(filter(None, lines))
        self._inline.clear()
        if text and self._marker:
            self._writer.item(text, max(1, len(self._lists)), self._marker)
            self._marker = ""
        else:
            self._writer.paragraph(text)

    def _write_table(self, table: LexborNode) -> None:
        for caption in _children(table, ("caption",)):
            self._writer.paragraph(" ".join(_visible_text(caption).split()))
        lines = [
            line for group in _children(table, _ROW_GROUPS) for line in _children(group, ("tr",))
        ]
        has_header = bool(lines) and all(cell.tag == "th" for cell in _children(lines[0], _CELLS))
        self._writer.table(list(_rows(lines)), has_header=has_header)


def _walk(
    root: LexborNode, enter: Callable[[LexborNode], bool], leave: Callable[[LexborNode], None]
) -> None:
    """Visits the visible nodes below `root` in document order.

    Calls `enter` for each node. If `enter` returns True, visits the child nodes of the node, and
    calls `leave` for the node after its last child node.
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
        elif _is_visible(node) and enter(node):
            ancestors.append(node)
            node = node.child
        else:
            node = node.next


def _is_visible(node: LexborNode) -> bool:
    """Returns True if the text of a node is part of the page's text.

    Returns False for elements that a browser does not show, and for controls, pictures and
    navigation.
    """
    if node.is_text_node:
        return True
    if not node.is_element_node or node.tag in _NOT_TEXT:
        return False
    attributes = node.attributes
    if not attributes:
        return True
    return not (
        "hidden" in attributes
        or attributes.get("role") in _ROLES_NOT_TEXT
        or _HIDING_STYLE.search(attributes.get("style") or "")
        or (node.tag == "a" and _is_anchor(node, attributes))
    )


def _is_anchor(link: LexborNode, attributes: dict[str, str | None]) -> bool:
    """Returns True if a link has no letters or digits and leads to a position on the same page.

    Many pages have a link like this next to each heading, for example `#` or `¶`. These links are
    left out of the text.
    """
    target = attributes.get("href") or ""
    return target.startswith("#") and not any(map(str.isalnum, link.text()))


def _inline_text(node: LexborNode, tag: str) -> str:
    """Returns the text that a text node or an inline element adds to a line.

    The text of child nodes is not included. For the element `br`, the text is a line end.
    """
    if node.is_text_node:
        return _WHITE_SPACE.sub(" ", node.text_content or "")
    return "\n" if tag == "br" else ""


def _visible_text(root: LexborNode) -> str:
    """Returns the visible text below `root`, with its white space.

    Each block below `root` begins on a new line.
    """
    parts: list[str] = []

    def enter(node: LexborNode) -> bool:
        if node.is_text_node:
            parts.append(node.text_content or "")
        elif node.tag == "br" or node.tag in _BLOCKS:
            parts.append("\n")
        return True

    _walk(root, enter, lambda _node: None)
    return "".join(parts)


def _layout_tables(body: LexborNode) -> set[int]:
    """Returns the `mem_id` (the parser's id of a node) of each layout table in a page's body.

    A layout table arranges parts of a page, and has no rows of values. A table is a layout table if
    its attribute `role` says so, or if it contains a table, a heading or preformatted text.
    """
    layout_tables: set[int] = set()
    tables: list[int] = []

    def enter(node: LexborNode) -> bool:
        if tables and node.tag in _LAYOUT_CONTENT:
            layout_tables.add(tables[-1])
        if node.tag == "table":
            tables.append(node.mem_id)
            if node.attributes.get("role") in _LAYOUT_ROLES:
                layout_tables.add(node.mem_id)
        return True

    def leave(node: LexborNode) -> None:
        if node.tag == "table":
            tables.pop()

    _walk(body, enter, leave)
    return layout_tables


def _rows(lines: Sequence[LexborNode]) -> Iterator[list[str]]:
    """Yields the texts of the cells of each row of a table.

    The text of a cell that spans several rows is repeated in each of these rows. The text of a cell
    that spans several columns is only in the first of these columns; the other columns are empty. A
    cell that spans several columns ends at column _MAX_SPANNED_COLUMNS at the latest.
    """
    covering: dict[int, tuple[int, str]] = {}
    for line in lines:
        row: list[str] = []
        for cell in _children(line, _CELLS):
            _cover(row, covering)
            text = _visible_text(cell)
            rows_below = _span(cell, "rowspan") - 1
            first = len(row)
            row.append(text)
            end = min(first + _span(cell, "colspan"), _MAX_SPANNED_COLUMNS)
            row += [""] * (end - len(row))
            if rows_below:
                covering |= {column: (rows_below, row[column]) for column in range(first, end)}
        _cover(row, covering)
        yield row


def _children(node: LexborNode, tags: Sequence[str]) -> Iterator[LexborNode]:
    """Yields the visible children of a node whose tags are in `tags`, in order."""
    child = node.child
    while child is not None:
        if child.tag in tags and _is_visible(child):
            yield child
        child = child.next


def _cover(row: list[str], covering: dict[int, tuple[int, str]]) -> None:
    """Appends cells of earlier rows that also span the next columns of this row.

    Stops at the first column that no such cell spans. `covering` has an entry for each column that
    a cell of an earlier row spans: in how many rows, from this row on, the cell covers the column,
    and the text that it has there.
    """
    while len(row) in covering:
        column = len(row)
        rows_below, text = covering.pop(column)
        if rows_below > 1:
            covering[column] = rows_below - 1, text
        row.append(text)


def _span(cell: LexborNode, name: str) -> int:
    value = cell.attributes.get(name) or ""
    return max(1, min(int(value), _MAX_SPANNED_COLUMNS)) if _SPAN.fullmatch(value) else 1
