"""Finds the headings of a Markdown text.

markdown-it reads blocks only: which lines are headings depends on fences, code and HTML
around them, not on what stands inside paragraphs. Headings inside lists and quotes are
none of the document's own. About a second per megabyte.
"""

import re
from itertools import islice

from markdown_it import MarkdownIt
from markdown_it.token import Token

from hrag.tree import Section

MAX_SECTIONS = 65_535  # Later headings are read as text.
MAX_TITLE_CHARS = 200

_BLOCKS = (
    MarkdownIt("zero")
    .enable(["heading", "lheading", "fence", "code", "html_block"])
    .disable(["inline", "text_join"])
)
_INLINE = MarkdownIt("commonmark")
_LINE_END = re.compile(r"\r\n|\r|\n")


def find_sections(text: str) -> tuple[Section, ...]:
    """The headings in order, with their offsets in `text` as it is."""
    tokens = _BLOCKS.parse(text)
    headings = (
        (token, tokens[place + 1])
        for place, token in enumerate(tokens)
        if token.type == "heading_open"
    )
    lines = [0, *(match.end() for match in _LINE_END.finditer(text))]
    return tuple(
        Section(_plain(content.content), int(opening.tag[1:]), lines[opening.map[0]])
        for opening, content in islice(headings, MAX_SECTIONS)
        if opening.map is not None
    )


def _plain(heading: str) -> str:
    """A heading without its markup, on one line, cut to MAX_TITLE_CHARS."""
    pieces = (_words(child) for token in _INLINE.parseInline(heading) for child in token.children or ())
    return " ".join("".join(pieces).split())[:MAX_TITLE_CHARS]


def _words(token: Token) -> str:
    if token.type in ("softbreak", "hardbreak"):
        return " "
    return "" if token.type == "html_inline" else token.content
