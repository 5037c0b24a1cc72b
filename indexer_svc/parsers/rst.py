"""Parses reStructuredText: sections, lists, tables, code and notes become Markdown.

docutils reads the text (`rst_syntax`), and the nodes of its document tree become blocks. What a
reader of the printed text sees is kept; comments, targets, settings and lists of other pages are
left out. No function here recurses over the depth of the tree. docutils itself does, and takes 5 s
for each MB. A text that is too long or too deeply nested for it is kept as it is written, with the
sections of `rst_outline`.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from docutils import nodes

from hrag.values.errors import InvalidArgument
from indexer_svc.parsers.numerals import numeral
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.raised_text import needs_space, subscript, superscript
from indexer_svc.parsers.rst_outline import rst_outline
from indexer_svc.parsers.rst_syntax import document_of
from indexer_svc.parsers.table_grid import TableSize, add_spanning_cells
from indexer_svc.parsers.text_lines import filled_lines, utf8_text
from indexer_svc.parsers.text_writer import TextWriter
from indexer_svc.titles import document_title

_MAX_DOCUTILS_BYTES = 2 << 20
# docutils searches for the end of each inline markup to the end of its paragraph. It searches this
# many characters in about 3 s; a text that needs more is read without it.
_MAX_SEARCHED_CHARS = 300_000_000
_INLINE_START = re.compile(r"(?<!\S)[*`|]\S")
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")
_BULLET = "-"
_NOT_TEXT = (
    nodes.comment,
    nodes.substitution_definition,
    nodes.pending,
    nodes.raw,
    nodes.decoration,
    nodes.meta,
    # The parents of the following nodes write their text.
    nodes.title,
    nodes.label,
    nodes.classifier,
    nodes.field_name,
    nodes.option_group,
)
# A message of this level comes in place of what docutils could not read, and contains its source.
_ERROR_LEVEL = 3
_LISTS = (nodes.bullet_list, nodes.enumerated_list)
_CODE = (nodes.literal_block, nodes.doctest_block)
_KINDS = {
    "arabic": "1",
    "loweralpha": "a",
    "upperalpha": "A",
    "lowerroman": "i",
    "upperroman": "I",
}
_MIN_DESCRIPTION_CHARS = 10


def parse_rst(content: bytes, max_text_bytes: int) -> ParsedFile:
    """Returns the text as Markdown, with its sections and its title.

    The title is the first section's title. Raises TooLarge.
    """
    text = utf8_text(content) if len(content) <= _MAX_DOCUTILS_BYTES else ""
    if text and _searched_chars(text) <= _MAX_SEARCHED_CHARS:
        try:
            document = document_of(text)
            writer = TextWriter(max_text_bytes)
            _TreeReader(writer).read(document)
            title = document_title(writer.headings[0].title) if writer.headings else ""
            return writer.parsed(title)
        except (InvalidArgument, MemoryError):
            raise
        except Exception:  # docutils may raise any error for an odd text.
            return rst_outline(content)
    return rst_outline(content)


def _searched_chars(text: str) -> int:
    """Returns an upper bound of the characters in which docutils searches for ends of markup."""
    paragraphs = _BLANK_LINE.split(text)
    return sum(len(part) * len(_INLINE_START.findall(part)) for part in paragraphs)


@dataclass(slots=True)
class _ListItems:
    """A list that has begun: how its items are numbered, and the number of the next item."""

    kind: str = ""
    prefix: str = ""
    suffix: str = ""
    following: int = 1

    def next_marker(self) -> str:
        """Returns the marker of the next item, for example `-`, `3.` or `(iv)`."""
        if not self.kind:
            return _BULLET
        marker = f"{self.prefix}{numeral(self.following, self.kind)}{self.suffix}"
        self.following += 1
        return marker


class _TreeReader:
    """Visits the nodes of a document tree and writes each block."""

    def __init__(self, writer: TextWriter) -> None:
        self._writer = writer
        self._depth = 0
        self._lists: list[_ListItems] = []
        self._marker = ""
        # Lines that the next paragraph continues: terms, or the label of a note.
        self._before = ""
        self._enter: Mapping[type[nodes.Node], Callable[[nodes.Node], bool]] = {
            nodes.section: self._enter_section,
            nodes.paragraph: self._write_paragraph,
            nodes.term: self._enter_term,
            nodes.rubric: self._write_paragraph,
            nodes.attribution: self._write_paragraph,
            nodes.caption: self._write_paragraph,
            nodes.line_block: self._write_line_block,
            nodes.literal_block: self._write_code,
            nodes.doctest_block: self._write_code,
            nodes.math_block: self._write_formula,
            nodes.table: self._write_table,
            nodes.image: self._write_image,
            nodes.field: self._enter_field,
            nodes.option_list_item: self._enter_option,
            nodes.list_item: self._enter_item,
            nodes.definition: self._enter_definition,
            nodes.footnote: self._enter_note,
            nodes.citation: self._enter_note,
            nodes.system_message: self._write_unread,
        }

    def read(self, document: nodes.document) -> None:
        """Writes the blocks of a document."""
        pending: list[tuple[nodes.Node, bool]] = [(document, False)]
        while pending:
            node, is_end = pending.pop()
            if is_end:
                self._leave(node)
            elif not isinstance(node, _NOT_TEXT) and self._enter_node(node):
                pending.append((node, True))
                pending += ((child, False) for child in reversed(node.children))

    def _enter_node(self, node: nodes.Node) -> bool:
        """Begins or writes a node; returns True if its child nodes must be visited."""
        enter = self._enter.get(type(node))
        if enter is not None:
            return enter(node)
        if isinstance(node, _LISTS):
            self._begin_list(node)
        elif isinstance(node, nodes.Admonition | nodes.topic | nodes.sidebar):
            self._write_label(node)
        elif isinstance(node, nodes.Inline | nodes.Text | nodes.TextElement):
            self._paragraph(_text(node))
            return False
        return True

    def _leave(self, node: nodes.Node) -> None:
        if isinstance(node, nodes.section):
            self._depth -= 1
        elif isinstance(node, _LISTS):
            self._lists.pop()
        elif isinstance(node, nodes.list_item):
            self._marker = ""
        elif isinstance(
            node,
            nodes.definition_list_item | nodes.field | nodes.option_list_item | nodes.footnote,
        ):
            self._flush()

    def _paragraph(self, text: str) -> None:
        text = "\n".join(filled_lines(text))
        if not text:
            return
        text, self._before = self._before + text, ""
        if self._marker:
            self._writer.item(text, max(1, len(self._lists)), self._marker)
            self._marker = ""
        else:
            self._writer.paragraph(text)

    def _flush(self) -> None:
        """Writes terms that no paragraph follows."""
        text, self._before = self._before, ""
        self._paragraph(text.removesuffix("\n: ").removesuffix(": "))

    def _enter_section(self, section: nodes.Node) -> bool:
        self._flush()
        self._depth += 1
        for title in section.children:
            if isinstance(title, nodes.title):
                self._writer.heading(self._depth, _text(title))
        return True

    def _write_paragraph(self, node: nodes.Node) -> bool:
        self._paragraph(_text(node))
        return False

    def _write_line_block(self, node: nodes.Node) -> bool:
        lines = (_text(line) for line in node.findall(nodes.line))
        self._paragraph("\n".join(lines))
        return False

    def _write_code(self, node: nodes.Node) -> bool:
        self._flush()
        self._writer.code(node.astext())
        return False

    def _write_unread(self, node: nodes.Node) -> bool:
        """Writes the source of a block that docutils could not read, for example a bad table."""
        if node.get("level", 0) >= _ERROR_LEVEL:
            for source in node.children:
                if isinstance(source, nodes.literal_block):
                    self._write_code(source)
        return False

    def _write_formula(self, node: nodes.Node) -> bool:
        self._paragraph(_formula(node))
        return False

    def _write_image(self, node: nodes.Node) -> bool:
        alt = _one_line(node.get("alt", ""))
        if len(alt) >= _MIN_DESCRIPTION_CHARS:
            self._paragraph(f"![{alt}]")
        return False

    def _write_label(self, node: nodes.Node) -> None:
        """Writes the title of an admonition, or begins its first paragraph with its kind."""
        self._flush()
        titles = [child for child in node.children if isinstance(child, nodes.title)]
        if titles:
            self._paragraph(_text(titles[0]))
        elif isinstance(node, nodes.Admonition):
            self._before = f"{type(node).__name__.capitalize()}: "

    def _begin_list(self, node: nodes.Node) -> None:
        self._flush()
        if isinstance(node, nodes.bullet_list):
            self._lists.append(_ListItems())
            return
        kind = _KINDS.get(node.get("enumtype", ""), "1")
        suffix = node.get("suffix", ".")
        self._lists.append(_ListItems(kind, node.get("prefix", ""), suffix, node.get("start", 1)))

    def _enter_item(self, _node: nodes.Node) -> bool:
        self._marker = self._lists[-1].next_marker() if self._lists else _BULLET
        return True

    def _enter_term(self, node: nodes.Node) -> bool:
        classifiers = (
            _text(child) for child in node.parent.children if isinstance(child, nodes.classifier)
        )
        term = " : ".join(filter(None, (_text(node), *classifiers)))
        self._before += f"\n{term}" if self._before else term
        return False

    def _enter_definition(self, _node: nodes.Node) -> bool:
        self._before += "\n: " if self._before else ""
        return True

    def _enter_field(self, node: nodes.Node) -> bool:
        self._flush()
        name, body = node.children[0], node.children[1:]
        if not any(child.astext().strip() for child in body):
            return False  # A field without a value is a setting, for example `:orphan:`.
        self._before = f"{_text(name)}: "
        return True

    def _enter_option(self, node: nodes.Node) -> bool:
        self._flush()
        options = node.children[0].children
        self._before = ", ".join(_one_line(option.astext()) for option in options) + "\n: "
        return True

    def _enter_note(self, node: nodes.Node) -> bool:
        self._flush()
        label = next(
            (_text(child) for child in node.children if isinstance(child, nodes.label)), ""
        )
        self._before = f"[{label}] "
        return True

    def _write_table(self, table: nodes.Node) -> bool:
        self._flush()
        for title in table.children:
            if isinstance(title, nodes.title):
                self._paragraph(_text(title))
        rows = list(_rows(table, self._writer.table_size))
        header_rows = sum(len(head.children) for head in table.findall(nodes.thead))
        has_row_headers = any(column.get("stub") for column in table.findall(nodes.colspec))
        # A table without a marked header may have one that its author has not marked.
        if_unmarked = 0 if has_row_headers else None
        self._writer.table(
            rows, header_rows=header_rows or if_unmarked, has_row_headers=has_row_headers
        )
        return False


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _formula(node: nodes.Node) -> str:
    tex = _one_line(node.astext())
    return f"${tex}$" if tex else ""


def _text(root: nodes.Node) -> str:
    """Returns the text of inline nodes, or of the blocks of a cell, one block on each line."""
    parts: list[str] = []
    # The text before the last superscript or subscript, and what was written for it.
    before = script = ""
    pending = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, (*_NOT_TEXT, nodes.system_message)) and node is not root:
            continue
        write = _SCRIPTS.get(type(node))
        if write is not None:
            before = "".join(parts[-_LOOKED_AT_PARTS:])
            script = write(before, node)
            parts.append(script)
        elif isinstance(node, nodes.Text):
            text = node.astext().replace("\n", " ")
            if needs_space(before, script, text):
                parts.append(" ")
            before = script = ""
            parts.append(text)
        elif isinstance(node, nodes.math):
            parts.append(_formula(node))
        elif isinstance(node, nodes.image):
            parts.append(node.get("alt", ""))
        else:
            is_block = isinstance(node, nodes.Body | nodes.Part) and not isinstance(
                node, nodes.Inline
            )
            if is_block and parts:
                parts.append("\n")
            pending += reversed(node.children)
    return "".join(parts)


def _superscript(before: str, node: nodes.Node) -> str:
    return superscript(before, node.astext())


def _subscript(before: str, node: nodes.Node) -> str:
    return subscript(before, node.astext())


def _note_mark(before: str, node: nodes.Node) -> str:
    return superscript(before, node.astext(), is_note=True)


_LOOKED_AT_PARTS = 4
_SCRIPTS: Mapping[type[nodes.Node], Callable[[str, nodes.Node], str]] = {
    nodes.superscript: _superscript,
    nodes.subscript: _subscript,
    nodes.footnote_reference: _note_mark,
    nodes.citation_reference: _note_mark,
}


def _rows(table: nodes.Node, size: TableSize) -> Iterator[list[str]]:
    """Yields the cells of each row, and counts them in `size`, which may raise TooLarge.

    The text of a cell that spans several rows is repeated in each of these rows. The text of a cell
    that spans several columns is only in the first of these columns.
    """
    spanning: dict[int, tuple[int, str]] = {}
    for row in table.findall(nodes.row):
        cells: list[str] = []
        for entry in row.children:
            add_spanning_cells(cells, spanning)
            text = _text(entry)
            first = len(cells)
            cells += [text, *[""] * entry.get("morecols", 0)]
            if rows_below := entry.get("morerows", 0):
                spanning |= {at: (rows_below, cells[at]) for at in range(first, len(cells))}
        add_spanning_cells(cells, spanning)
        size.add(cells)
        yield cells
