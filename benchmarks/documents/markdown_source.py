"""Reads texts as documents to print: Markdown by its blocks, plain text by its blank lines.

Pictures and HTML are left out, because a print would show them differently or not at all.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from markdown_it import MarkdownIt
from markdown_it.token import Token

from benchmarks.documents.source_document import (
    Block,
    Cell,
    Code,
    Heading,
    Item,
    Paragraph,
    Run,
    SourceDocument,
    Style,
    Table,
    Text,
    plain,
    readable,
)

_PARSER = MarkdownIt("commonmark").enable("table")
_STYLES = {"strong_open": Style.BOLD, "em_open": Style.ITALIC}
_STYLE_ENDS = ("strong_close", "em_close")
_BREAKS = {"softbreak": " ", "hardbreak": "\n"}
_NUMERIC = re.compile(r"[-+<>=~±\s]*[$€£]?[\d.,]+(?:\s?[%x]|\s?[a-zA-Z]{1,3})?")
_BLANK_LINES = re.compile(r"\n[^\S\n]*\n\s*")


def markdown_document(
    name: str, text: str, title: str = "", language: str = "en"
) -> SourceDocument:
    """Returns the document that a Markdown text describes.

    Without a `title`, the first heading of depth 1 is the title.
    """
    reader = _BlockReader()
    for token in _PARSER.parse(text):
        reader.read(token)
    blocks = tuple(reader.blocks)
    headings = (block for block in blocks if isinstance(block, Heading))
    first = next((readable(heading.text) for heading in headings if heading.depth == 1), name)
    return SourceDocument(name, title or first, blocks, language=language)


def plain_document(name: str, text: str, title: str = "", language: str = "en") -> SourceDocument:
    """Returns the document of a plain text, whose paragraphs are separated by blank lines."""
    paragraphs = (part.strip() for part in _BLANK_LINES.split(text))
    blocks = tuple(Paragraph(plain(part)) for part in paragraphs if part)
    return SourceDocument(name, title or name, blocks, language=language)


@dataclass(slots=True)
class _BlockReader:
    """Turns the tokens of a Markdown text into blocks."""

    blocks: list[Block] = field(default_factory=list)
    # For each list around the current token, the number of its next item; 0 with bullets.
    _next_numbers: list[int] = field(default_factory=list)
    # The number of the item whose first paragraph follows; None outside of the start of an item.
    _item_number: int | None = None
    _quotes: int = 0
    _heading_depth: int = 0
    _rows: list[list[str]] = field(default_factory=list)
    _header_rows: int = 0
    _is_in_table: bool = False

    def read(self, token: Token) -> None:
        """Reads the next token."""
        match token.type:
            case "inline":
                self._read_text(_runs(token.children or ()))
            case "fence" | "code_block":
                self.blocks.append(Code(token.content.rstrip("\n")))
            case "heading_open":
                self._heading_depth = int(token.tag[1])
            case "heading_close":
                self._heading_depth = 0
            case "blockquote_open" | "blockquote_close":
                self._quotes += token.nesting
            case _:
                self._read_list(token)
                self._read_table(token.type)

    def _read_list(self, token: Token) -> None:
        match token.type:
            case "bullet_list_open":
                self._next_numbers.append(0)
            case "ordered_list_open":
                self._next_numbers.append(int(token.attrs.get("start", 1)))
            case "bullet_list_close" | "ordered_list_close":
                self._next_numbers.pop()
            case "list_item_open":
                self._item_number = self._next_numbers[-1]
                self._next_numbers[-1] += bool(self._item_number)
            case "list_item_close":
                self._item_number = None

    def _read_table(self, kind: str) -> None:
        match kind:
            case "table_open":
                self._rows, self._header_rows, self._is_in_table = [], 0, True
            case "tr_open":
                self._rows.append([])
            case "thead_close":
                self._header_rows = len(self._rows)
            case "table_close":
                self._is_in_table = False
                self.blocks.append(_table(self._rows, self._header_rows))

    def _read_text(self, text: Text) -> None:
        if self._is_in_table:
            self._rows[-1].append(readable(text).strip())
        elif not readable(text).strip():
            return
        elif self._heading_depth:
            self.blocks.append(Heading(self._heading_depth, text))
        elif self._item_number is not None:
            self.blocks.append(Item(text, len(self._next_numbers), self._item_number))
            self._item_number = None
        else:
            self.blocks.append(Paragraph(text, is_quote=bool(self._quotes or self._next_numbers)))


def _runs(tokens: Sequence[Token]) -> Text:
    """Returns the runs of inline tokens. Links become their text."""
    return tuple(_merged(_styled(tokens)))


def _styled(tokens: Sequence[Token]) -> Iterator[Run]:
    styles: list[Style] = []
    for token in tokens:
        if token.type in _STYLES:
            styles.append(_STYLES[token.type])
        elif token.type in _STYLE_ENDS:
            styles.pop()
        elif token.type == "code_inline":
            yield Run(token.content, Style.CODE)
        elif token.type in _BREAKS or token.type == "text":
            text = _BREAKS.get(token.type, token.content)
            yield Run(text, styles[-1] if styles else Style.PLAIN)


def _merged(runs: Iterator[Run]) -> Iterator[Run]:
    """Yields the runs; consecutive runs of the same style become one."""
    last: Run | None = None
    for run in runs:
        if last is not None and last.style == run.style:
            last = Run(last.text + run.text, run.style)
            continue
        if last is not None and last.text:
            yield last
        last = run
    if last is not None and last.text:
        yield last


def _table(rows: Sequence[Sequence[str]], header_rows: int) -> Table:
    header, body = rows[:header_rows], rows[header_rows:]
    width = len(header[0])
    numeric = frozenset(
        column
        for column in range(width)
        if body and all(_NUMERIC.fullmatch(row[column]) for row in body)
    )
    return Table(_cells(header), _cells(body), numeric)


def _cells(rows: Sequence[Sequence[str]]) -> tuple[tuple[Cell, ...], ...]:
    return tuple(tuple(map(Cell, row)) for row in rows)
