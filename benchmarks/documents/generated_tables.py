"""Seeded tables: the same name gives the same table on every machine.

The tables have what makes real tables hard to read back: names of columns in two rows, years as
names, cells that span rows, empty cells, cells of several lines, cells of one character, and rows
on several pages. The names of the columns of a table differ, and each row has a first cell: without
them, nobody could say which cell of a print is which.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from benchmarks.documents.sentences import Writer
from benchmarks.documents.source_document import (
    Block,
    Cell,
    Heading,
    Paragraph,
    SourceDocument,
    Table,
    plain,
)

_FIRST_NAMES = ("Name", "Item", "Part", "Station", "Code")
_TEXT_NAMES = ("Place", "Status", "Responsible", "Material", "Method", "Reason", "Supplier")
_NUMBER_NAMES = ("Price", "Weight", "Share", "Count", "Total", "Change", "Deviation", "Revenue")
_GROUP_NAMES = ("Inland", "Coast", "Plan", "Actual", "Budget")
_REMARK = "Remark"
_MISSING = ("", "", "–", "n/a")
_LONG_ROWS = (38, 70)
_SHORT_ROWS = (3, 16)


class ColumnKind(StrEnum):
    """What the cells of a column contain."""

    TEXT = "text"
    NUMBER = "number"
    MARK = "mark"
    REMARK = "remark"


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    kind: ColumnKind


def table_document(name: str, *, is_ruled: bool) -> SourceDocument:
    """Returns a document with one table between paragraphs.

    Cells that span rows occur only if the table will be printed with lines, because without lines
    nobody sees which rows a cell spans.
    """
    writer = Writer.named(name)
    blocks: list[Block] = [Heading(1, plain(writer.title()))]
    for _ in range(writer.between(1, 5)):
        blocks.append(Paragraph(writer.paragraph(writer.between(2, 5))))
    blocks.append(Paragraph(plain(f"Table {writer.between(1, 20)}: {writer.title()}")))
    blocks.append(_table(writer, is_ruled=is_ruled))
    blocks += [Paragraph(writer.paragraph(3)) for _ in range(2)]
    return SourceDocument(name, name, tuple(blocks))


def small_table(writer: Writer) -> Table:
    """Returns a table of few columns and rows, which fits into a column of a page."""
    columns = list(_columns(writer, writer.between(3, 4)))
    rows = tuple(_row(writer, columns) for _ in range(writer.between(3, 7)))
    return Table((tuple(Cell(column.name) for column in columns),), rows, _numeric(columns))


def _table(writer: Writer, *, is_ruled: bool) -> Table:
    columns = list(_columns(writer, writer.between(2, 7)))
    header: tuple[tuple[Cell, ...], ...] = (tuple(Cell(column.name) for column in columns),)
    if writer.happens(0.15):
        columns = columns[:1]
        header = _grouped_header(writer, columns)
    elif writer.happens(0.15):
        columns = [*columns, _Column(_REMARK, ColumnKind.REMARK)]
        header = (tuple(Cell(column.name) for column in columns),)
    count = writer.between(*(_LONG_ROWS if writer.happens(0.25) else _SHORT_ROWS))
    rows = [_row(writer, columns) for _ in range(count)]
    if is_ruled and writer.happens(0.2):
        rows = list(_with_spans(writer, rows))
    return Table(header, tuple(rows), _numeric(columns))


def _grouped_header(writer: Writer, columns: list[_Column]) -> tuple[tuple[Cell, ...], ...]:
    """Returns a header of two rows, and appends its columns to `columns`, which has the first."""
    groups = writer.some(_GROUP_NAMES, writer.between(2, 3))
    names = writer.some(_NUMBER_NAMES, 2)
    columns += [_Column(f"{group} {name}", ColumnKind.NUMBER) for group in groups for name in names]
    upper = [Cell(columns[0].name, rows=2), *(Cell(group, columns=2) for group in groups)]
    lower = [Cell(name) for _ in groups for name in names]
    return tuple(upper), tuple(lower)


def _columns(writer: Writer, count: int) -> Iterator[_Column]:
    """Yields columns with different names. The first column contains texts."""
    yield _Column(writer.pick(_FIRST_NAMES), ColumnKind.TEXT)
    numbers = writer.between(0, count - 1)
    texts = count - 1 - numbers
    if texts and writer.happens(0.2):
        yield _Column("Optional", ColumnKind.MARK)
        texts -= 1
    for name in writer.some(_TEXT_NAMES, texts):
        yield _Column(name, ColumnKind.TEXT)
    if writer.happens(0.25):
        first = writer.between(2008, 2020)
        names: Sequence[str] = [str(first + index) for index in range(numbers)]
    else:
        names = writer.some(_NUMBER_NAMES, numbers)
    for name in names:
        yield _Column(name, ColumnKind.NUMBER)


def _numeric(columns: Sequence[_Column]) -> frozenset[int]:
    return frozenset(
        index for index, column in enumerate(columns) if column.kind is ColumnKind.NUMBER
    )


def _row(writer: Writer, columns: Sequence[_Column]) -> tuple[Cell, ...]:
    first = writer.code() if columns[0].name == "Code" else writer.phrase().capitalize()
    return Cell(first), *(Cell(_value(writer, column.kind)) for column in columns[1:])


def _value(writer: Writer, kind: ColumnKind) -> str:
    if kind is ColumnKind.MARK:
        return "x" if writer.happens(0.6) else ""
    if writer.happens(0.06):
        return writer.pick(_MISSING)
    match kind:
        case ColumnKind.NUMBER:
            return f"-{writer.number()}" if writer.happens(0.08) else writer.number()
        case ColumnKind.REMARK:
            return writer.sentence()
        case _:
            return writer.place() if writer.happens(0.4) else writer.phrase()


def _with_spans(writer: Writer, rows: Sequence[tuple[Cell, ...]]) -> Iterator[tuple[Cell, ...]]:
    """Yields the rows. The first cells of some rows span the next one or two rows."""
    at = 0
    while at < len(rows):
        span = min(len(rows) - at, writer.between(1, 3))
        first, *others = rows[at]
        yield first._replace(rows=span), *others
        for row in rows[at + 1 : at + span]:
            yield row[1:]
        at += span
