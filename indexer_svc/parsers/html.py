"""Parses HTML pages: headings, paragraphs, lists, tables and preformatted lines.

Lexbor parses a page by the algorithm of the HTML standard, as browsers do, so the text is what a
browser shows. `html_visibility` says which elements are read, `html_boilerplate` which parts of a
page surround its content, and `html_inline` how the elements of a line are written. Nothing that a
page refers to is loaded. No function of this module calls itself recursively, so elements may be
nested to any depth.
"""

import re
from collections.abc import Collection
from html import escape
from itertools import islice

from selectolax.lexbor import LexborHTMLParser, LexborNode

from hrag.values.document_limits import MAX_ELEMENT_ATTRIBUTES, MAX_FORM_OPTIONS
from hrag.values.errors import TooLarge
from hrag.values.read_report import LeftOutKind
from indexer_svc.parsers.html_boilerplate import boilerplate_of
from indexer_svc.parsers.html_inline import InlineText
from indexer_svc.parsers.html_lists import ListNumbers, numbers_of
from indexer_svc.parsers.html_nodes import (
    BLOCKS,
    LISTS,
    PREFORMATTED,
    children,
    heading_depth,
    walk,
)
from indexer_svc.parsers.html_tables import layout_tables, table_of
from indexer_svc.parsers.html_visibility import Visibility
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.text_lines import filled_lines, utf8_text
from indexer_svc.parsers.text_writer import TextWriter
from indexer_svc.titles import metadata_title

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
_ATTRIBUTE = r"""[\s/]*+[^\s/>][^\s/>=]*+(?:\s*+=\s*+(?:"[^"]*+"?|'[^']*+'?|[^\s>]*+))?+"""
# Matches a start tag up to the limit of its attributes, and then one more attribute.
_TAG = re.compile(
    rf"<[a-z][^\s/>]*+(?:{_ATTRIBUTE}){{0,{MAX_ELEMENT_ATTRIBUTES}}}+(?P<surplus>{_ATTRIBUTE})?",
    re.IGNORECASE,
)
_OPTION = re.compile(r"<option\b", re.IGNORECASE)
_FIELD = "content"
_XHTML_SIGNS = ("<?xml", "//DTD XHTML", "http://www.w3.org/1999/xhtml")
_SEARCHED_CHARS = 4096
_NOTE_TYPES = frozenset(("footnote", "endnote", "rearnote", "doc-footnote", "doc-endnote"))


def parse_html(
    content: bytes, max_text_bytes: int, *, keep_boilerplate: bool = False
) -> ParsedFile:
    """Returns the text of a page in UTF-8, its headings and its title.

    Navigation, cookie notices, footers and other parts that surround the content of the page are
    left out, unless `keep_boilerplate` is True. The title is the title in the page's head, or else
    the first heading of level 1. Raises TooLarge if the text has more than `max_text_bytes` bytes.
    """
    text = utf8_text(content)
    page = parsed_page(as_html(text) if _is_xhtml(text) else text)
    writer = TextWriter(max_text_bytes)
    left_out: Collection[int] = ()
    if not keep_boilerplate and page.body is not None:
        boilerplate = boilerplate_of(page)
        left_out = boilerplate.keys()
        for part in boilerplate.values():
            writer.leave_out(LeftOutKind.BOILERPLATE, part)
    write_html(page, writer, left_out)
    title = page.css_first("head > title")
    head_title = "" if title is None else metadata_title(title.text())
    return writer.parsed(head_title or writer.first_heading)


def parsed_page(html: str) -> LexborHTMLParser:
    """Returns a page, parsed.

    Raises TooLarge if an element has more than MAX_ELEMENT_ATTRIBUTES attributes, or if the page
    has more than MAX_FORM_OPTIONS elements `option`.
    """
    if any(tag["surplus"] for tag in _TAG.finditer(html)):
        raise TooLarge(
            f"content has an element of more than {MAX_ELEMENT_ATTRIBUTES} attributes; at most "
            f"{MAX_ELEMENT_ATTRIBUTES} are allowed",
            field=_FIELD,
            limit="element_attributes",
        )
    options = sum(1 for _ in islice(_OPTION.finditer(html), MAX_FORM_OPTIONS + 1))
    if options > MAX_FORM_OPTIONS:
        raise TooLarge(
            f"content has more than {MAX_FORM_OPTIONS} options of forms; at most "
            f"{MAX_FORM_OPTIONS} are allowed",
            field=_FIELD,
            limit="form_options",
        )
    return LexborHTMLParser(html)


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


def write_html(page: LexborHTMLParser, writer: TextWriter, left_out: Collection[int] = ()) -> None:
    """Writes the visible text of a page's body to `writer`.

    Elements whose `mem_id` is in `left_out` are not read. Elements that the page marks as notes
    come last. Raises TooLarge.
    """
    if page.body is None:
        return
    visibility = Visibility(page, left_out)
    reader = _BodyReader(page, writer, visibility)
    reader.read(page.body)
    if not reader.has_text:
        visibility.read_noscript()
        reader.read(page.body)


class ElementWriter:
    """Writes single elements of a page. The page is examined once for all of them."""

    def __init__(self, page: LexborHTMLParser, writer: TextWriter) -> None:
        """Examines a page whose elements will be written to `writer`."""
        self._reader = _BodyReader(page, writer, Visibility(page))

    def write(self, element: LexborNode, label: str) -> None:
        """Writes the visible text of an element after a label. Raises TooLarge."""
        self._reader.read(element, label)


class _BodyReader:
    """Visits the nodes of a page's body and writes the text of each block when the block ends."""

    def __init__(self, page: LexborHTMLParser, writer: TextWriter, visibility: Visibility) -> None:
        self._writer = writer
        self._visibility = visibility
        has_tables = page.body is not None and page.css_first("table") is not None
        self._layout_tables = (
            layout_tables(page.body, visibility.shows) if has_tables and page.body else set()
        )
        self._inline = InlineText()
        self._block_inline = InlineText()
        self._lists: list[ListNumbers] = []
        self._marker = self._label = ""
        # Terms of a list of definitions that wait for their definition.
        self._terms: list[str] = []
        self._notes: list[LexborNode] = []
        self.has_text = False

    def read(self, body: LexborNode, label: str = "") -> None:
        """Writes the blocks of `body`, then those of its notes. The text begins with `label`."""
        self._label = label
        roots = [body]
        for root in roots:  # The notes are added to the list while it is read.
            walk(root, self._visibility.shows, self._enter, self._leave)
            self._end_block()
            self._write_terms()
            roots += self._notes
            self._notes.clear()

    def _enter(self, node: LexborNode) -> bool:
        tag = node.tag or ""
        if node.is_text_node:
            return self._inline.enter(node, tag)
        attributes = node.attributes
        depth = heading_depth(tag, attributes) if attributes or tag[0] == "h" else 0
        if tag not in BLOCKS and not depth:
            return self._inline.enter(node, tag)
        self._end_block()
        if depth:
            self._write_heading(node, depth)
            return False
        return self._enter_block(node, tag)

    def _enter_block(self, node: LexborNode, tag: str) -> bool:
        """Begins a block element; returns True if its child nodes must be visited.

        If the element is a table or preformatted text, writes the whole text of the element. In
        this case, the child nodes need not be visited.
        """
        if tag != "dd":
            self._write_terms_before(tag)
        if tag in PREFORMATTED:
            self._write_code(node)
        elif tag == "table" and node.mem_id not in self._layout_tables:
            self._write_table(node)
        elif tag == "aside" and _is_note(node):
            self._notes.append(node)
        else:
            self._paragraph(self._visibility.label(node.attributes))
            self._begin_item(node, tag)
            return True
        return False

    def _begin_item(self, node: LexborNode, tag: str) -> None:
        if tag in LISTS:
            self._lists.append(numbers_of(node))
        elif tag == "li":
            numbers = self._lists[-1] if self._lists else ListNumbers()
            numbers.following += numbers.step * self._visibility.count_left_out_before(node)
            self._marker = numbers.next_marker(node.attributes)

    def _leave(self, node: LexborNode) -> None:
        tag = node.tag
        if tag not in BLOCKS:
            self._inline.leave(node)
            return
        if tag == "dt":
            self._terms += filled_lines(self._inline.take())
            return
        self._end_block()
        if tag in LISTS:
            self._lists.pop()
        elif tag == "li":
            self._marker = ""
        elif tag in ("dl", "dd"):
            self._write_terms()

    def _end_block(self) -> None:
        text = "\n".join(filled_lines(self._inline.take()))
        if not text:
            return
        if self._terms:
            text = "\n".join([*self._terms, f": {text}"])
            self._terms.clear()
        text, self._label = self._label + text, ""
        if self._marker:
            self._writer.item(text, max(1, len(self._lists)), self._marker)
            self._marker = ""
            self.has_text = True
        else:
            self._paragraph(text)

    def _write_terms_before(self, tag: str) -> None:
        """Writes terms whose definition does not begin with a paragraph."""
        if self._terms and tag not in ("dt", "p", "div"):
            self._write_terms()

    def _write_terms(self) -> None:
        self._paragraph("\n".join(self._terms))
        self._terms.clear()

    def _paragraph(self, text: str) -> None:
        if text:
            self._writer.paragraph(text)
            self.has_text = True

    def _write_heading(self, node: LexborNode, depth: int) -> None:
        self._write_terms()
        self._block_inline.is_heading = True
        title = self._text_of(node) or node.attributes.get("aria-label") or ""
        self._block_inline.is_heading = False
        if self._marker and title.strip():
            title = title if self._marker == "-" else f"{self._marker} {title}"
            self._marker = ""
        self._writer.heading(depth, title)
        self.has_text |= bool(title.strip())

    def _write_code(self, node: LexborNode) -> None:
        inline = self._block_inline
        inline.keeps_white_space = True
        self._writer.code(self._text_of(node))
        inline.keeps_white_space = False
        self.has_text = True

    def _write_table(self, node: LexborNode) -> None:
        shows = self._visibility.shows
        for caption in children(node, ("caption",), shows):
            self._paragraph(" ".join(self._text_of(caption).split()))
        table = table_of(node, shows, self._text_of, self._writer.table_size)
        self._writer.table(
            table.rows, header_rows=table.header_rows, has_row_headers=table.has_row_headers
        )
        self.has_text |= bool(table.rows)

    def _text_of(self, root: LexborNode) -> str:
        """Returns the visible text below `root`. Each block below `root` begins on a new line."""
        inline = self._block_inline

        def enter(node: LexborNode) -> bool:
            tag = node.tag or ""
            if tag in BLOCKS:
                inline.line_end()
                return True
            return inline.enter(node, tag)

        def leave(node: LexborNode) -> None:
            if node.tag in BLOCKS:
                inline.line_end()
            else:
                inline.leave(node)

        walk(root, self._visibility.shows, enter, leave)
        return inline.take()


def _is_note(node: LexborNode) -> bool:
    """Returns True if a page marks an element as a note at the foot of the text."""
    attributes = node.attributes
    types = f"{attributes.get('epub:type') or ''} {attributes.get('role') or ''}"
    return not _NOTE_TYPES.isdisjoint(types.split())
