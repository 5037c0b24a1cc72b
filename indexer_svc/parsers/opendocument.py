"""Parses OpenDocument texts and presentations (ODT, ODP), as LibreOffice writes them.

A text has headings, paragraphs, lists, tables, text boxes and notes. In a presentation, each slide
is a page, and also a section with the slide's title; its speaker notes follow it. A hidden slide
becomes a page without text, so that the page numbers are the slide numbers.

The parts of the package are read directly. Each module of `odf` has one idea: styles, numbers, the
text of a paragraph, the grid of a table. This module visits the blocks in order and writes them. A
note follows the block that refers to it, and a text box follows the paragraph in which it is
anchored. Deleted and hidden text, comments, pictures, headers and footers are left out. No function
here recurses, so elements may be nested to any depth.
"""

from dataclasses import dataclass, field, replace
from xml.etree import ElementTree

from hrag.values.errors import UnreadableDocument
from hrag.values.read_report import LeftOutKind
from indexer_svc.parsers.odf.list_numbers import BULLET, OdfCounters, OdfListNumbers
from indexer_svc.parsers.odf.names import (
    CELL,
    CONTENTS,
    DRAW,
    GRID,
    HEADING,
    LIST,
    LIST_HEADER,
    LIST_ITEM,
    NUMBERED_PARAGRAPH,
    OFFICE,
    PARAGRAPH,
    PRESENTATION,
    ROW,
    TEXT,
    XML_ID,
    number,
    shown_children,
)
from indexer_svc.parsers.odf.paragraph_text import OdfNote, OdfParagraphReader, read_controls
from indexer_svc.parsers.odf.properties import check_encryption, odf_title
from indexer_svc.parsers.odf.styles import OdfStyleFamily, OdfStyles
from indexer_svc.parsers.odf.tables import read_grid
from indexer_svc.parsers.package import Element, Package, readable, resolved
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.table_grid import CELL_SEPARATOR, ROW_SEPARATOR, cell_line
from indexer_svc.parsers.table_layout import TablePart, layout_tables
from indexer_svc.parsers.text_writer import TextWriter
from indexer_svc.titles import metadata_title

_TEXT_KIND, _PRESENTATION_KIND = "an OpenDocument text (ODT)", "an OpenDocument presentation (ODP)"
_CONTENT, _STYLES = "content.xml", "styles.xml"
_ANNOTATION = "{http://www.w3.org/1998/Math/MathML}annotation"
_STYLE_NAME = f"{TEXT}style-name"
_PAGE, _NOTES = f"{DRAW}page", f"{PRESENTATION}notes"
_CLASS = f"{PRESENTATION}class"
# These are the same on every slide, or pictures of the slide.
_REPEATED = ("date-time", "footer", "header", "page-number", "page")
_TABLE_PARTS = {
    GRID: TablePart.TABLE,
    ROW: TablePart.ROW,
    CELL: TablePart.CELL,
    HEADING: TablePart.HEADING,
    PARAGRAPH: TablePart.PARAGRAPH,
}


def parse_odt(content: bytes, max_text_bytes: int) -> ParsedFile:
    """Returns the text of a document, its headings and its title.

    The title is the one in its metadata, or else its first paragraph in the style Title, or else
    its first heading of level 1. Raises UnreadableDocument or TooLarge.
    """
    with readable(_TEXT_KIND):
        file = _OdfFile(content, _TEXT_KIND, "text")
        writer = TextWriter(max_text_bytes)
        blocks = _OdfBlocks(file, writer)
        blocks.write(file.body)
        return writer.parsed(file.title or blocks.title or writer.first_heading)


def parse_odp(content: bytes, max_text_bytes: int) -> ParsedFile:
    """Returns the text of a presentation, its slides as pages and sections, and its title.

    The title is the one in its metadata, or else the title of its first slide. Raises
    UnreadableDocument or TooLarge.
    """
    with readable(_PRESENTATION_KIND):
        file = _OdfFile(content, _PRESENTATION_KIND, "presentation")
        writer = TextWriter(max_text_bytes)
        blocks = _OdfBlocks(file, writer)
        titles = [
            _write_slide(slide, slide_number, file, blocks, writer)
            for slide_number, slide in enumerate(file.body.iterfind(_PAGE), start=1)
        ]
        return writer.parsed(file.title or metadata_title(next(iter(titles), "")))


class _OdfFile:
    """A package that has been opened: its body, its styles and its title."""

    def __init__(self, content: bytes, kind: str, body: str) -> None:
        """Opens a package whose body is the element `body`.

        Raises UnreadableDocument or TooLarge.
        """
        self._package = Package(content, kind, _CONTENT)
        check_encryption(self._package, kind)
        root = self._package.xml(_CONTENT)
        found = root.find(f"{OFFICE}body/{OFFICE}{body}")
        if found is None:
            raise UnreadableDocument(
                f"content is not {kind}: its part {_CONTENT} has another kind of content",
                field="content",
            )
        self.body = found
        roots = [self._package.xml(_STYLES)] if _STYLES in self._package else []
        self.styles = OdfStyles(*roots, root)
        self.title = odf_title(self._package)
        self._formulas: dict[str, str] = {}

    def formula(self, link: str) -> str:
        """Returns the text of the formula to which a link leads; empty if it is none.

        LibreOffice writes its text in the language in which it was typed: `E = m c^2`.
        """
        part = resolved("", f"{link}/{_CONTENT}")
        if part not in self._formulas:
            text = ""
            if part in self._package:
                annotation = self._package.xml(part).find(f".//{_ANNOTATION}")
                text = "" if annotation is None else annotation.text or ""
            self._formulas[part] = " ".join(text.split())
        return self._formulas[part]


@dataclass(slots=True)
class _OdfStory:
    """A text that is laid out separately: the body, a note or a text box.

    `mark` is the mark of the note, until a paragraph has it.
    """

    mark: str = ""


@dataclass(slots=True)
class _OdfItem:
    """An item of a list. `is_counted` is True once its first paragraph has the item's number."""

    start: int | None
    is_header: bool
    is_counted: bool = False


@dataclass(frozen=True, slots=True)
class _OdfPlace:
    """Where a block is: its story, and the lists around it.

    `level` is the number of lists. `item` is the innermost item, or None.
    """

    story: _OdfStory
    level: int = 0
    style: str = ""
    counters: OdfCounters = field(default_factory=OdfCounters)
    item: _OdfItem | None = None


_OdfBlock = tuple[Element, _OdfPlace]


class _OdfBlocks:
    """Writes the blocks of a file. `title` is the first paragraph in the style Title."""

    def __init__(self, file: _OdfFile, writer: TextWriter) -> None:
        self.title = ""
        self._styles = file.styles
        self._numbering = OdfListNumbers(file.styles)
        self._reader = OdfParagraphReader(file.styles, read_controls(file.body), file.formula)
        self._writer = writer
        self._layout_tables = layout_tables(
            file.body, lambda element: _TABLE_PARTS.get(element.tag), shown_children, _count_chars
        )
        self._lists_by_id: dict[str, OdfCounters] = {}
        self._lists_by_style: dict[str, OdfCounters] = {}

    def write(self, root: Element) -> None:
        """Writes the blocks below `root`."""
        pending = _inner_blocks(root, _OdfPlace(_OdfStory()))
        while pending:
            element, place = pending.pop()
            if element.tag in (PARAGRAPH, HEADING):
                pending += self._write_paragraph(element, place)
            elif element.tag == GRID and element not in self._layout_tables:
                pending += self._write_table(element, place)
            elif element.tag in CONTENTS:
                text = " ".join(
                    "".join(paragraph.itertext()) for paragraph in element.iter(PARAGRAPH)
                )
                self._writer.leave_out(LeftOutKind.CONTENTS_PAGE, text)
            elif element.tag not in (_NOTES, f"{DRAW}control"):
                pending += _inner_blocks(element, self._place_in(element, place))

    def text_of(self, element: Element) -> str:
        """Returns the text of all paragraphs in an element, each on its lines, without notes."""
        paragraphs = (self._reader.read(paragraph).title for paragraph in element.iter(PARAGRAPH))
        return "\n".join(filter(None, paragraphs))

    def _line(
        self, element: Element, place: _OdfPlace, notes: list[OdfNote]
    ) -> tuple[str, list[Element]]:
        """Returns the text of a paragraph in a cell with its number, and its text boxes."""
        content = self._reader.read(element)
        notes += content.notes
        label = self._count(element, place)
        line = content.text if label in ("", BULLET) else f"{label} {content.text}"
        return line, content.boxes

    def _place_in(self, element: Element, place: _OdfPlace) -> _OdfPlace:
        """Returns the place of the blocks inside an element: a list or an item changes it."""
        if element.tag == LIST:
            style = element.get(_STYLE_NAME) or place.style
            if place.level:
                counters = place.counters
            else:
                style = style or self._paragraph_list_style(element)
                counters = self._counters(element, style)
            return replace(place, level=place.level + 1, style=style, counters=counters, item=None)
        if element.tag in (LIST_ITEM, LIST_HEADER):
            item = _OdfItem(_start(element), element.tag == LIST_HEADER)
            return replace(place, item=item)
        if element.tag == NUMBERED_PARAGRAPH:
            counters = self._lists_by_id.setdefault(
                element.get(f"{TEXT}list-id", ""), OdfCounters()
            )
            level = number(element.get(f"{TEXT}level"), 1)
            style = element.get(_STYLE_NAME, "")
            return _OdfPlace(place.story, level, style, counters, _OdfItem(_start(element), False))
        return place

    def _counters(self, element: Element, style: str) -> OdfCounters:
        """Returns the counters of a list that is not inside another list.

        They are new, unless the list continues an earlier one.
        """
        counters = OdfCounters()
        continued = element.get(f"{TEXT}continue-list")
        if continued is not None:
            counters = self._lists_by_id.get(continued, counters)
        elif element.get(f"{TEXT}continue-numbering") == "true":
            counters = self._lists_by_style.get(style, counters)
        self._lists_by_style[style] = counters
        if name := element.get(XML_ID):
            self._lists_by_id[name] = counters
        return counters

    def _paragraph_list_style(self, element: Element) -> str:
        """Returns the list style of the first paragraph in a list without a style."""
        for paragraph in element.iter(PARAGRAPH):
            style = self._styles.of(OdfStyleFamily.PARAGRAPH, paragraph.get(_STYLE_NAME)).list_style
            return style or ""
        return ""

    def _write_paragraph(self, element: Element, place: _OdfPlace) -> list[_OdfBlock]:
        """Writes a paragraph or heading; returns the blocks that follow it, last block first."""
        content = self._reader.read(element)
        text = content.title if element.tag == HEADING else content.text
        label = self._count(element, place)
        if text:
            if place.story.mark:
                text, place.story.mark = f"[{place.story.mark}] {text}", ""
            if self._styles.of(OdfStyleFamily.PARAGRAPH, element.get(_STYLE_NAME)).is_title:
                self.title = self.title or metadata_title(content.title)
        if element.tag == HEADING:
            depth = max(1, number(element.get(f"{TEXT}outline-level"), 1))
            self._writer.heading(depth, text if label in ("", BULLET) else f"{label} {text}")
        elif label:
            self._writer.item(text, max(1, place.level), label)
        else:
            self._writer.paragraph(text)
        return _following(content.notes, content.boxes)

    def _count(self, element: Element, place: _OdfPlace) -> str:
        """Counts a paragraph in its list, or a heading; returns its number, or BULLET.

        An empty paragraph is counted too, because its number is shown. A hidden one is not.
        """
        item = place.item
        style = self._styles.of(OdfStyleFamily.PARAGRAPH, element.get(_STYLE_NAME))
        if style.is_hidden:
            return ""
        label = ""
        if item is not None and not item.is_header and not item.is_counted:
            item.is_counted = True
            label = self._numbering.count_item(place.counters, place.style, place.level, item.start)
        if element.tag != HEADING or label not in ("", BULLET):
            return label
        if element.get(f"{TEXT}is-list-header") == "true" or style.list_style == "":
            return ""
        return self._numbering.count_heading(
            number(element.get(f"{TEXT}outline-level"), 1),
            _start(element),
            restarts=element.get(f"{TEXT}restart-numbering") == "true",
        )

    def _write_table(self, table: Element, place: _OdfPlace) -> list[_OdfBlock]:
        """Writes a table; returns the blocks of the notes to which it refers, last block first."""
        notes: list[OdfNote] = []
        grid = read_grid(
            table, lambda cell: self._cell_text(cell, place, notes), self._writer.table_size
        )
        self._writer.table(grid.rows, header_rows=grid.header_rows)
        return _following(notes, [])

    def _cell_text(self, cell: Element, place: _OdfPlace, notes: list[OdfNote]) -> str:
        """Returns the text of a cell, with the texts of tables and text boxes inside it."""
        parts: list[str] = []
        # In this list, a text stands for what separates the cells and rows of an inner table.
        pending: list[tuple[Element | str, _OdfPlace]] = [
            *_inner_blocks(cell, _OdfPlace(place.story))
        ]
        while pending:
            element, inner = pending.pop()
            if isinstance(element, str):
                parts.append(element)
            elif element.tag in (PARAGRAPH, HEADING):
                text, boxes = self._line(element, inner, notes)
                parts.append(f"{text}\n")
                pending += [(box, _OdfPlace(place.story)) for box in reversed(boxes)]
            else:
                inner = self._place_in(element, inner)
                children: list[tuple[Element | str, _OdfPlace]] = []
                for child in shown_children(element):
                    if children and child.tag in (ROW, CELL):
                        separator = CELL_SEPARATOR if child.tag == CELL else ROW_SEPARATOR
                        children.append((separator, inner))
                    children.append((child, inner))
                pending += reversed(children)
        return cell_line("".join(parts))


def _write_slide(
    slide: Element, slide_number: int, file: _OdfFile, blocks: _OdfBlocks, writer: TextWriter
) -> str:
    """Writes a slide to `writer` and returns its title, which may be empty.

    `slide_number` counts from 1.
    """
    writer.page()
    if file.styles.of(OdfStyleFamily.PAGE, slide.get(f"{DRAW}style-name")).is_hidden:
        return ""
    frames = [frame for frame in slide if _is_shown(frame)]
    title = next((frame for frame in frames if frame.get(_CLASS) == "title"), None)
    text = "" if title is None else " ".join(blocks.text_of(title).split())
    notes = [
        frame
        for page in slide.iterfind(_NOTES)
        for frame in page
        if frame.get(_CLASS) == "notes" and _is_shown(frame)
    ]
    if text or any(map(blocks.text_of, (*frames, *notes))):
        writer.heading(1, text or f"Slide {slide_number}")
    for frame in frames:
        if frame is not title:
            blocks.write(_only(frame))
    for frame in notes:
        if note := blocks.text_of(frame):
            writer.paragraph(f"Notes: {note}")
    return text


def _is_shown(frame: Element) -> bool:
    """Returns True for a frame or shape with text of the slide's author."""
    return (
        frame.tag != _NOTES
        and frame.get(_CLASS) not in _REPEATED
        and frame.get(f"{PRESENTATION}placeholder") != "true"
    )


def _only(element: Element) -> Element:
    """Returns an element whose only child is `element`."""
    parent = ElementTree.Element(f"{OFFICE}body")
    parent.append(element)
    return parent


def _inner_blocks(element: Element, place: _OdfPlace) -> list[_OdfBlock]:
    """Returns the blocks in an element, last block first."""
    return [(child, place) for child in shown_children(element)][::-1]


def _following(notes: list[OdfNote], boxes: list[Element]) -> list[_OdfBlock]:
    """Returns the blocks of notes and text boxes, last block first."""
    blocks = [
        *((note.content, _OdfPlace(_OdfStory(note.mark))) for note in notes),
        *((box, _OdfPlace(_OdfStory())) for box in boxes),
    ]
    return blocks[::-1]


def _start(element: Element) -> int | None:
    """Returns the number that an item or a heading says it has, or None."""
    start = number(element.get(f"{TEXT}start-value"), -1)
    return start if start >= 0 else None


def _count_chars(element: Element) -> int:
    return len(element.text or "") + len(element.tail or "")
