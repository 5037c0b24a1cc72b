"""The tables that the layout finds, as rows of cells."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from indexer_svc.parsers.pdf.layout.lines import TextLine, rows_of
from indexer_svc.parsers.pdf.layout.paragraphs import joined_lines
from indexer_svc.parsers.pdf.layout.words import Word


@dataclass(slots=True)
class PdfTable:
    """A table. All rows have the same number of cells.

    `header_rows` is the number of rows at the top that name the columns, or None if it is not
    known. `columns` are the x of the edges between and around the columns.
    """

    rows: list[list[str]]
    header_rows: int | None
    left: float
    top: float
    right: float
    bottom: float
    columns: Sequence[float] = field(default_factory=tuple)


def cell_text(words: Sequence[Word]) -> str:
    """Returns the text of the words of one cell, which may have several lines."""
    if not words:
        return ""
    if len(words) == 1:
        return words[0].text
    return joined_lines([TextLine(row.words) for row in rows_of(words)])
