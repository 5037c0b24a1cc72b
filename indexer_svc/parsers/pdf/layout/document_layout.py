"""Turns the content of a PDF's pages into blocks of text: headings, paragraphs, items and tables.

Theory of operation. A PDF says where characters stand on a page, and nothing about words, lines,
paragraphs, columns or tables. The layout finds these in the order in which a typesetter made them,
from small to large:

1. Characters become words, and words become rows (`words`, `lines`).
2. Rows that are repeated at the edges of pages are running heads, and are left out
   (`page_heads`). This needs the rows of neighbouring pages. So pages are read in windows of
   WINDOW_PAGES pages, and only one window of words is in memory at a time.
3. Lines that are drawn on the page enclose the cells of ruled tables (`ruled_tables`).
4. White space divides the rest into columns, which are read one after the other (`columns`).
5. In a column, tables of contents are left out (`contents_pages`), and rows with aligned gaps are
   tables (`aligned_tables`). All other rows are lines of text.
6. When all pages are read, the style of most lines is that of the text. Bookmarks, tags, or styles
   that differ from it mark the headings (`headings`). Lines become paragraphs (`blocks`).
7. Footnotes go to the end of their page. The parts of a table in the columns of a page become one
   table. A table that continues on the next page gets its header there again.

This package is pure: it gets characters and returns blocks, and knows nothing about PDFium.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from hrag.values.read_report import LeftOutKind
from indexer_svc.parsers.pdf.layout.blocks import Block, blocks_of
from indexer_svc.parsers.pdf.layout.headings import (
    BodyStyle,
    MissingHeading,
    body_style,
    mark_bookmarks,
    mark_typographic,
    normalised,
)
from indexer_svc.parsers.pdf.layout.lines import TextLine, mark_heading
from indexer_svc.parsers.pdf.layout.page_heads import EdgeRow, running_heads
from indexer_svc.parsers.pdf.layout.page_layout import (
    PageLayout,
    PageRows,
    Region,
    page_layout,
    page_rows,
)
from indexer_svc.parsers.pdf.layout.paragraphs import Vocabulary, ends_inside_word, joined
from indexer_svc.parsers.pdf.layout.tables import PdfTable
from indexer_svc.parsers.pdf.page_content import Bookmark, PageContent, Tag

WINDOW_PAGES = 64
# With fewer bookmarks than one for so many pages, headings between them are found by their style.
_PAGES_PER_BOOKMARK = 4
_FOOTNOTE_SIZE = 0.93
_FOOTNOTE_START = re.compile(r"(?:\[\w{1,3}\]|[*\u2020\u2021\u00a7\u00b6]|\d{1,3}[.)]?\s)")
_NOTE_NUMBER = re.compile(r"\d{1,3}|[*\u2020\u2021\u00a7\u00b6]{1,3}|[a-z]")
# The number of a footnote is at most so far from its text, in font sizes of the text.
_NOTE_GAP = 1.5
_SAME_EDGE = 6.0
# The edges of the columns of a table's parts differ by at most so many points.
_MAX_SHIFT = 24.0
# A typewritten text has few words with such signs, and code has many.
_CODE_SIGN = re.compile(r"\w[(){}\[\]<>=;_\\|$#&~^]|[{}<>=;_\\|$#&~^]")
_MAX_CODE_WORDS = 0.15
_NO_TAG = Tag()


@dataclass(slots=True)
class PageBlocks:
    """The blocks of a page, and what was left out of its text."""

    index: int
    blocks: list[Block | PdfTable] = field(default_factory=list)
    left_out: list[tuple[LeftOutKind, str]] = field(default_factory=list)
    is_unread: bool = False


class DocumentLayout:
    """Lays out the pages of a document, which are added one after the other."""

    def __init__(self, page_count: int, bookmarks: Sequence[Bookmark] = ()) -> None:
        """Begins a document of `page_count` pages with these bookmarks."""
        self._page_count = page_count
        self._bookmarks = bookmarks
        self._titles = {(mark.page, normalised(mark.title)) for mark in bookmarks}
        self._window: list[PageRows] = []
        self._edges: list[EdgeRow] = []
        self._layouts: list[PageLayout] = []
        self._heading_number = 0
        self._fixed_is_code: bool | None = None
        self._continues_contents = False

    def add(self, content: PageContent) -> None:
        """Adds the next page."""
        index = len(self._layouts) + len(self._window)
        self._window.append(page_rows(index, content))
        if len(self._window) == WINDOW_PAGES:
            self._close_window()

    def pages(self) -> Iterator[PageBlocks]:
        """Yields the blocks of each page, when all pages have been added."""
        self._close_window()
        lines = (line for layout in self._layouts for line in layout.lines)
        tables = sum((layout.table_styles for layout in self._layouts), Counter[BodyStyle]())
        body = body_style(lines, tables)
        bookmarks = self._bookmarks
        missing = self._mark_headings(bookmarks)
        has_headings = any(line.heading_depth for page in self._layouts for line in page.lines)
        words = Vocabulary(line for layout in self._layouts for line in layout.lines)
        pages = [self._blocks(layout, body, words) for layout in self._layouts]
        texts = [
            [item for item in page if isinstance(item, Block) and item.lines] for page in pages
        ]
        if not has_headings or 0 < len(bookmarks) * _PAGES_PER_BOOKMARK < self._page_count:
            titles = (entry.title for layout in self._layouts for entry in layout.contents)
            deepest = max((bookmark.depth for bookmark in bookmarks), default=0)
            mark_typographic(texts, body, titles, deepest)
        for page in pages:
            _join_tables(page)
        _continue_tables(pages)
        _continue_paragraphs(pages, words)
        _add_missing_headings(pages, missing)
        for layout, blocks in zip(self._layouts, pages, strict=True):
            yield PageBlocks(layout.index, blocks, layout.left_out, layout.is_unread)

    def _close_window(self) -> None:
        """Lays out the pages of the window."""
        if not self._window:
            return
        first = self._window[0].index
        near = [row for row in self._edges if row.page >= first - WINDOW_PAGES]
        self._edges = near + [row for page in self._window for row in page.edge_rows()]
        heads = self._without_titles(running_heads(self._edges, self._page_count))
        if self._fixed_is_code is None:
            self._fixed_is_code = not _is_typewritten(self._window)
        for page in self._window:
            layout = page_layout(
                page,
                heads,
                self._page_count,
                continues_contents=self._continues_contents,
                fixed_is_code=self._fixed_is_code,
            )
            self._continues_contents = bool(layout.contents)
            self._mark_tags(page, layout)
            self._layouts.append(layout)
        self._window = []

    def _without_titles(self, heads: set[EdgeRow]) -> set[EdgeRow]:
        """Returns the running heads without the titles of bookmarks that no other page repeats.

        The headings `Part 1` and `Part 2` of two pages look like page numbers.
        """
        counts = Counter(head.text for head in heads)
        return {
            head
            for head in heads
            if counts[head.text] > 1 or (head.page, normalised(head.text)) not in self._titles
        }

    def _mark_tags(self, page: PageRows, layout: PageLayout) -> None:
        """Marks the lines that belong to headings of the structure tree."""
        tags = page.content.tags
        if not tags:
            return
        element = 0
        for line in layout.lines:
            tag = tags.get(line.mark, _NO_TAG)
            if not tag.heading_depth:
                element = 0
                continue
            if tag.element != element:
                self._heading_number -= 1
                element = tag.element
            mark_heading([line], tag.heading_depth, self._heading_number)

    def _mark_headings(self, bookmarks: Sequence[Bookmark]) -> list[MissingHeading]:
        """Marks the headings that bookmarks name; returns the bookmarks without lines.

        Bookmarks take the place of the headings of the structure tree.
        """
        if not bookmarks:
            return []
        for layout in self._layouts:
            mark_heading(layout.lines, 0, 0)
        return mark_bookmarks([layout.lines for layout in self._layouts], bookmarks)

    def _blocks(
        self, layout: PageLayout, body: BodyStyle, words: Vocabulary
    ) -> list[Block | PdfTable]:
        """Returns the blocks of a page, its footnotes last."""
        items: list[Block | PdfTable] = []
        notes: list[Block | PdfTable] = []
        for region in layout.regions:
            numbered = _with_note_numbers(region, body)
            upper, lower = _divided_at_footnotes(numbered, layout.height, body)
            items += _region_blocks(upper, words, self._fixed_is_code)
            notes += _region_blocks(lower, words, self._fixed_is_code)
        for note in notes:
            if isinstance(note, Block):
                note.is_footnote = True
        for text in layout.side_texts:
            notes.append(_text_block(text))
        return items + notes


def _is_typewritten(pages: Iterable[PageRows]) -> bool:
    """Returns True if most words have a font whose characters have the same width.

    A sheet of code has such a font too, but many of its words have the signs of code.
    """
    fixed = code = count = 0
    for page in pages:
        for row in page.rows:
            for word in row.words:
                count += 1
                if word.font.is_fixed:
                    fixed += 1
                    code += bool(_CODE_SIGN.search(word.text))
    return fixed > 0.6 * count and code <= _MAX_CODE_WORDS * fixed


def _with_note_numbers(region: Region, body: BodyStyle) -> Region:
    """Returns the items of a region, with the raised numbers of footnotes in the line of the note.

    Such a number is nearly as large as the text of the note, and higher than a superscript. So it
    is a line of its own, directly to the left of the note.
    """
    items: Region = []
    for item in region:
        before = items[-1] if items else None
        if (
            isinstance(item, TextLine)
            and isinstance(before, TextLine)
            and _NOTE_NUMBER.fullmatch(before.text)
            and item.size <= _FOOTNOTE_SIZE * body.size
            and before.size <= item.size
            and 0 <= item.baseline - before.baseline < item.size
            and -0.3 < (item.left - before.right) / item.size < _NOTE_GAP
        ):
            items.pop()
            item.text = f"[{before.text}] {item.text}"
            item.left = before.left
        items.append(item)
    return items


def _divided_at_footnotes(region: Region, height: float, body: BodyStyle) -> tuple[Region, Region]:
    """Returns the items of a region above its footnotes, and the footnotes."""
    for index, item in enumerate(region):
        if (
            isinstance(item, TextLine)
            and item.size <= _FOOTNOTE_SIZE * body.size
            and item.baseline > 0.4 * height
            and not item.heading_depth
            and _FOOTNOTE_START.match(item.text)
            and all(
                isinstance(rest, TextLine) and rest.size <= _FOOTNOTE_SIZE * body.size
                for rest in region[index:]
            )
        ):
            return region[:index], region[index:]
    return region, []


def _region_blocks(
    region: Region, words: Vocabulary, fixed_is_code: bool | None
) -> Iterator[Block | PdfTable]:
    """Yields the blocks and tables of a region, in order."""
    lines: list[TextLine] = []
    for item in region:
        if isinstance(item, TextLine):
            lines.append(item)
            continue
        yield from blocks_of(lines, words, fixed_is_code=bool(fixed_is_code))
        lines = []
        yield item
    yield from blocks_of(lines, words, fixed_is_code=bool(fixed_is_code))


def _text_block(text: str) -> Block:
    block = Block([], text)
    block.is_footnote = True
    return block


def _add_missing_headings(
    pages: Sequence[list[Block | PdfTable]], missing: Sequence[MissingHeading]
) -> None:
    """Adds the headings that bookmarks name, but that no line shows.

    They are added after the heading of the bookmark before, or else at the start of the page. If
    the page has no text, they are added to the next page that has text, because headings alone are
    not the text of a page.
    """
    has_text = list(map(bool, pages))
    for bookmark, before in reversed(missing):
        page = bookmark.page
        while page < len(pages) and not has_text[page]:
            page += 1
        if page == len(pages):
            continue
        place = _place_after(pages[page], before) if page == bookmark.page and before else 0
        block = Block([], bookmark.title)
        block.heading_depth = bookmark.depth
        pages[page].insert(place, block)


def _place_after(blocks: Sequence[Block | PdfTable], heading_number: int) -> int:
    """Returns the index after the heading with a number, or 0."""
    for at, item in enumerate(blocks):
        if isinstance(item, Block) and item.lines and item.first.heading_number == heading_number:
            return at + 1
    return 0


def _join_tables(blocks: list[Block | PdfTable]) -> None:
    """Joins the parts of a table that continues in the next column of a page.

    The lower part begins higher on the page than the upper part ends, nothing is between them, and
    both have the same columns.
    """
    kept: list[Block | PdfTable] = []
    last: PdfTable | None = None
    for item in blocks:
        if not isinstance(item, PdfTable):
            kept.append(item)
            last = last if _is_note(item) else None
            continue
        if last is not None and _is_next_part(last, item):
            header = last.rows[: last.header_rows or 0]
            is_repeated = bool(header) and item.rows[: len(header)] == header
            last.rows += item.rows[len(header) if is_repeated else 0 :]
            last.bottom, last.left, last.right = item.bottom, item.left, item.right
            last.columns = item.columns
            continue
        kept.append(item)
        last = item
    blocks[:] = kept


def _is_next_part(upper: PdfTable, lower: PdfTable) -> bool:
    """Returns True if a table is the part of another table in the next column of a page."""
    if len(upper.rows[0]) != len(lower.rows[0]):
        return False
    if lower.left < upper.right or lower.top > upper.bottom:
        return False
    header = upper.rows[: upper.header_rows or 0]
    if header and lower.rows[: len(header)] == header:
        return True
    shift = lower.left - upper.left
    return not lower.header_rows and all(
        abs(other - one - shift) <= _MAX_SHIFT
        for one, other in zip(upper.columns, lower.columns, strict=False)
    )


def _continue_tables(pages: Sequence[list[Block | PdfTable]]) -> None:
    """Gives a table that continues one of the page before the header of that table.

    A table continues if it is the first block of its page, the other table is the last block of the
    page before, and both have the same columns.
    """
    for before, after in pairwise(pages):
        upper = next((item for item in reversed(before) if not _is_note(item)), None)
        lower = after[0] if after else None
        if not isinstance(upper, PdfTable) or not isinstance(lower, PdfTable):
            continue
        if not _same_columns(upper, lower):
            continue
        header = upper.rows[: upper.header_rows or 1]
        if lower.rows[: len(header)] == header:
            lower.header_rows = len(header)
        elif upper.header_rows and not lower.header_rows:
            lower.rows[:0] = [list(row) for row in header]
            lower.header_rows = upper.header_rows


def _continue_paragraphs(pages: Sequence[list[Block | PdfTable]], words: Vocabulary) -> None:
    """Joins the parts of paragraphs that a new column or a new page divides.

    On the same page, the whole part in the next column is added to the paragraph. A new page gets
    only the rest of a word, so that the sentences of a page stay on it.
    """
    last: Block | None = None
    for blocks in pages:
        is_new_page = True
        kept: list[Block | PdfTable] = []
        for item in blocks:
            if _is_note(item):
                kept.append(item)
                continue
            if not isinstance(item, Block) or not _is_text(item):
                kept.append(item)
                last, is_new_page = None, False
                continue
            if last is not None and _runs_on(last, item, is_new_page=is_new_page):
                if not is_new_page:
                    last.text = joined(last.text, item.text, words)
                    last.lines += item.lines
                    continue
                first, _, item.text = item.text.partition(" ")
                last.text = joined(last.text, first, words)
                if not item.text:
                    continue
            kept.append(item)
            last, is_new_page = item, False
        blocks[:] = kept


def _is_text(block: Block) -> bool:
    return bool(block.lines) and not block.is_code and not block.heading_depth


def _runs_on(block: Block, after: Block, *, is_new_page: bool) -> bool:
    """Returns True if `after` continues the sentence, or on a new page the word, of `block`."""
    end, start = block.lines[-1], after.first
    is_broken = ends_inside_word(block.text)
    is_open = is_broken or block.text[-1].isalnum() or block.text[-1] == ","
    return (
        (is_broken if is_new_page else is_open)
        and (after.text[0].islower() or (is_new_page and after.text[0].isdigit()))
        and not after.marker
        and abs(end.size - start.size) < 0.5
        and end.is_bold == start.is_bold
        and (is_new_page or start.baseline < end.baseline - end.size)
    )


def _is_note(item: Block | PdfTable) -> bool:
    return isinstance(item, Block) and item.is_footnote


def _same_columns(upper: PdfTable, lower: PdfTable) -> bool:
    """Returns True if two tables have the same columns.

    They begin at the same x, or they are in different columns of their pages.
    """
    if len(upper.rows[0]) != len(lower.rows[0]) or not (upper.columns and lower.columns):
        return len(upper.rows[0]) == len(lower.rows[0])
    shift = lower.columns[0] - upper.columns[0]
    return abs(shift) <= _SAME_EDGE or all(
        abs(other - one - shift) <= _SAME_EDGE
        for one, other in zip(upper.columns, lower.columns, strict=False)
    )
