"""Builds the text of a parsed file as Markdown: headings, paragraphs, lists and tables, in pages.

The position of each heading is recorded when the heading is written. So the Markdown need not be
parsed to find the headings, and a paragraph that begins with `#` is not a heading. Blocks are
separated by one blank line, and list items by a line end.
"""

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise

from hrag.values.errors import TooLarge
from hrag.values.limits import MAX_PAGES
from indexer_svc.parsers.parsed_file import (
    MAX_HEADINGS,
    PAGE_BREAK,
    Heading,
    PageRange,
    ParsedFile,
)
from indexer_svc.parsers.table_text import table_blocks
from indexer_svc.titles import section_title

_BACKTICKS = re.compile("`+")
_MIN_FENCE = 3
_MARKDOWN_DEPTH = 6
_MAX_ITEM_DEPTH = 10
_INDENT = "  "
# Soft hyphens are removed, because a search would not find a word that contains a soft hyphen.
_SOFT_HYPHEN = "\u00ad"
_FIELD = "content"


class TextWriter:
    """Builds a text block by block.

    A block is a heading, a paragraph, a list item, code or a table. Blank blocks are left out.

    Each method that adds text raises TooLarge once the text has more than `max_text_bytes` bytes
    of UTF-8.
    """

    def __init__(self, max_text_bytes: int) -> None:
        """Begins an empty text of at most `max_text_bytes` bytes of UTF-8."""
        self._max_bytes = max_text_bytes
        self._bytes = 0
        self._chars = 0
        self._parts: list[str] = []
        self._headings: list[Heading] = []
        self._page_starts: list[int] = []
        self._ends_with_item = False

    @property
    def headings(self) -> Sequence[Heading]:
        """The headings that have been written so far."""
        return self._headings

    def heading(self, depth: int, text: str) -> None:
        """Adds a heading, and records that a section begins at it. `depth` counts from 1."""
        title = section_title(text.replace(_SOFT_HYPHEN, ""))
        if not title:
            return
        start = self._add(f"{'#' * min(depth, _MARKDOWN_DEPTH)} {title}")
        if len(self._headings) < MAX_HEADINGS:
            self._headings.append(Heading(title, depth, start))

    def paragraph(self, text: str) -> None:
        """Adds a paragraph. Line breaks in `text` are kept."""
        self._add(text.strip())

    def item(self, text: str, depth: int = 1, marker: str = "-") -> None:
        """Adds an item of a list. `depth` is 1 for a list that is not inside another list."""
        indent = _INDENT * (min(depth, _MAX_ITEM_DEPTH) - 1)
        if text.strip():
            self._add(f"{indent}{marker} {text.strip()}", is_item=True)

    def code(self, text: str) -> None:
        """Adds lines as fenced code. The fence is longer than any run of backticks in the lines."""
        if text.strip():
            longest = max(map(len, _BACKTICKS.findall(text)), default=0)
            fence = "`" * max(_MIN_FENCE, longest + 1)
            self._add(f"{fence}\n{text.strip(chr(10))}\n{fence}")

    def table(self, rows: Sequence[Sequence[str]], *, has_header: bool = False) -> None:
        """Adds the rows of a table, in the text form of `table_blocks`."""
        for block in table_blocks(rows, has_header=has_header):
            self._add(block)

    def page(self) -> None:
        """Begins a page. The page ends where the next page begins, or at the end of the text.

        Raises TooLarge if there are more than MAX_PAGES pages.
        """
        if len(self._page_starts) == MAX_PAGES:
            raise TooLarge(
                f"content has too many pages; at most {MAX_PAGES} are allowed",
                field=_FIELD,
            )
        self._page_starts.append(len(self._parts))
        self._ends_with_item = False

    def parsed(self, title: str = "") -> ParsedFile:
        """Returns the whole text, its pages and headings as a ParsedFile with this title."""
        return ParsedFile("".join(self._parts), self._pages(), tuple(self._headings), title)

    def _add(self, block: str, *, is_item: bool = False) -> int:
        """Appends a block; returns the offset at which it begins, in code points."""
        block = block.replace(_SOFT_HYPHEN, "")
        if not block:
            return self._chars
        separator = "\n" if is_item and self._ends_with_item else PAGE_BREAK
        if not self._parts:
            separator = ""
        self._ends_with_item = is_item
        self._parts += (separator, block)
        self._chars += len(separator) + len(block)
        self._bytes += len(separator) + len(block.encode())
        if self._bytes > self._max_bytes:
            raise TooLarge(
                f"content has more than {self._max_bytes} bytes of text; "
                "HRAG_MAX_DOCUMENT_BYTES allows no more",
                field=_FIELD,
            )
        return self._chars - len(block)

    def _pages(self) -> tuple[PageRange, ...]:
        """Returns the range of each page, in code points.

        The blank line before the first block of a page is not part of the page. The range of a page
        without text is empty.
        """
        offsets = list(accumulate(map(len, self._parts), initial=0))
        firsts = [*self._page_starts, len(self._parts)]
        pages = []
        for first, following in pairwise(firsts):
            end = offsets[following]
            pages.append(PageRange(offsets[first + 1] if following > first else end, end))
        return tuple(pages)
