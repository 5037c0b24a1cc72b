"""Parses presentations: each slide is a page, and also a section with the slide's title.

The text is read from the XML of the slides: shapes in their order, tables, charts, diagrams and
speaker notes. A hidden slide becomes a page without text, so that the page numbers are the slide
numbers. Hidden shapes, pictures and comments are left out. The library python-pptx is not used: it
would read the same text, but needs 25 MB of libraries, most of which are for pictures.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from indexer_svc.parsers.office import (
    COMPATIBILITY,
    RELATION_ID,
    office_title,
    office_xml,
    relations,
)
from indexer_svc.parsers.office_graphics import GRAPHICS, OfficeGraphics
from indexer_svc.parsers.package import Element, Package, readable
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.placed_text import Piece, Placement, joined_pieces
from indexer_svc.parsers.slide_numbers import SlideNumbers, paragraph_level
from indexer_svc.parsers.text_writer import TextWriter
from indexer_svc.parsers.word.equations import linear_equation
from indexer_svc.parsers.word.names import EQUATION, EQUATIONS
from indexer_svc.titles import metadata_title

_KIND = "a presentation (PPTX)"
_MAIN_PART = "ppt/presentation.xml"
_DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_SLIDES = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_TITLES = ("title", "ctrTitle")
_FALLBACK = f"{COMPATIBILITY}Fallback"
_SHAPE_CONTAINERS = (
    *(f"{_SLIDES}spTree", f"{_SLIDES}grpSp"),
    *(f"{COMPATIBILITY}AlternateContent", f"{COMPATIBILITY}Choice"),
)
_RUN = f"{_DRAWING}t"
_RUN_STARTS = (f"{_DRAWING}r", f"{_DRAWING}fld")
_RUN_PROPERTIES = f"{_DRAWING}rPr"
_NO_SHIFT = re.compile(r"-?0*(?:\.0*)?%?")
_LINE_BREAK = f"{_DRAWING}br"
_TRUE, _FALSE = ("1", "true"), ("0", "false")
_HEADER_SPANS = tuple("123")
# These placeholders (date, footer, slide number, header) are the same on every slide. They are left
# out.
_REPEATED = ("dt", "ftr", "sldNum", "hdr")


class _SlideLine(NamedTuple):
    """A paragraph of a slide. `level` counts from 0; `number` is empty if it shows none."""

    text: str
    level: int
    number: str


def parse_pptx(content: bytes, max_text_bytes: int) -> ParsedFile:
    """Returns the text of a presentation, its slides as pages and sections, and its title.

    The title is the title in the presentation's properties, or else the title of the first slide.
    Raises UnreadableDocument or TooLarge.
    """
    with readable(_KIND):
        package = Package(content, _KIND, _MAIN_PART)
        writer = TextWriter(max_text_bytes)
        properties_title = office_title(package)
        titles = [
            _write_slide(package, part, number, writer)
            for number, part in enumerate(_slides(package), start=1)
        ]
        return writer.parsed(properties_title or metadata_title(next(iter(titles), "")))


def _slides(package: Package) -> Iterator[str]:
    """Yields the name, in the archive, of the file of each slide, in the order of the slides.

    A slide that is listed again is left out, so that a small file cannot list one thousands of
    times.
    """
    targets = relations(package, _MAIN_PART)
    ids = office_xml(package, _MAIN_PART).iter(f"{_SLIDES}sldId")
    parts = (targets.get(slide_id.get(RELATION_ID, ""), ("", ""))[1] for slide_id in ids)
    yield from dict.fromkeys(parts)


def _write_slide(package: Package, part: str, number: int, writer: TextWriter) -> str:
    """Writes a slide to `writer` and returns its title, which may be empty.

    `number` is the number of the slide, from 1.
    """
    slide = _remove_hidden(office_xml(package, part))
    writer.page()
    if slide.get("show") in _FALSE:
        return ""
    shapes = [shape for shape in _shapes(slide) if _placeholder(shape) not in _REPEATED]
    notes = _notes(package, part)
    titles = (_text(shape) for shape in shapes if _placeholder(shape) in _TITLES)
    title = " ".join(next(filter(None, titles), "").split())
    has_text = any(shape.tag in GRAPHICS or _text(shape).strip() for shape in shapes)
    if title or notes or has_text:
        writer.heading(1, title or f"Slide {number}")
    graphics = OfficeGraphics(package, part)
    for shape in shapes:
        if shape.tag in GRAPHICS:
            graphics.write(shape, writer)
        elif _placeholder(shape) not in _TITLES:
            _write_shape(shape, writer)
    for note in notes:
        writer.paragraph(f"Notes: {note}")
    return title


def _remove_hidden(slide: Element) -> Element:
    """Removes hidden shapes from a slide, and returns the slide.

    A newer kind of shape has an alternative that only older programs show. The alternatives are
    removed too.
    """
    for parent in slide.iter():
        if parent.tag in _SHAPE_CONTAINERS:
            parent[:] = [
                shape for shape in parent if shape.tag != _FALLBACK and not _is_hidden(shape)
            ]
    return slide


def _is_hidden(shape: Element) -> bool:
    properties = shape.find(f"*/{_SLIDES}cNvPr")
    return properties is not None and properties.get("hidden") in _TRUE


def _shapes(slide: Element) -> Iterator[Element]:
    """Yields the shapes, tables and graphics of a slide in order, including those inside groups."""
    for element in slide.iter():
        if element.tag in (f"{_SLIDES}sp", f"{_DRAWING}tbl", *GRAPHICS):
            yield element


def _placeholder(shape: Element) -> str:
    """Returns the kind of a placeholder shape, for example `title`; empty for other shapes."""
    placeholder = shape.find(f"{_SLIDES}nvSpPr/{_SLIDES}nvPr/{_SLIDES}ph")
    return "" if placeholder is None else placeholder.get("type", "body")


def _write_shape(shape: Element, writer: TextWriter) -> None:
    if shape.tag == f"{_DRAWING}tbl":
        _write_table(shape, writer)
        return
    lines = list(_lines(shape))
    if len(lines) == 1 and not lines[0].number:
        writer.paragraph(lines[0].text)
        return
    for line in lines:
        writer.item(line.text, 1 + line.level, line.number or "-")


def _write_table(table: Element, writer: TextWriter) -> None:
    """Writes a table. A cell that spans several rows is repeated in each of them.

    If the style of the table marks its first row, the cells of this row are the header, with the
    rows that they span.
    """
    rows: list[list[str]] = []
    spans = [1]
    for row in table.iter(f"{_DRAWING}tr"):
        cells = list(row.iter(f"{_DRAWING}tc"))
        above = rows[-1] if rows else []
        if not rows:
            spans += (_row_span(cell) for cell in cells)
        rows.append(
            [
                above[at] if cell.get("vMerge") in _TRUE and at < len(above) else _text(cell)
                for at, cell in enumerate(cells)
            ]
        )
        writer.table_size.add(rows[-1])
    properties = table.find(f"{_DRAWING}tblPr")
    marks = properties.attrib if properties is not None else {}
    writer.table(
        rows,
        header_rows=max(spans) if marks.get("firstRow") in _TRUE else None,
        has_row_headers=marks.get("firstCol") in _TRUE,
    )


def _row_span(cell: Element) -> int:
    """Returns how many rows of a header a cell of the first row spans."""
    span = cell.get("rowSpan", "1")
    return int(span) if span in _HEADER_SPANS else 1


def _text(element: Element) -> str:
    """Returns the text of all paragraphs in an element, one paragraph on each line."""
    return "\n".join(
        f"{line.number} {line.text}" if line.number else line.text for line in _lines(element)
    )


def _lines(element: Element) -> Iterator[_SlideLine]:
    """Yields the paragraphs of a shape or a cell that have text."""
    numbers = SlideNumbers(element.find(f"*/{_DRAWING}lstStyle"))
    for paragraph in element.iter(f"{_DRAWING}p"):
        text = _line(paragraph)
        if text.strip():
            yield _SlideLine(text, paragraph_level(paragraph), numbers.count(paragraph))


def _line(paragraph: Element) -> str:
    """Returns the text of a paragraph: its runs and fields, with line ends for line breaks."""
    return joined_pieces(_pieces(paragraph))


def _pieces(paragraph: Element) -> Iterator[Piece]:
    """Yields the text and the placement of each run and equation of a paragraph."""
    placement = Placement.NORMAL
    joined = {part for group in paragraph.iter(EQUATIONS) for part in group.iter(EQUATION)}
    for element in paragraph.iter():
        if element.tag in _RUN_STARTS:
            placement = Placement.NORMAL
        elif element.tag == _RUN_PROPERTIES:
            placement = _placement(element.get("baseline", "0"))
        elif element.tag == _RUN:
            yield element.text or "", placement
        elif element.tag == _LINE_BREAK:
            yield "\n", Placement.NORMAL
        elif element.tag in (EQUATION, EQUATIONS) and element not in joined:
            yield linear_equation(element, _shows), Placement.NORMAL


def _shows(_run: Element) -> bool:
    """Returns False, because a run of an equation on a slide is never hidden."""
    return False


def _placement(baseline: str) -> Placement:
    """Returns the placement for a baseline: a share of the font's size, with or without a `%`."""
    if _NO_SHIFT.fullmatch(baseline):
        return Placement.NORMAL
    return Placement.SUBSCRIPT if baseline.startswith("-") else Placement.SUPERSCRIPT


def _notes(package: Package, part: str) -> list[str]:
    """Returns the paragraphs of the speaker notes of the slide in the file `part`."""
    parts = [target for kind, target in relations(package, part).values() if kind == "notesSlide"]
    shapes = (shape for notes_part in parts for shape in _shapes(office_xml(package, notes_part)))
    texts = (_text(shape).strip() for shape in shapes if _placeholder(shape) == "body")
    return list(filter(None, texts))
