"""The text of a presentation: each slide is a page, and a section with the slide's title.

Read from the slides' XML: shapes in their order, tables, speaker notes. Hidden slides are pages
without text, so that the others keep their numbers. Hidden shapes, charts, diagrams, equations,
pictures and comments are left out. python-pptx would read the same with 25 MB of libraries, most
of them for pictures.
"""

from collections.abc import Iterator

from indexer_svc.parsers.office import office_title, office_xml, relations
from indexer_svc.parsers.package import Element, Package, readable
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.text_writer import TextWriter
from indexer_svc.titles import metadata_title

_KIND = "a presentation (PPTX)"
_MAIN_PART = "ppt/presentation.xml"
_DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_SLIDES = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_COMPATIBILITY = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_RELATION_ID = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_TITLES = ("title", "ctrTitle")
_FALLBACK = f"{_COMPATIBILITY}Fallback"
_HOLDING_SHAPES = (
    *(f"{_SLIDES}spTree", f"{_SLIDES}grpSp"),
    *(f"{_COMPATIBILITY}AlternateContent", f"{_COMPATIBILITY}Choice"),
)
_RUN = f"{_DRAWING}t"
_LINE_BREAKS = {f"{_DRAWING}br": "\n"}
_TRUE, _FALSE = ("1", "true"), ("0", "false")
_LEVELS = tuple("012345678")
_REPEATED = ("dt", "ftr", "sldNum", "hdr")  # On every slide alike.


def parse_pptx(content: bytes, max_text_bytes: int) -> ParsedFile:
    """Returns the text of a presentation, its slides as pages and sections, and its title.

    The title is that of its properties, else that of its first slide. Raises
    UnreadableDocument or TooLarge.
    """
    with readable(_KIND):
        package = Package(content, _KIND, _MAIN_PART)
        writer = TextWriter(max_text_bytes)
        own = office_title(package)
        titles = [
            _write_slide(package, part, number, writer)
            for number, part in enumerate(_slides(package), start=1)
        ]
        return writer.parsed(own or metadata_title(next(iter(titles), "")))


def _slides(package: Package) -> Iterator[str]:
    """The parts of the slides, in the order in which they are shown."""
    targets = relations(package, _MAIN_PART)
    for each in office_xml(package, _MAIN_PART).iter(f"{_SLIDES}sldId"):
        _kind, part = targets.get(each.get(_RELATION_ID, ""), ("", ""))
        yield part


def _write_slide(package: Package, part: str, number: int, writer: TextWriter) -> str:
    """Writes a slide and returns its title, which may be empty."""
    slide = _shown(office_xml(package, part))
    writer.page()
    if slide.get("show") in _FALSE:
        return ""
    shapes = [each for each in _shapes(slide) if _placeholder(each) not in _REPEATED]
    notes = _notes(package, part)
    titles = (_text(each) for each in shapes if _placeholder(each) in _TITLES)
    title = " ".join(next(filter(None, titles), "").split())
    if title or notes or any(_text(each).strip() for each in shapes):
        writer.heading(1, title or f"Slide {number}")
    for shape in shapes:
        if _placeholder(shape) not in _TITLES:
            _write_shape(shape, writer)
    for note in notes:
        writer.paragraph(f"Notes: {note}")
    return title


def _shown(slide: Element) -> Element:
    """The slide without hidden shapes, and without what older programs show in place of others."""
    for parent in slide.iter():
        if parent.tag in _HOLDING_SHAPES:
            parent[:] = [each for each in parent if each.tag != _FALLBACK and not _is_hidden(each)]
    return slide


def _is_hidden(shape: Element) -> bool:
    properties = shape.find(f"*/{_SLIDES}cNvPr")
    return properties is not None and properties.get("hidden") in _TRUE


def _shapes(slide: Element) -> Iterator[Element]:
    """Shapes and tables in their order, those in groups too."""
    for each in slide.iter():
        if each.tag in (f"{_SLIDES}sp", f"{_DRAWING}tbl"):
            yield each


def _placeholder(shape: Element) -> str:
    """What a shape is a placeholder for, such as `title`; empty for any other shape."""
    found = shape.find(f"{_SLIDES}nvSpPr/{_SLIDES}nvPr/{_SLIDES}ph")
    return "" if found is None else found.get("type", "body")


def _write_shape(shape: Element, writer: TextWriter) -> None:
    if shape.tag == f"{_DRAWING}tbl":
        writer.table([[_text(cell) for cell in row.iter(f"{_DRAWING}tc")] for row in _rows(shape)])
        return
    paragraphs = [each for each in shape.iter(f"{_DRAWING}p") if _line(each).strip()]
    if len(paragraphs) == 1:
        writer.paragraph(_line(paragraphs[0]))
        return
    for each in paragraphs:
        writer.item(_line(each), 1 + _level(each))


def _rows(table: Element) -> Iterator[Element]:
    return table.iter(f"{_DRAWING}tr")


def _level(paragraph: Element) -> int:
    properties = paragraph.find(f"{_DRAWING}pPr")
    level = "0" if properties is None else properties.get("lvl", "0")
    return int(level) if level in _LEVELS else 0


def _text(element: Element) -> str:
    return "\n".join(map(_line, element.iter(f"{_DRAWING}p")))


def _line(paragraph: Element) -> str:
    """The text of a paragraph: its runs and fields, and its line breaks as line ends."""
    parts = (
        each.text if each.tag == _RUN else _LINE_BREAKS.get(each.tag) for each in paragraph.iter()
    )
    return "".join(filter(None, parts))


def _notes(package: Package, part: str) -> list[str]:
    parts = [target for kind, target in relations(package, part).values() if kind == "notesSlide"]
    shapes = (shape for each in parts for shape in _shapes(office_xml(package, each)))
    texts = (_text(shape).strip() for shape in shapes if _placeholder(shape) == "body")
    return list(filter(None, texts))
