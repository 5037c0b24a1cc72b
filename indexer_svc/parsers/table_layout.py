"""Finds the tables of a document that arrange the parts of a page.

Office documents use tables for two purposes: to show values, and to arrange parts of a page. A
table of values becomes a table of the text. The contents of any other table are read as if the
table were not there, because its cells contain headings, lists and whole tables.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto

from indexer_svc.parsers.package import Element


class TablePart(Enum):
    """The kinds of elements that show which purpose a table has."""

    TABLE = auto()
    ROW = auto()
    CELL = auto()
    HEADING = auto()
    PARAGRAPH = auto()


@dataclass(slots=True)
class _OpenTable:
    """A table that has begun and not ended.

    `has_heading` is True if the current cell has a heading, and `is_below_heading` if the current
    paragraph is below it. `has_section` is True if a cell has a heading and text below it.
    """

    table: Element
    chars: int = 0
    nested_chars: int = 0
    cells_in_row: int = 0
    max_cells: int = 0
    has_heading: bool = False
    is_below_heading: bool = False
    has_section: bool = False


def layout_tables(
    root: Element,
    part_of: Callable[[Element], TablePart | None],
    children_of: Callable[[Element], Iterable[Element]],
    count_chars: Callable[[Element], int],
) -> set[Element]:
    """Returns the tables below `root` that arrange parts of a page.

    A table is one of them if each of its rows has one cell, if a cell contains a heading and text
    below it, or if most of its text is in tables inside it. `part_of` returns what an element is,
    or None. `children_of` yields the children that are shown, and `count_chars` counts the
    characters of an element without those of its children.
    """
    layouts: set[Element] = set()
    open_tables: list[_OpenTable] = []
    # In this list, None means that a table ends.
    pending: list[Element | None] = [root]
    while pending:
        element = pending.pop()
        if element is None:
            closed = open_tables.pop()
            if _is_layout(closed):
                layouts.add(closed.table)
            if open_tables:
                open_tables[-1].chars += closed.chars
                open_tables[-1].nested_chars += closed.chars
            continue
        part = part_of(element)
        if part is TablePart.TABLE:
            open_tables.append(_OpenTable(element))
            pending.append(None)
        elif open_tables:
            _examine(part, count_chars(element), open_tables[-1])
        pending += list(children_of(element))[::-1]
    return layouts


def _examine(part: TablePart | None, chars: int, table: _OpenTable) -> None:
    """Notes an element of a table, which has `chars` characters without those of its children."""
    if part is TablePart.ROW:
        table.cells_in_row = 0
    elif part is TablePart.CELL:
        table.cells_in_row += 1
        table.max_cells = max(table.max_cells, table.cells_in_row)
        table.has_heading = table.is_below_heading = False
    elif part is TablePart.HEADING:
        table.has_heading, table.is_below_heading = True, False
    elif part is TablePart.PARAGRAPH:
        table.is_below_heading = table.has_heading
    table.chars += chars
    table.has_section |= table.is_below_heading and chars > 0


def _is_layout(table: _OpenTable) -> bool:
    return table.max_cells <= 1 or table.has_section or 2 * table.nested_chars > table.chars
