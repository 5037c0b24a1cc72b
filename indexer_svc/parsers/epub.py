"""Parses EPUBs: the chapters in reading order, each parsed as an HTML page.

Headings become sections. If a chapter has no heading, its title in the table of contents becomes
its heading. Tables of contents and other navigation are left out. Notes that the book marks as
notes come after the text of their chapter. A part is a file in the book's archive.
"""

from collections.abc import Collection, Iterator, Mapping
from xml.etree import ElementTree
from xml.parsers import expat

from selectolax.lexbor import LexborHTMLParser

from hrag.values.errors import UnreadableDocument
from hrag.values.read_report import LeftOutKind
from indexer_svc.parsers.epub_notes import BookNotes
from indexer_svc.parsers.html import ElementWriter, as_html, parsed_page, write_html
from indexer_svc.parsers.html_boilerplate import navigation_of
from indexer_svc.parsers.html_charset import decoded
from indexer_svc.parsers.package import TITLE, Element, Package, readable, resolved
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.text_writer import TextWriter
from indexer_svc.titles import metadata_title

_KIND = "an EPUB"
_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_PAGES = ("application/xhtml+xml", "text/html")
_CONTENTS = "application/x-dtbncx+xml"
_HEADINGS = "h1, h2, h3, h4, h5, h6, [role=heading]"
_MALFORMED = (ElementTree.ParseError, expat.ExpatError)


def parse_epub(content: bytes, max_text_bytes: int) -> ParsedFile:
    """Returns the text of a book, its headings and its title.

    The title is the title in the book's metadata, or else the first heading of level 1. Raises
    UnreadableDocument if the file is damaged or a chapter is encrypted, and TooLarge if a limit is
    exceeded.
    """
    with readable(_KIND):
        package = Package(content, _KIND, _CONTAINER)
        root = _root_part(package)
        book = package.xml(root)
        items = {item.get("id", ""): item for item in book.iterfind(".//{*}manifest/{*}item")}
        labels = _labels(package, root, items)
        encrypted = _encrypted_parts(package)
        writer = TextWriter(max_text_bytes)
        chapters = list(dict.fromkeys(_chapters(book, root, items)))
        readable_pages = frozenset(chapters) - encrypted
        note_writers: dict[LexborHTMLParser, ElementWriter] = {}
        notes = BookNotes(lambda part: _page(package, part) if part in readable_pages else None)
        for part in chapters:
            if part in encrypted:
                raise UnreadableDocument(
                    f"content is an EPUB whose chapter {part[:200]} is encrypted; send it without "
                    "copy protection",
                    field="content",
                )
            page = notes.page(part) or _page(package, part)
            _write_chapter(page, labels.get(part, ""), notes.moved(part), writer)
            for note in notes.of_chapter(part, page):
                label = f"[{note.mark.strip('[]')}] " if note.mark else ""
                if note.page not in note_writers:
                    note_writers[note.page] = ElementWriter(note.page, writer)
                note_writers[note.page].write(note.node, label)
        title = book.findtext(f".//{TITLE}") or ""
        return writer.parsed(metadata_title(title) or writer.first_heading)


def _root_part(package: Package) -> str:
    rootfile = package.xml(_CONTAINER).find(".//{*}rootfile")
    if rootfile is None:
        raise UnreadableDocument(f"content names no book in {_CONTAINER}", field="content")
    return resolved("", rootfile.get("full-path", ""))


def _chapters(book: Element, root: str, items: Mapping[str, Element]) -> Iterator[str]:
    """Yields the file names of the book's chapters in reading order.

    A file may occur several times. The file with the table of contents is left out. A book in the
    format of EPUB 2 names this file in its guide. A link to a position on a page says nothing about
    the whole page.
    """
    guide = book.iterfind(".//{*}guide/{*}reference")
    targets = (page.get("href", "") for page in guide if page.get("type") == "toc")
    contents = {resolved(root, target) for target in targets if "#" not in target}
    for reference in book.iterfind(".//{*}spine/{*}itemref"):
        item = items.get(reference.get("idref", ""))
        if item is None or item.get("media-type") not in _PAGES or _is_contents(item):
            continue
        part = resolved(root, item.get("href", ""))
        if part not in contents:
            yield part


def _is_contents(item: Element) -> bool:
    return "nav" in item.get("properties", "").split()


def _encrypted_parts(package: Package) -> set[str]:
    """Returns the names of the encrypted files in the book's archive."""
    if _ENCRYPTION not in package:
        return set()
    references = package.xml(_ENCRYPTION).iterfind(".//{*}CipherReference")
    return {resolved("", reference.get("URI", "")) for reference in references}


def _labels(package: Package, root: str, items: Mapping[str, Element]) -> dict[str, str]:
    """Returns the titles of chapters from the tables of contents, by the file name of the chapter.

    If the tables have several titles for a chapter, the first title is returned.
    """
    labels: dict[str, str] = {}
    for item in items.values():
        part = resolved(root, item.get("href", ""))
        if part not in package:
            continue
        if _is_contents(item):
            entries = _html_entries(decoded(package.read(part)))
        elif item.get("media-type") == _CONTENTS:
            entries = _ncx_entries(package, part)
        else:
            continue
        for target, label in entries:
            labels.setdefault(resolved(part, target), label)
    return labels


def _html_entries(contents: str) -> Iterator[tuple[str, str]]:
    """Yields the target (`href`) and the text of each link in a table of contents in HTML."""
    for link in parsed_page(as_html(contents)).css("nav a[href]"):
        yield link.attributes.get("href") or "", link.text()


def _ncx_entries(package: Package, part: str) -> Iterator[tuple[str, str]]:
    """Yields the target (`src`) and the title of each entry of a table of contents in XML (NCX).

    Yields nothing if the XML is malformed, because the book can be read without the table.
    """
    try:
        contents = package.xml(part)
    except _MALFORMED:
        return
    for point in contents.iter():
        target, label = point.find("{*}content"), point.findtext("{*}navLabel/{*}text")
        if target is not None and label:
            yield target.get("src", ""), label


def _page(package: Package, part: str) -> LexborHTMLParser:
    return parsed_page(as_html(decoded(package.read(part))))


def _write_chapter(
    page: LexborHTMLParser, label: str, moved: Collection[int], writer: TextWriter
) -> None:
    """Writes a chapter under its headings, or under `label` if it has none.

    `moved` are the `mem_id`s of notes that have been written with other chapters.
    """
    navigation = navigation_of(page)
    for text in filter(None, navigation.values()):
        writer.leave_out(LeftOutKind.CONTENTS_PAGE, text)
    if page.css_first(_HEADINGS) is None:
        writer.heading(1, label)
    write_html(page, writer, {*navigation, *moved})
