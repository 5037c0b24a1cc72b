"""Parses Word documents: headings, paragraphs, lists, tables, text boxes and notes.

The parts of the package are read directly, because no known library reads what Word shows: the
numbers of lists and headings, the results of fields, superscripts, merged cells. The modules of
`word` have one idea each: styles, numbering, fields, notes, the text of a paragraph, the grid of a
table. This module visits the blocks of the document in order and writes them.

A note follows the block that refers to it first, so that both are in one section. A text box, a
chart or a diagram follows the paragraph in which it is anchored. Deleted and hidden text, comments,
pictures, headers, footers and documents that are embedded are left out. The result has no pages,
because a Word document has none before it is laid out. No function here recurses, so elements may
be nested to any depth.
"""

from dataclasses import dataclass, field, replace

from hrag.values.read_report import LeftOutKind
from indexer_svc.parsers.office import office_title, office_xml, related_part
from indexer_svc.parsers.office_graphics import GRAPHICS, OfficeGraphics
from indexer_svc.parsers.package import Element, Package, readable
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.placed_text import Piece, Placement, tidied_pieces
from indexer_svc.parsers.table_grid import CELL_SEPARATOR, ROW_SEPARATOR, cell_line
from indexer_svc.parsers.table_layout import TablePart, layout_tables
from indexer_svc.parsers.text_writer import TextWriter
from indexer_svc.parsers.word.fields import WordFields
from indexer_svc.parsers.word.list_numbers import ListLabel, WordListNumbers
from indexer_svc.parsers.word.names import (
    CELL,
    CONTENT_CONTROL,
    MATH_TEXT,
    PARAGRAPH,
    PARAGRAPH_PROPERTIES,
    ROW,
    TABLE,
    TEXT,
    WORD,
    number_of,
    shown_children,
    value_of,
)
from indexer_svc.parsers.word.notes import KINDS, WordNote, WordNotes
from indexer_svc.parsers.word.paragraph_text import (
    WordParagraphReader,
    WordText,
    is_counted_when_empty,
    mark_is_removed,
)
from indexer_svc.parsers.word.styles import WordStyles, heading_depth, list_reference
from indexer_svc.parsers.word.tables import read_grid
from indexer_svc.titles import metadata_title

_KIND = "a Word document (DOCX)"
# The possible names of the main file in the archive of a Word document. Word on the Web numbers the
# files, so it uses the second name.
_MAIN_PARTS = ("word/document.xml", "word/document2.xml")
_TABLE_PARTS = {
    TABLE: TablePart.TABLE,
    ROW: TablePart.ROW,
    CELL: TablePart.CELL,
    PARAGRAPH: TablePart.PARAGRAPH,
}
_CONTENTS_GALLERY = f"{WORD}sdtPr/{WORD}docPartObj"


def parse_docx(content: bytes, max_text_bytes: int) -> ParsedFile:
    """Returns the text of a document, its headings and its title.

    The title is the title in the document's properties. If there is no such title, it is the first
    paragraph in the style Title, or else the first heading of level 1. Raises UnreadableDocument or
    TooLarge.
    """
    with readable(_KIND):
        package = Package(content, _KIND, *_MAIN_PARTS)
        title = office_title(package)
        main = related_part(package, "", "officeDocument", _MAIN_PARTS[0])

        def part(kind: str) -> Element | None:
            name = related_part(package, main, kind, f"word/{kind}.xml")
            return office_xml(package, name) if name in package else None

        styles = WordStyles(part("styles"))
        numbering = WordListNumbers(part("numbering"), styles)
        note_parts = {kind: part(f"{kind}s") for kind in KINDS}
        notes = WordNotes(
            {kind: root for kind, root in note_parts.items() if root is not None},
            part("settings"),
        )
        writer = TextWriter(max_text_bytes)
        graphics = OfficeGraphics(package, main)
        body = _WordBody(styles, numbering, notes, graphics, writer)
        body.read(office_xml(package, main))
        return writer.parsed(title or body.title or writer.first_heading)


@dataclass(slots=True)
class _WordStory:
    """A text that Word lays out separately: the body, a note or a text box.

    `carried` are pieces of text that belong to the next paragraph. `carries_mark` is True if they
    are only the mark of a note.
    """

    fields: WordFields = field(default_factory=WordFields)
    carried: list[Piece] = field(default_factory=list)
    carries_mark: bool = False


@dataclass(frozen=True, slots=True)
class _WordBlock:
    """An element that is to be written. None means that the story ends.

    `table_hides` is True if the style of the table around it hides text.
    """

    element: Element | None
    story: _WordStory
    table_hides: bool = False


@dataclass(slots=True)
class _WordParagraph:
    """A paragraph with its label in a list. `depth` is the depth of a heading, or None."""

    text: str
    depth: int | None
    label: ListLabel | None
    content: WordText

    @property
    def line(self) -> str:
        """The text with its number. A bullet is left out."""
        is_numbered = self.label is not None and not self.label.is_bullet
        return f"{self.label.text} {self.text}" if self.label and is_numbered else self.text


class _WordBody:
    """Writes the blocks of a document. `title` is its first paragraph in the style Title."""

    def __init__(
        self,
        styles: WordStyles,
        numbering: WordListNumbers,
        notes: WordNotes,
        graphics: OfficeGraphics,
        writer: TextWriter,
    ) -> None:
        self.title = ""
        self._styles = styles
        self._numbering = numbering
        self._notes = notes
        self._graphics = graphics
        self._paragraphs = WordParagraphReader(styles, notes)
        self._writer = writer
        self._layout_tables: set[Element] = set()
        self._sections: list[Element] = []
        self._is_in_contents = False

    def read(self, root: Element) -> None:
        """Writes the document whose main part has the root element `root`."""
        self._sections = _sections(root)
        self._begin_section()
        self._layout_tables = layout_tables(root, self._part, shown_children, _count_chars)
        pending = _story_blocks(root, _WordStory())
        while pending:
            block = pending.pop()
            element = block.element
            if element is None:
                self._end_story(block.story)
            elif element.tag == PARAGRAPH:
                pending += self._write_paragraph(element, block)
            elif element.tag == TABLE and element not in self._layout_tables:
                pending += self._write_table(element, block)
            elif element.tag in GRAPHICS:
                self._graphics.write(element, self._writer)
            elif element.tag == CONTENT_CONTROL and _is_contents(element):
                self._leave_out_contents(" ".join(text.text or "" for text in element.iter(TEXT)))
            else:
                table_hides = block.table_hides
                if element.tag == TABLE:
                    table_hides = bool(self._styles.of(element).vanishes)
                children = list(shown_children(element))
                pending += [
                    _WordBlock(child, block.story, table_hides) for child in reversed(children)
                ]

    def _part(self, element: Element) -> TablePart | None:
        if element.tag == PARAGRAPH and self._depth(element) is not None:
            return TablePart.HEADING
        return _TABLE_PARTS.get(element.tag)

    def _begin_section(self) -> None:
        if self._sections:
            self._notes.begin_section(self._sections.pop())

    def _end_story(self, story: _WordStory) -> None:
        if not story.carries_mark:
            self._writer.paragraph(tidied_pieces(story.carried))
        story.carried, story.carries_mark = [], False

    def _write_paragraph(self, paragraph: Element, block: _WordBlock) -> list[_WordBlock]:
        """Writes a paragraph; returns the blocks that follow it, last block first."""
        read = self._read(paragraph, block.story, table_hides=block.table_hides)
        if not read.text.strip():
            pass
        elif read.depth is not None:
            self._writer.heading(read.depth, read.line)
        elif read.label is not None:
            self._writer.item(read.text, read.label.level + 1, read.label.text)
        else:
            self._writer.paragraph(read.text)
        properties = paragraph.find(PARAGRAPH_PROPERTIES)
        if properties is not None and properties.find(f"{WORD}sectPr") is not None:
            self._begin_section()
        boxes = [_story_blocks(box, _WordStory()) for box in read.content.boxes]
        return self._following(read.content.notes, boxes)

    def _following(self, notes: list[WordNote], boxes: list[list[_WordBlock]]) -> list[_WordBlock]:
        """Returns the blocks of notes and text boxes, last block first."""
        stories = [_story_blocks(note.content, _note_story(note)) for note in notes]
        return [block for story in reversed([*stories, *boxes]) for block in story]

    def _read(self, paragraph: Element, story: _WordStory, *, table_hides: bool) -> _WordParagraph:
        """Reads a paragraph and counts it in its list. Its text may be empty."""
        depth = self._depth(paragraph)
        if depth is not None:
            story.fields.end_contents()
        content = self._paragraphs.read(paragraph, story.fields, table_hides=table_hides)
        style = self._styles.of(paragraph)
        text = content.text
        if style.is_contents or (content.contents and not text):
            self._leave_out_contents("".join(content.contents) or text)
            return _WordParagraph("", None, None, content)
        if text:
            self._is_in_contents = False
        if mark_is_removed(paragraph):
            story.carried += content.pieces
            return _WordParagraph("", None, None, content)
        label = None
        if text or is_counted_when_empty(paragraph):
            label = self._count(paragraph)
        if text:
            if style.is_title and not self.title:
                self.title = metadata_title(content.title)
            if story.carried:
                content.pieces[:0] = story.carried
                text = content.text
                story.carried, story.carries_mark = [], False
            text = text if depth is None else content.title
        return _WordParagraph(text, depth, label, content)

    def _depth(self, paragraph: Element) -> int | None:
        """Returns the depth of a heading, from 1; None for any other paragraph."""
        level = number_of(paragraph.find(PARAGRAPH_PROPERTIES), f"{WORD}outlineLvl")
        style = self._styles.of(paragraph)
        return style.heading_depth if level is None else heading_depth(level)

    def _count(self, paragraph: Element) -> ListLabel | None:
        """Counts a paragraph in its list; returns None if it is in no list."""
        style = self._styles.of(paragraph).list
        reference = list_reference(paragraph.find(PARAGRAPH_PROPERTIES), "")
        if reference is None:
            reference = style
        elif not reference.num_id:
            reference = style and replace(style, level=reference.level)
        elif style is not None and reference.level is None:
            reference = replace(reference, style_id=style.style_id)
        return None if reference is None else self._numbering.count(reference)

    def _leave_out_contents(self, text: str) -> None:
        """Reports a table of contents when its first paragraph is read."""
        if not self._is_in_contents:
            self._writer.leave_out(LeftOutKind.CONTENTS_PAGE, text)
        self._is_in_contents = True

    def _write_table(self, table: Element, block: _WordBlock) -> list[_WordBlock]:
        """Writes a table; returns the blocks of the notes to which it refers."""
        self._end_story(block.story)
        table_hides = bool(self._styles.of(table).vanishes)
        notes: list[WordNote] = []

        def text_of(cell: Element) -> str:
            return self._cell_text(cell, block.story, notes, table_hides=table_hides)

        grid = read_grid(table, text_of, self._writer.table_size)
        self._writer.table(grid.rows, header_rows=grid.header_rows)
        return self._following(notes, [])

    def _cell_text(
        self, cell: Element, story: _WordStory, notes: list[WordNote], *, table_hides: bool
    ) -> str:
        """Returns the text of a cell, with the texts of tables and text boxes inside it."""
        parts: list[str] = []
        # In this list, a text stands for what separates the cells and rows of an inner table. The
        # other value is True if the style of the table around the element hides text.
        pending: list[tuple[Element | str, bool]] = [(cell, table_hides)]
        while pending:
            element, is_hidden = pending.pop()
            if isinstance(element, str):
                parts.append(element)
            elif element.tag in GRAPHICS:
                parts.append(f"{self._graphics.line(element)}\n")
            elif element.tag == PARAGRAPH:
                read = self._read(element, story, table_hides=is_hidden)
                parts.append(f"{read.line if read.text else ''}\n")
                notes += read.content.notes
                pending += ((box, False) for box in reversed(read.content.boxes))
            else:
                if element.tag == TABLE:
                    is_hidden = bool(self._styles.of(element).vanishes)
                children: list[tuple[Element | str, bool]] = []
                for child in shown_children(element):
                    if children and child.tag in (ROW, CELL):
                        separator = CELL_SEPARATOR if child.tag == CELL else ROW_SEPARATOR
                        children.append((separator, is_hidden))
                    children.append((child, is_hidden))
                pending += reversed(children)
        parts.append(tidied_pieces(story.carried))
        story.carried, story.carries_mark = [], False
        return cell_line("".join(parts))


def _count_chars(element: Element) -> int:
    return len(element.text or "") if element.tag in (TEXT, MATH_TEXT) else 0


def _story_blocks(root: Element, story: _WordStory) -> list[_WordBlock]:
    """Returns the blocks of a story, last block first, after the end of the story.

    `root` contains the blocks, or is a table, a chart or a diagram.
    """
    is_block = root.tag in (TABLE, *GRAPHICS)
    children = [root] if is_block else list(shown_children(root))
    return [_WordBlock(None, story), *(_WordBlock(child, story) for child in reversed(children))]


def _note_story(note: WordNote) -> _WordStory:
    """Returns the story of a note. Its first paragraph begins with its mark."""
    mark: list[Piece] = [] if note.is_custom_mark else [(f"[{note.mark}] ", Placement.NORMAL)]
    return _WordStory(carried=mark, carries_mark=True)


def _sections(root: Element) -> list[Element]:
    """Returns the properties of the document's sections, last section first."""
    owners = [paragraph.find(PARAGRAPH_PROPERTIES) for paragraph in root.iter(PARAGRAPH)]
    owners.append(root.find(f"{WORD}body"))
    sections = (None if owner is None else owner.find(f"{WORD}sectPr") for owner in owners)
    return [section for section in sections if section is not None][::-1]


def _is_contents(control: Element) -> bool:
    """Returns True for a content control that contains a table of contents."""
    gallery = control.find(_CONTENTS_GALLERY)
    return value_of(gallery, f"{WORD}docPartGallery") == "Table of Contents"
