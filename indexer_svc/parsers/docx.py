"""The text of a Word document: headings, paragraphs, lists, tables, notes.

mammoth turns it into HTML by its styles, so the two formats read alike. Deleted and hidden text,
comments, pictures, headers and footers are left out; pages do not exist before the document is laid
out.
"""

import re
import xml.dom.expatbuilder  # noqa: F401  (minidom imports it while it parses)
from io import BytesIO
from xml.etree import ElementTree
from zipfile import ZipFile

import mammoth
from selectolax.lexbor import LexborHTMLParser

from indexer_svc.parsers.html import first_heading, write_html
from indexer_svc.parsers.office import office_title
from indexer_svc.parsers.package import Element, Package, readable
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.text_writer import TextWriter
from indexer_svc.titles import metadata_title

_KIND = "a Word document (DOCX)"
# Word on the Web numbers its parts.
_MAIN_PARTS = ("word/document.xml", "word/document2.xml")
_TEXT_PART = re.compile(r"word/(?:document|footnotes|endnotes)\d?\.xml")
_TITLE_CLASS = "title"
_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_RUN = f"{_WORD}r"
_HIDDEN = f"{_WORD}rPr/{_WORD}vanish"
_FALSE = ("0", "false", "off")
_OF_FIELDS = (f"{_WORD}fldChar", f"{_WORD}instrText")  # In pairs, of which one may be hidden.
_STYLES = f"""
p[style-name='Title'] => p.{_TITLE_CLASS}:fresh
p[style-name='Subtitle'] => p:fresh
"""


def parse_docx(content: bytes, max_text_bytes: int) -> ParsedFile:
    """Returns the text of a document, its headings and its title.

    The title is that of its properties, else its first paragraph in the style Title, else its
    first heading of level 1. Raises UnreadableDocument or TooLarge.
    """
    with readable(_KIND):
        package = Package(content, _KIND, *_MAIN_PARTS)
        package.check_xml()
        title = office_title(package)
        page = LexborHTMLParser(_html(_without_hidden(package, content)))
        writer = TextWriter(max_text_bytes)
        write_html(page, writer)
        return writer.parsed(title or _title_paragraph(page) or first_heading(writer))


def _without_hidden(package: Package, content: bytes) -> bytes:
    """The document without text that is formatted as hidden, which mammoth does not know."""
    cleaned = {
        name: ElementTree.tostring(_shown(package.xml(name)), "utf-8")
        for name in package
        if _TEXT_PART.fullmatch(name) and _has_hidden(package.read(name))
    }
    if not cleaned:
        return content
    target = BytesIO()
    with ZipFile(target, "w") as archive:
        for name in package:
            archive.writestr(name, cleaned.get(name) or package.read(name))
    return target.getvalue()


def _has_hidden(part: bytes) -> bool:
    return b"vanish" in part.replace(b"\0", b"")  # In UTF-16 every other byte is one.


def _shown(root: Element) -> Element:
    for run in root.iter(_RUN):
        hidden = run.find(_HIDDEN)
        if hidden is not None and hidden.get(f"{_WORD}val") not in _FALSE:
            run[:] = [each for each in run if each.tag in _OF_FIELDS]
    return root


def _html(content: bytes) -> str:
    converted = mammoth.convert_to_html(
        BytesIO(content),
        style_map=_STYLES,
        include_embedded_style_map=False,
        external_file_access=False,
        convert_image=mammoth.images.img_element(lambda _image: {}),
    )
    return str(converted.value)


def _title_paragraph(page: LexborHTMLParser) -> str:
    paragraph = page.css_first(f"p.{_TITLE_CLASS}")
    return "" if paragraph is None else metadata_title(paragraph.text())
