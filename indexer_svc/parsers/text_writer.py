"""Writes the content of a parsed file as Markdown: headings, paragraphs, lists, tables, pages.

The position of each heading is recorded when it is written. So the Markdown need not be parsed to
find the headings, and a paragraph that begins with `#` is not a heading. Blocks are separated by
one blank line, and list items by a line end.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

from hrag.values.errors import TooLarge
from hrag.values.limits import MAX_PAGES
from hrag.values.reading import LeftOut, LeftOutKind, PageUnit, ReadReport
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
# Soft hyphens are removed, because a search would not find a word that contains one.
_SOFT_HYPHEN = "\u00ad"
_FIELD = "content"
_MAX_EXAMPLE_CHARS = 200


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
        # Each page has the index of its first part, its number, and whether it was recognised.
        self._page_starts: list[tuple[int, int, bool]] = []
        self._ends_with_item = False
        self._table_count = 0
        self._unread_pages: list[int] = []
        # The count of the parts of each kind that were left out, and the first of these parts.
        self._left_out: dict[LeftOutKind, tuple[int, str]] = {}

    @property
    def headings(self) -> Sequence[Heading]:
        """The headings that have been written so far."""
        return self._headings

    @property
    def first_heading(self) -> str:
        """The title of the first heading of depth 1, or an empty string."""
        return next((heading.title for heading in self._headings if heading.depth == 1), "")

    def heading(self, depth: int, text: str) -> None:
        """Adds a heading, at which a section begins. `depth` counts from 1.

        The text has the whole heading. Only the title of the section is cut to its limit.
        """
        line = " ".join(text.replace(_SOFT_HYPHEN, "").split())
        if not line:
            return
        start = self._add(f"{'#' * min(depth, _MARKDOWN_DEPTH)} {line}")
        if len(self._headings) < MAX_HEADINGS:
            self._headings.append(Heading(section_title(line), depth, start))

    def paragraph(self, text: str) -> None:
        """Adds a paragraph, with its line breaks."""
        self._add(text.strip())

    def item(self, text: str, depth: int = 1, marker: str = "-") -> None:
        """Adds an item of a list. `depth` is the nesting of the list, from 1."""
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
        """Adds a table, given as rows of cells, in the form of `table_blocks`."""
        blocks = list(table_blocks(rows, has_header=has_header))
        for block in blocks:
            self._add(block)
        self._table_count += bool(blocks)

    def leave_out(self, kind: LeftOutKind, text: str) -> None:
        """Notes in the report that a part of the file is not in the text."""
        count, example = self._left_out.get(kind, (0, " ".join(text.split())[:_MAX_EXAMPLE_CHARS]))
        self._left_out[kind] = count + 1, example

    def unread_page(self, number: int) -> None:
        """Notes in the report that a page has no readable text. `number` counts from 1."""
        self._unread_pages.append(number)

    def page(self, number: int = 0, *, is_recognised: bool = False) -> None:
        """Begins a page. The page ends where the next page begins, or at the end of the text.

        If `number` is 0, the number of the page is its position, counted from 1. Raises TooLarge if
        there are more than MAX_PAGES pages.
        """
        if len(self._page_starts) == MAX_PAGES:
            raise TooLarge(
                f"content has more than {MAX_PAGES} pages; at most {MAX_PAGES} are allowed",
                field=_FIELD,
            )
        self._page_starts.append((len(self._parts), number, is_recognised))
        self._ends_with_item = False

    def parsed(
        self,
        title: str = "",
        *,
        page_unit: PageUnit = PageUnit.PAGE,
        metadata: Mapping[str, str | list[str]] | None = None,
    ) -> ParsedFile:
        """Returns what was written, with the report. The arguments become fields of the result."""
        return ParsedFile(
            "".join(self._parts),
            self._pages(),
            tuple(self._headings),
            title,
            page_unit,
            metadata or {},
            self._report(),
        )

    def _report(self) -> ReadReport:
        numbers = (
            (number or position, is_recognised)
            for position, (_, number, is_recognised) in enumerate(self._page_starts, start=1)
        )
        return ReadReport(
            table_count=self._table_count,
            recognised_pages=tuple(number for number, is_recognised in numbers if is_recognised),
            unread_pages=tuple(self._unread_pages),
            left_out=tuple(LeftOut(kind, *value) for kind, value in self._left_out.items()),
        )

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
                f"content has more than {self._max_bytes} bytes of text, which "
                "HRAG_MAX_DOCUMENT_BYTES allows",
                field=_FIELD,
            )
        return self._chars - len(block)

    def _pages(self) -> tuple[PageRange, ...]:
        """Returns the range of each page, in code points.

        A page does not include the separator before its first block. The range of a page without
        text is empty.
        """
        offsets = list(accumulate(map(len, self._parts), initial=0))
        starts = [*self._page_starts, (len(self._parts), 0, False)]
        pages = []
        for (first, number, is_recognised), (following, _, _) in pairwise(starts):
            end = offsets[following]
            start = offsets[first + 1] if following > first else end
            pages.append(PageRange(start, end, number, is_recognised))
        return tuple(pages)
