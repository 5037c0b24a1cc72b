"""Builds the text of a parsed file as Markdown: headings, paragraphs, lists and tables, in pages.

The position of each heading is recorded when the heading is written. So the Markdown need not be
parsed to find the headings, and a paragraph that begins with `#` is not a heading. Blocks are
separated by one blank line, and list items by a line end.
"""

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from hrag.values.document_limits import MAX_PAGES
from hrag.values.errors import TooLarge
from hrag.values.read_report import LeftOut, LeftOutKind, PageUnit, ReadReport
from indexer_svc.parsers.parsed_file import (
    MAX_EXAMPLE_CHARS,
    MAX_HEADINGS,
    PAGE_BREAK,
    Heading,
    PageRange,
    ParsedFile,
)
from indexer_svc.parsers.table_grid import TableSize
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
# A citation of a row needs a page for it. 10,000 pages take about as much space as the tree of
# their text; a longer table gets larger pages instead of more.
MAX_ROW_PAGES = 10_000


def check_text_bytes(text_bytes: int, max_text_bytes: int) -> None:
    """Raises TooLarge if a text has more than `max_text_bytes` bytes of UTF-8."""
    if text_bytes > max_text_bytes:
        raise TooLarge(
            f"content has more than {max_text_bytes} bytes of text; "
            "HRAG_MAX_DOCUMENT_BYTES allows no more",
            field=_FIELD,
            limit="document_bytes",
        )


class _PageStart(NamedTuple):
    """The beginning of a page: the index of its first part, and the fields of its PageRange.

    `is_row` is True if the page was begun for a row of a table.
    """

    part: int
    number: int = 0
    is_recognised: bool = False
    is_row: bool = False


class TextWriter:
    """Builds a text block by block.

    A block is a heading, a paragraph, a list item, code or a table. Blank blocks are left out.

    Each method that adds text raises TooLarge once the text has more than `max_text_bytes` bytes
    of UTF-8. A reader of tables whose cells may span rows and columns counts them in `table_size`
    before it writes them.
    """

    def __init__(self, max_text_bytes: int) -> None:
        """Begins an empty text of at most `max_text_bytes` bytes of UTF-8."""
        self.table_size = TableSize(max_text_bytes)
        self._max_bytes = max_text_bytes
        self._bytes = 0
        self._chars = 0
        self._parts: list[str] = []
        self._headings: list[Heading] = []
        self._page_starts: list[_PageStart] = []
        # The number of the row that was begun last, and how many rows were begun in the text.
        self._row_number = self._row_count = 0
        self._row_page_count = 0
        self._rows_per_page = 1
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
    def bytes_left(self) -> int:
        """The bytes of UTF-8 that the text may still grow by."""
        return self._max_bytes - self._bytes

    @property
    def first_heading(self) -> str:
        """The title of the first heading of depth 1, or an empty string."""
        return next((heading.title for heading in self._headings if heading.depth == 1), "")

    def heading(self, depth: int, text: str) -> None:
        """Adds a heading, and records that a section begins at it. `depth` counts from 1.

        The text has the whole heading. Only the title of the section is cut to its limit.
        """
        line = " ".join(text.replace(_SOFT_HYPHEN, "").split())
        if not line:
            return
        start = self._add(f"{'#' * min(depth, _MARKDOWN_DEPTH)} {line}")
        if len(self._headings) < MAX_HEADINGS:
            self._headings.append(Heading(section_title(line), depth, start))

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

    def table(
        self,
        rows: Sequence[Sequence[str]],
        *,
        header_rows: int | None = None,
        has_row_headers: bool = False,
        row_numbers: Sequence[int] | None = None,
    ) -> None:
        """Adds the rows of a table, in the text form of `table_blocks`.

        The first `header_rows` rows are the header; if it is None, the header is guessed. If
        `has_row_headers` is True, the first cell of each row names the row. If `row_numbers` has
        the numbers of the rows, each row becomes a page with its number, except the rows of the
        header of a long table, whose names are in every row. The caller then gives `parsed` the
        page unit ROW. A text has at most MAX_ROW_PAGES pages of this kind: if there would be more,
        each page contains 2, 4, 8 or more rows and has the number of the first of them.
        """
        blocks = table_blocks(
            rows,
            header_rows=header_rows,
            has_row_headers=has_row_headers,
            row_numbers=row_numbers,
        )
        for block in blocks:
            if block.row_number:
                self._begin_row(block.row_number)
            self._add(block.text, continues=block.is_continuation)
        # Rows of a single cell, such as a title above a table in a sheet, are no table.
        self._table_count += any(sum(map(bool, row)) > 1 for row in rows)

    def include(self, parsed: ParsedFile, depth: int = 0) -> tuple[PageRange, ...]:
        """Adds the text of a parsed file as a block, with its headings `depth` levels deeper.

        What its report says of tables and of parts that were left out becomes part of this report.
        Returns the ranges of the file's pages in this text; `parsed` does not contain them.
        """
        text = parsed.text.rstrip()
        first = len(text) - len(text.lstrip("\n"))
        hyphens = [match.start() for match in re.finditer(_SOFT_HYPHEN, text)]
        start = self._add(text[first:])

        def moved(offset: int) -> int:
            kept = min(max(offset, first), len(text))
            return start + kept - first - bisect_left(hyphens, kept)

        for heading in parsed.headings[: MAX_HEADINGS - len(self._headings)]:
            title = section_title(heading.title.replace(_SOFT_HYPHEN, ""))
            if title:
                position = moved(heading.char_start)
                self._headings.append(Heading(title, heading.depth + depth, position))
        self._table_count += parsed.report.table_count
        for kind, count, example in parsed.report.left_out:
            earlier, first_example = self._left_out.get(kind, (0, example))
            self._left_out[kind] = earlier + count, first_example
        return tuple(
            page._replace(
                char_start=moved(page.char_start),
                char_end=moved(page.char_end),
                number=page.number or position,
            )
            for position, page in enumerate(parsed.pages, start=1)
        )

    def leave_out(self, kind: LeftOutKind, text: str) -> None:
        """Notes in the report that a part of the file is not in the text."""
        count, example = self._left_out.get(kind, (0, " ".join(text.split())[:MAX_EXAMPLE_CHARS]))
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
                limit="document_pages",
            )
        self._page_starts.append(_PageStart(len(self._parts), number, is_recognised))
        self._row_number = number
        self._ends_with_item = False

    def _begin_row(self, number: int) -> None:
        """Begins a page for a row of a table, if the row is the first of `_rows_per_page` rows.

        The row may have begun already: with an earlier block, or with a page of its number.
        """
        if number == self._row_number:
            return
        if self._row_count % self._rows_per_page == 0:
            self.page(number)
            self._page_starts[-1] = self._page_starts[-1]._replace(is_row=True)
            self._row_page_count += 1
        self._row_number = number
        self._row_count += 1
        if self._row_page_count > MAX_ROW_PAGES:
            self._join_row_pages()

    def _join_row_pages(self) -> None:
        """Joins each second page that was begun for a row with the page before it."""
        starts = []
        row_page_count = 0
        for start in self._page_starts:
            if not start.is_row or row_page_count % 2 == 0:
                starts.append(start)
            row_page_count += start.is_row
        self._page_starts = starts
        self._row_page_count = sum(start.is_row for start in starts)
        self._rows_per_page *= 2

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
            (start.number or position, start.is_recognised)
            for position, start in enumerate(self._page_starts, start=1)
        )
        return ReadReport(
            table_count=self._table_count,
            recognised_pages=tuple(number for number, is_recognised in numbers if is_recognised),
            unread_pages=tuple(self._unread_pages),
            left_out=tuple(LeftOut(kind, *value) for kind, value in self._left_out.items()),
        )

    def _add(self, block: str, *, is_item: bool = False, continues: bool = False) -> int:
        """Appends a block; returns the offset at which it begins, in code points.

        With `continues`, the block begins on the line after the block before it.
        """
        block = block.replace(_SOFT_HYPHEN, "")
        if not block:
            return self._chars
        follows = continues or (is_item and self._ends_with_item)
        separator = "\n" if follows else PAGE_BREAK
        if not self._parts:
            separator = ""
        self._ends_with_item = is_item
        self._parts += (separator, block)
        self._chars += len(separator) + len(block)
        self._bytes += len(separator) + len(block.encode())
        check_text_bytes(self._bytes, self._max_bytes)
        return self._chars - len(block)

    def _pages(self) -> tuple[PageRange, ...]:
        """Returns the range of each page, in code points.

        The blank line before the first block of a page is not part of the page. The range of a page
        without text is empty.
        """
        offsets = list(accumulate(map(len, self._parts), initial=0))
        starts = [*self._page_starts, _PageStart(len(self._parts))]
        pages = []
        for page, next_page in pairwise(starts):
            end = offsets[next_page.part]
            start = offsets[page.part + 1] if next_page.part > page.part else end
            pages.append(PageRange(start, end, page.number, page.is_recognised))
        return tuple(pages)
