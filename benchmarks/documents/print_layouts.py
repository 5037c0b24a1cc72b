"""The layouts in which documents are printed. A layout is chosen by the name of its document."""

from dataclasses import dataclass
from enum import StrEnum

from benchmarks.documents.sentences import Writer
from benchmarks.documents.source_document import Code, SourceDocument, Table, block_text


class Outline(StrEnum):
    """How a PDF says where its sections begin.

    BOOKMARKS: by its outline, the bookmarks. TAGS: by the headings in its structure tree. NONE: not
    at all, so that only the look of the headings says it.
    """

    BOOKMARKS = "bookmarks"
    TAGS = "tags"
    NONE = "none"


class HeadingStyle(StrEnum):
    """How headings differ from the text.

    SIZED: by size and weight. LIGHT: by size alone. NUMBERED: by numbers and weight, and the
    deepest headings have the size of the text. SANS: by size, weight and font.
    """

    SIZED = "sized"
    LIGHT = "light"
    NUMBERED = "numbered"
    SANS = "sans"


class HeadStyle(StrEnum):
    """What stands at the upper and lower edges of the pages.

    TITLE: the title of the document, and the page number below. SECTION: the title of the section
    and the page number. MIRRORED: title and page number, at different sides of odd and even pages.
    COUNTED: only `Page 3 of 12` below.
    """

    NONE = "none"
    TITLE = "title"
    SECTION = "section"
    MIRRORED = "mirrored"
    COUNTED = "counted"


class TableStyle(StrEnum):
    """The lines of tables.

    GRID: around every cell. SHADED: around every cell, and the names have a grey ground. RULES:
    three horizontal lines, as in books. BARE: no lines at all.
    """

    GRID = "grid"
    SHADED = "shaded"
    RULES = "rules"
    BARE = "bare"


RULED = (TableStyle.GRID, TableStyle.SHADED)
ALIGNED = (TableStyle.RULES, TableStyle.BARE)


@dataclass(frozen=True, slots=True)
class PrintLayout:
    """A layout. `family` is one of the printer's fonts, and `paper` a size of paper of CSS."""

    paper: str
    columns: int
    family: str
    size_pt: float
    headings: HeadingStyle
    heads: HeadStyle
    tables: TableStyle
    has_contents: bool
    is_justified: bool
    is_hyphenated: bool
    is_indented: bool

    def __str__(self) -> str:
        columns = "two columns" if self.columns == 2 else "one column"
        contents = ", contents page" if self.has_contents else ""
        hyphens = ", hyphens" if self.is_hyphenated else ""
        return (
            f"{columns}, {self.headings} headings, {self.heads} heads, {self.tables} tables"
            f"{contents}{hyphens}, {self.family} {self.size_pt:g} pt"
        )


# Half of a page has space for these.
_NARROW_CHARS = 40
_NARROW_TABLE_COLUMNS = 4
_COLUMN_PT = 224
# The text of tables has 0.9 of the size of other text. Its characters are about so wide, relative
# to the size of other text, and the cells have so much space at their sides.
_CHAR_WIDTH = {"STIXGeneral": 0.45, "DejaVu Serif": 0.54, "DejaVu Sans": 0.54}
_CELL_PADDING_PT = 6.8

FAMILIES = ("STIXGeneral", "DejaVu Serif", "DejaVu Sans")


def layout_of(document: SourceDocument) -> PrintLayout:
    """Returns the layout that belongs to the name of a document.

    Documents with long words, long lines of code or wide tables have one column, because these
    would not fit into half of a page. A table that does not fit is printed over the next column.
    """
    writer = Writer.named(f"layout of {document.name}")
    columns = 2 if writer.happens(0.5) and not _is_wide(document) else 1
    family = writer.pick(FAMILIES)
    paper = writer.pick(("A4", "A4", "Letter"))
    size_pt = writer.pick((9.0, 10.0) if columns == 2 else (9.5, 10.0, 11.0))
    if any(_table_width_pt(table, family, size_pt) > _COLUMN_PT for table in document.tables):
        columns = 1
    return PrintLayout(
        paper=paper,
        columns=columns,
        family=family,
        size_pt=size_pt,
        headings=writer.pick(tuple(HeadingStyle)),
        heads=writer.pick(tuple(HeadStyle)),
        tables=writer.pick((*RULED, *ALIGNED)),
        has_contents=writer.happens(0.5) and len(document.headings) > 5,
        is_justified=writer.happens(0.6),
        is_hyphenated=writer.happens(0.5),
        is_indented=writer.happens(0.4),
    )


def _is_wide(document: SourceDocument) -> bool:
    texts = [(block_text(block), isinstance(block, Code)) for block in document.blocks]
    # The lines of code and the words of other text cannot be broken.
    parts = (part for text, is_code in texts for part in text.split("\n" if is_code else None))
    return max(map(len, parts), default=0) > _NARROW_CHARS or any(
        len(table.names) > _NARROW_TABLE_COLUMNS for table in document.tables
    )


def _table_width_pt(table: Table, family: str, size_pt: float) -> float:
    """Returns about how wide a table is at least: the longest word of a cell is not broken."""
    longest = [
        max((len(word) for text in column for word in text.split()), default=0)
        for column in zip(table.names, *table.cells, strict=True)
    ]
    return sum(longest) * _CHAR_WIDTH[family] * size_pt + len(longest) * _CELL_PADDING_PT


def table_layout_of(document: SourceDocument, *, is_ruled: bool) -> PrintLayout:
    """Returns the layout for a document of `generated_tables`."""
    writer = Writer.named(f"layout of {document.name}")
    return PrintLayout(
        paper="A4",
        columns=1,
        family=writer.pick(FAMILIES),
        size_pt=writer.pick((9.0, 10.0)),
        headings=HeadingStyle.SIZED,
        heads=writer.pick(tuple(HeadStyle)),
        tables=writer.pick(RULED if is_ruled else ALIGNED),
        has_contents=False,
        is_justified=writer.happens(0.5),
        is_hyphenated=False,
        is_indented=False,
    )
