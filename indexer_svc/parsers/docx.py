"""Parses Word documents: headings, paragraphs, lists, tables and notes.

A part is a file in the archive of a document. The library mammoth converts the document into HTML
by the document's styles, so the texts of Word documents and of HTML pages have the same form.
mammoth gets a new archive with only the parts that it must read. `office_xml` and `keep_shown`
rewrite these parts first. Deleted and hidden text, comments, pictures, headers and footers are left
out. The result has no pages, because a program decides where pages begin only when it lays the
document out.
"""

import xml.dom.expatbuilder  # noqa: F401  (minidom imports it while it parses)
from io import BytesIO
from xml.etree import ElementTree
from zipfile import ZipFile

import mammoth
from selectolax.lexbor import LexborHTMLParser

from indexer_svc.parsers.html import first_heading, write_html
from indexer_svc.parsers.office import office_title, office_xml, related_part, relations_part
from indexer_svc.parsers.package import Package, readable
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.text_writer import TextWriter
from indexer_svc.parsers.word_markup import StyleSheet, keep_shown
from indexer_svc.titles import metadata_title

_KIND = "a Word document (DOCX)"
# The possible names of the main file in the archive of a Word document. Word on the Web numbers the
# files, so it uses the second name.
_MAIN_PARTS = ("word/document.xml", "word/document2.xml")
_MAIN, _STYLES = "document", "styles"
_TEXT_PARTS = (_MAIN, "footnotes", "endnotes")
_READ_PARTS = (*_TEXT_PARTS, _STYLES, "numbering")
_TITLE_CLASS = "title"
_STYLE_MAP = f"""
p[style-name='Title'] => p.{_TITLE_CLASS}:fresh
p[style-name='Subtitle'] => p:fresh
"""


def parse_docx(content: bytes, max_text_bytes: int) -> ParsedFile:
    """Returns the text of a document, its headings and its title.

    The title is the title in the document's properties. If there is no such title, it is the first
    paragraph in the style Title, or else the first heading of level 1. Raises UnreadableDocument or
    TooLarge.
    """
    with readable(_KIND):
        package = Package(content, _KIND, *_MAIN_PARTS)
        title = office_title(package)
        page = LexborHTMLParser(_html(_shown_archive(package)))
        writer = TextWriter(max_text_bytes)
        write_html(page, writer)
        return writer.parsed(title or _title_paragraph(page) or first_heading(writer))


def _shown_archive(package: Package) -> bytes:
    """Returns a new archive with those parts of the document that mammoth must read.

    Hidden text is removed. In the new archive, the parts have the default names, by which mammoth
    finds them.
    """
    parts = _parts(package)
    styles = StyleSheet(office_xml(package, parts[_STYLES]) if _STYLES in parts else None)
    target = BytesIO()
    with ZipFile(target, "w") as archive:
        for name, part in parts.items():
            root = office_xml(package, part)
            if name in _TEXT_PARTS:
                keep_shown(root, styles)
            archive.writestr(f"word/{name}.xml", ElementTree.tostring(root, "utf-8"))
            if (relations := relations_part(part)) in package:
                links = ElementTree.tostring(package.xml(relations), "utf-8")
                archive.writestr(f"word/_rels/{name}.xml.rels", links)
    return target.getvalue()


def _parts(package: Package) -> dict[str, str]:
    """Maps the names in `_READ_PARTS` to the names of these parts in the document's archive.

    Parts that do not exist are left out, except the main part.
    """
    main = related_part(package, "", "officeDocument", _MAIN_PARTS[0])
    parts = {name: related_part(package, main, name, f"word/{name}.xml") for name in _READ_PARTS}
    return {name: part for name, part in parts.items() if part in package} | {_MAIN: main}


def _html(content: bytes) -> str:
    converted = mammoth.convert_to_html(
        BytesIO(content),
        style_map=_STYLE_MAP,
        include_embedded_style_map=False,
        external_file_access=False,
        convert_image=mammoth.images.img_element(lambda _image: {}),
    )
    return str(converted.value)


def _title_paragraph(page: LexborHTMLParser) -> str:
    paragraph = page.css_first(f"p.{_TITLE_CLASS}")
    return "" if paragraph is None else metadata_title(paragraph.text())
