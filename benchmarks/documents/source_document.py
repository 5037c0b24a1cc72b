"""A document before it is printed: its blocks, and what a reader must find in a print of it.

A document is a sequence of blocks: headings, paragraphs, items of lists, code and tables. A block's
text is a sequence of runs, each with one style. All values are plain and independent of any layout.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple


class Style(StrEnum):
    """The style of a run of text.

    RAISED: a superscript, for example an exponent. NOTE: the mark of a footnote; the text of the
    run is the number of the footnote, from 1.
    """

    PLAIN = "plain"
    BOLD = "bold"
    ITALIC = "italic"
    CODE = "code"
    RAISED = "raised"
    NOTE = "note"


class Run(NamedTuple):
    """A part of a block's text with one style."""

    text: str
    style: Style = Style.PLAIN


Text = tuple[Run, ...]


def plain(text: str) -> Text:
    """Returns a text of one run without a style."""
    return (Run(text),)


def readable(text: Sequence[Run]) -> str:
    """Returns a text as a reader writes it: `10^6`, and marks of footnotes apart from words."""
    return "".join(_SIGNS.get(run.style, "{}").format(run.text) for run in text)


_SIGNS = {Style.RAISED: "^{}", Style.NOTE: " [{}] "}


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading. `depth` counts from 1."""

    depth: int
    text: Text


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph of text. A line end in a run is a forced line end."""

    text: Text
    is_quote: bool = False


@dataclass(frozen=True, slots=True)
class Item:
    """An item of a list. `number` is 0 in a list with bullets. `depth` counts from 1."""

    text: Text
    depth: int = 1
    number: int = 0


@dataclass(frozen=True, slots=True)
class Code:
    """Lines of code."""

    text: str


class Cell(NamedTuple):
    """A cell of a table, which may span several columns or rows."""

    text: str
    columns: int = 1
    rows: int = 1


@dataclass(frozen=True, slots=True)
class Table:
    """A table. A row does not contain the cells that a cell of an earlier row covers.

    `header` are the rows of the header, one or two. `numeric` are the indexes of the columns of
    numbers, which are printed at the right edges of their columns.
    """

    header: tuple[tuple[Cell, ...], ...]
    rows: tuple[tuple[Cell, ...], ...]
    numeric: frozenset[int] = frozenset()

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each column. With two rows of headers, the upper name comes first."""
        columns = zip(*_grid(self.header, repeats_columns=True), strict=True)
        return tuple(" ".join(dict.fromkeys(filter(None, column))) for column in columns)

    @property
    def cells(self) -> tuple[tuple[str, ...], ...]:
        """The text of each cell of each row. A cell that spans rows is in each of these rows.

        A cell that spans columns is only in the first of them.
        """
        return tuple(map(tuple, _grid(self.rows, repeats_columns=False)))


Block = Heading | Paragraph | Item | Code | Table


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """A document: its blocks, and its footnotes by their number, from 1.

    `language` is the language of the text as a tag of BCP 47, for example `en`.
    """

    name: str
    title: str
    blocks: tuple[Block, ...]
    notes: tuple[Text, ...] = ()
    language: str = "en"

    @property
    def headings(self) -> tuple[Heading, ...]:
        """The headings, in order."""
        return tuple(block for block in self.blocks if isinstance(block, Heading))

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables, in order."""
        return tuple(block for block in self.blocks if isinstance(block, Table))


def block_text(block: Block) -> str:
    """Returns the text of a block as a reader writes it. The cells of a table are in lines."""
    match block:
        case Code():
            return block.text
        case Table():
            rows = (*block.header, *block.rows)
            return "\n".join("\t".join(cell.text for cell in row) for row in rows)
        case Item() if block.number:
            return f"{block.number}. {readable(block.text)}"
        case _:
            return readable(block.text)


def numbered(document: SourceDocument) -> SourceDocument:
    """Returns the document with a number before each heading except those of depth 1: `2.1 Limits`.

    The number is part of the heading's text, as in a print.
    """
    return replace(document, blocks=tuple(_numbered(document.blocks)))


def _numbered(blocks: Sequence[Block]) -> Iterator[Block]:
    counts: list[int] = []
    for block in blocks:
        if not isinstance(block, Heading) or block.depth == 1:
            yield block
            continue
        level = block.depth - 1
        counts = [*counts[:level], *[0] * (level - len(counts))]
        counts[-1] += 1
        number = ".".join(str(max(1, count)) for count in counts)
        yield replace(block, text=(Run(f"{number} "), *block.text))


def _grid(rows: Sequence[Sequence[Cell]], *, repeats_columns: bool) -> list[list[str]]:
    """Returns the texts of rows of cells by row and column, with the spans of cells resolved."""
    covered: dict[tuple[int, int], str] = {}
    grid = []
    for number, row in enumerate(rows):
        texts: list[str] = []
        for cell in row:
            while (number, len(texts)) in covered:
                texts.append(covered[number, len(texts)])
            for column in range(cell.columns):
                text = cell.text if repeats_columns or column == 0 else ""
                for below in range(1, cell.rows):
                    covered[number + below, len(texts)] = text
                texts.append(text)
        while (number, len(texts)) in covered:
            texts.append(covered[number, len(texts)])
        grid.append(texts)
    return grid
