"""Divides one page into regions of lines and tables, in reading order.

A page is divided in two steps, because running heads are found by a comparison of pages: first its
words are joined into rows, then the rows without running heads are divided into regions.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from hrag.values.read_report import LeftOutKind
from indexer_svc.parsers.pdf.layout.aligned_tables import aligned_tables
from indexer_svc.parsers.pdf.layout.columns import regions_of
from indexer_svc.parsers.pdf.layout.contents_pages import ContentsEntry, contents_of
from indexer_svc.parsers.pdf.layout.headings import BodyStyle, table_styles
from indexer_svc.parsers.pdf.layout.lines import TextLine, TextRow, line_text, rows_of
from indexer_svc.parsers.pdf.layout.page_heads import EdgeRow, edge_rows
from indexer_svc.parsers.pdf.layout.ruled_tables import ruled_tables
from indexer_svc.parsers.pdf.layout.tables import PdfTable
from indexer_svc.parsers.pdf.layout.underscores import with_underscores
from indexer_svc.parsers.pdf.layout.words import Word, noise_share, words_of, words_of_values
from indexer_svc.parsers.pdf.page_content import Font, PageContent

# A page of which more characters than this are unknown has no readable text.
MAX_NOISE_SHARE = 0.3
# A page with numbered lines has at least so many numbers.
_MIN_LINE_NUMBERS = 8
_NUMERAL = re.compile(r"[0-9]{1,6}")
# On a page with more words, columns and tables are not searched for. A page of a newspaper has half
# as many.
MAX_PAGE_WORDS = 15_000
_VALUE_FONT = Font("")
_VALUE_SIZE = 10.0
_TABLE_FONT = Font("table")
# The space above a table is at most so high, in points. It is left out at the top of a column.
_SAME_TOP = 16.0

Region = list[TextLine | PdfTable]


@dataclass(slots=True)
class PageRows:
    """The rows of a page. `side_texts` are the lines of text that is not upright.

    `is_unread` is True if the page shows text that cannot be read.
    """

    index: int
    content: PageContent
    rows: list[TextRow] = field(default_factory=list)
    side_lines: list[TextLine] = field(default_factory=list)
    is_unread: bool = False

    def edge_rows(self) -> list[EdgeRow]:
        """Returns the rows that may be running heads."""
        return edge_rows(self.index, self.rows, self.content.height)


@dataclass(slots=True)
class PageLayout:
    """The regions of a page in reading order, and what is left out of its text.

    `table_styles` has the number of characters in tables for each style.
    """

    index: int
    height: float
    regions: list[Region] = field(default_factory=list)
    side_texts: list[str] = field(default_factory=list)
    left_out: list[tuple[LeftOutKind, str]] = field(default_factory=list)
    contents: list[ContentsEntry] = field(default_factory=list)
    is_unread: bool = False
    table_styles: Counter[BodyStyle] = field(default_factory=Counter)

    @property
    def lines(self) -> list[TextLine]:
        """The lines of all regions."""
        return [item for region in self.regions for item in region if isinstance(item, TextLine)]


def shows_unread_text(content: PageContent) -> bool:
    """Returns True if the page shows text that cannot be read, before it is divided into rows.

    A page of pictures may be a scan with the fields of a form on it, whose values are read.
    """
    if noise_share(content.runs) > MAX_NOISE_SHARE:
        return True
    return content.has_pictures and not any(run.text.strip() for run in content.runs)


def page_rows(index: int, content: PageContent) -> PageRows:
    """Returns the rows of a page. `index` counts the pages from 0."""
    page = PageRows(index, content)
    if not content.runs and not content.form_values:
        page.is_unread = content.has_pictures
        return page
    page.is_unread = shows_unread_text(content)
    runs = [] if noise_share(content.runs) > MAX_NOISE_SHARE else content.runs
    words = words_of([run for run in runs if run.angle == 0])
    words = with_underscores(words, content.rules)
    size = words[0].size if words else _VALUE_SIZE
    words += words_of_values(content.form_values, size, _VALUE_FONT)
    page.rows = rows_of(words)
    for angle in (90, 180, 270):
        side = words_of([run for run in runs if run.angle == angle])
        page.side_lines += [TextLine(row.words) for row in rows_of(side)] if side else []
    return page


def page_layout(
    page: PageRows,
    heads: set[EdgeRow],
    page_count: int,
    *,
    continues_contents: bool,
    fixed_is_code: bool,
) -> PageLayout:
    """Returns the regions of a page without its running heads.

    `heads` are the rows of all pages that are running heads, feet or page numbers.
    """
    layout = PageLayout(page.index, page.content.height, is_unread=page.is_unread)
    layout.left_out += [(LeftOutKind.SLANTED_TEXT, text) for text in page.content.slanted_texts]
    rows = _without_heads(page, heads, layout)
    rows = _without_line_numbers(rows, layout)
    if sum(len(row.words) for row in rows) > MAX_PAGE_WORDS:
        layout.regions.append([TextLine(row.words) for row in rows])
        return layout
    tables, words = _ruled(page, rows, layout)
    placeholders = {id(word): table for word, table in tables}
    if tables:
        rows = rows_of([*words, *(word for word, _ in tables)])
    for region in regions_of(rows):
        items = _items(
            region, placeholders, page, layout, page_count, continues_contents, fixed_is_code
        )
        if items:
            layout.regions.append(items)
    layout.side_texts = [line.text for line in page.side_lines]
    return layout


def _without_heads(page: PageRows, heads: set[EdgeRow], layout: PageLayout) -> list[TextRow]:
    """Returns the rows that are not running heads, and notes those that are."""
    removed = set()
    for edge in page.edge_rows():
        if edge in heads:
            at = edge.distance if edge.is_top else len(page.rows) - 1 - edge.distance
            if at not in removed:
                removed.add(at)
                is_number = edge.is_only_number
                kind = LeftOutKind.PAGE_NUMBER if is_number else LeftOutKind.RUNNING_HEAD
                layout.left_out.append((kind, edge.text))
    return [row for at, row in enumerate(page.rows) if at not in removed]


def _without_line_numbers(rows: list[TextRow], layout: PageLayout) -> list[TextRow]:
    """Returns the rows without the numbers of lines in the margin, and notes those.

    The first or the last words of many rows are numbers of lines if they are at the same x, apart
    from all other words, and grow by the same step.
    """
    for at in (0, -1):
        edge = [row.words[at] for row in rows if _NUMERAL.fullmatch(row.words[at].text)]
        if len(edge) < _MIN_LINE_NUMBERS or len(edge) < 0.15 * len(rows):
            continue
        steps = {int(after.text) - int(word.text) for word, after in pairwise(edge)}
        if len(steps) != 1 or not steps <= {1, 2, 5, 10}:
            continue
        numbers = set(map(id, edge))
        left, right = min(word.left for word in edge), max(word.right for word in edge)
        if right - left > 4 * edge[0].size or any(
            word.left < right + 1 and word.right > left - 1
            for row in rows
            for word in row.words
            if id(word) not in numbers
        ):
            continue
        layout.left_out.append((LeftOutKind.RUNNING_HEAD, " ".join(word.text for word in edge)))
        kept = ([word for word in row.words if id(word) not in numbers] for row in rows)
        rows = [TextRow(words) for words in kept if words]
    return rows


def _ruled(
    page: PageRows, rows: Sequence[TextRow], layout: PageLayout
) -> tuple[list[tuple[Word, PdfTable]], list[Word]]:
    """Returns the ruled tables, each with a word that takes its place, and the other words."""
    tables: list[tuple[Word, PdfTable]] = []
    words = [word for row in rows for word in row.words]
    for table, inside in ruled_tables(page.content.rules, words):
        layout.table_styles += table_styles(inside)
        taken = set(map(id, inside))
        words = [word for word in words if id(word) not in taken]
        # Tables that begin at nearly the same height are read from left to right.
        top = min(
            (
                before.top
                for before, _ in tables
                if abs(before.top - table.top) <= _SAME_TOP
                and (before.right <= table.left or table.right <= before.left)
            ),
            default=table.top,
        )
        place = Word(
            "\u25a6",
            *(table.left, top, table.right, table.bottom, top + 1.0, 1.0, _TABLE_FONT),
        )
        tables.append((place, table))
    return tables, words


def _items(
    rows: Sequence[TextRow],
    placeholders: dict[int, PdfTable],
    page: PageRows,
    layout: PageLayout,
    page_count: int,
    continues_contents: bool,
    fixed_is_code: bool,
) -> Region:
    """Returns the lines and tables of a region, from the top down."""
    items: Region = []
    waiting: list[TextRow] = []

    def flush() -> None:
        items.extend(
            _free_items(waiting, page, layout, page_count, continues_contents, fixed_is_code)
        )
        waiting.clear()

    for row in rows:
        if not any(id(word) in placeholders for word in row.words):
            waiting.append(row)
            continue
        others = [word for word in row.words if id(word) not in placeholders]
        if others:
            waiting.append(TextRow(others))
        flush()
        items += [placeholders[id(word)] for word in row.words if id(word) in placeholders]
    flush()
    return items


def _free_items(
    rows: list[TextRow],
    page: PageRows,
    layout: PageLayout,
    page_count: int,
    continues_contents: bool,
    fixed_is_code: bool,
) -> Region:
    """Returns the lines and tables of rows that no ruled lines enclose."""
    items: Region = []
    position = 0
    for contents in contents_of(rows, page_count, continues=continues_contents):
        items += _lines_and_tables(rows[position : contents.start], page, layout, fixed_is_code)
        text = "\n".join(line_text(row.words) for row in rows[contents.start : contents.end])
        layout.left_out.append((LeftOutKind.CONTENTS_PAGE, text))
        layout.contents += contents.entries
        position = contents.end
    items += _lines_and_tables(rows[position:], page, layout, fixed_is_code)
    return items


def _lines_and_tables(
    rows: Sequence[TextRow], page: PageRows, layout: PageLayout, fixed_is_code: bool
) -> Region:
    items: Region = []
    position = 0
    for start, end, table in aligned_tables(rows, page.content.rules, fixed_is_code=fixed_is_code):
        items += [TextLine(row.words) for row in rows[position:start]]
        items.append(table)
        layout.table_styles += table_styles(word for row in rows[start:end] for word in row.words)
        position = end
    items += [TextLine(row.words) for row in rows[position:]]
    return items
