"""Parses PDFs: the text of each page, the bookmarks and the title.

PDFium, the library that reads PDFs, must not be called by two threads at the same time, not even
for two different documents. So only one thread of a process may use this module; a parser process
has only one thread. This module closes every PDFium object itself. Its functions return texts and
numbers, never PDFium objects.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from hrag.values.errors import TooLarge, UnreadableDocument
from hrag.values.limits import MAX_PAGES
from indexer_svc.parsers.parsed_file import Heading, PageRange, ParsedFile, joined
from indexer_svc.titles import metadata_title, section_title

# At most this many bookmarks are read, because PDFium searches all pages for the target page of
# each bookmark.
MAX_BOOKMARKS = 10_000

# Only this many characters of a page are searched for the title of a bookmark, because the text of
# a page may have any length. Four densely printed pages have about this many characters.
_TITLE_SEARCH_CHARS = 20_000
_FIELD = "content"
# These characters are removed from the text. PDFium joins words that are hyphenated at the end of a
# line, and puts one of these characters in place of the hyphen. PDFium returns NUL for a glyph that
# stands for no character.
_ARTEFACTS = dict.fromkeys(map(ord, "\x00\x02\u00ad\ufffe\uffff"))
# Matches what may stand before a title on its line: "2.1", "IV.", "Chapter 3:", "Appendix B".
_NUMBERED = (
    r"(?:(?:chapter|section|part|article|appendix|annex)[ \t]++)?"
    r"(?:[\d.]{1,12}|[IVXLC]{1,7}|[A-Z])?[.:)]?[ \t]*+"
)


@dataclass(frozen=True, slots=True)
class Bookmark:
    """An entry of a PDF's outline. `depth` counts from 1. `page` is a page index, from 0."""

    title: str
    depth: int
    page: int


@dataclass(frozen=True, slots=True)
class PdfContent:
    """The texts of a PDF's pages, its bookmarks and its title.

    The text of an empty page is an empty string, and so is a missing title.
    """

    pages: tuple[str, ...]
    bookmarks: tuple[Bookmark, ...]
    title: str = ""


def read_pdf(content: bytes, max_text_bytes: int) -> PdfContent:
    """Returns the text of every page, the first MAX_BOOKMARKS bookmarks and the title.

    Lines end with `\\n`. Bookmarks that lead to no page are left out. The title is the title in the
    document information dictionary (ISO 32000-1, 14.3.3). It is empty if that title is a
    placeholder that a program has written. A PDF that opens with the empty password is read like a
    PDF that is not encrypted.

    Raises:
        UnreadableDocument: `content` is encrypted, damaged or not a PDF.
        TooLarge: the PDF has more than MAX_PAGES pages, or more than `max_text_bytes` bytes
            of text in UTF-8.
    """
    try:
        with pdfium.PdfDocument(content) as document:
            pages = tuple(_pages(document, max_text_bytes))
            return PdfContent(pages, tuple(_bookmarks(document)), _title(document))
    except pdfium.PdfiumError as error:
        raise UnreadableDocument(_error_message(error), field=_FIELD) from None


def parse_pdf(content: bytes, max_text_bytes: int) -> ParsedFile:
    """Returns the text of a PDF, its pages, its bookmarks as headings, and its title.

    Raises the errors of `read_pdf`.
    """
    read = read_pdf(content, max_text_bytes)
    text, pages = joined(read.pages)
    return ParsedFile(text, pages, headings_of_bookmarks(read.bookmarks, text, pages), read.title)


def _error_message(error: pdfium.PdfiumError) -> str:
    """Returns the message for a client when PDFium refuses a file."""
    if error.err_code == pdfium_c.FPDF_ERR_PASSWORD:
        return "content is an encrypted PDF that needs a password; send it without encryption"
    if error.err_code == pdfium_c.FPDF_ERR_SECURITY:
        return "content is a PDF encrypted in an unknown way; send it without encryption"
    return f"content is not a readable PDF: {error}"


def _pages(document: pdfium.PdfDocument, max_text_bytes: int) -> Iterator[str]:
    page_count = len(document)
    if page_count > MAX_PAGES:
        raise TooLarge(
            f"content is a PDF of {page_count} pages; at most {MAX_PAGES} are allowed",
            field=_FIELD,
        )
    text_bytes = 0
    for index in range(page_count):
        text = _page_text(document, index)
        text_bytes += len(text.encode())
        if text_bytes > max_text_bytes:
            raise TooLarge(
                f"content is a PDF with {text_bytes} bytes of text on its first {index + 1} "
                f"pages; HRAG_MAX_DOCUMENT_BYTES allows {max_text_bytes}",
                field=_FIELD,
            )
        yield text


def _page_text(document: pdfium.PdfDocument, index: int) -> str:
    try:
        with closing(document[index]) as page, closing(page.get_textpage()) as text_page:
            raw: str = text_page.get_text_bounded()
    except pdfium.PdfiumError as error:
        raise pdfium.PdfiumError(f"page {index + 1}: {error}", error.err_code) from None
    return _clean(raw)


def _clean(raw: str) -> str:
    text = raw.translate(_ARTEFACTS)
    return text.replace("\r\n", "\n").replace("\r", "\n").strip()


def _title(document: pdfium.PdfDocument) -> str:
    try:
        return metadata_title(document.get_metadata_value("Title").translate(_ARTEFACTS))
    except UnicodeDecodeError:
        # The title has half of a surrogate pair. The PDF is not refused for this, but has no title.
        return ""


def _bookmarks(document: pdfium.PdfDocument) -> Iterator[Bookmark]:
    for entry in islice(document.get_toc(), MAX_BOOKMARKS):
        destination = entry.get_dest()
        page = None if destination is None else destination.get_index()
        title = _bookmark_title(entry)
        if title and page is not None and page < len(document):
            yield Bookmark(title, entry.level + 1, page)


def _bookmark_title(entry: pdfium.PdfBookmark) -> str:
    try:
        return section_title(entry.get_title().translate(_ARTEFACTS))
    except UnicodeDecodeError:
        return ""


def headings_of_bookmarks(
    bookmarks: Sequence[Bookmark], text: str, pages: Sequence[PageRange]
) -> tuple[Heading, ...]:
    """Returns the bookmarks as headings, in order of position.

    A heading begins at the line that is the title of its bookmark. If there is no such line, the
    heading begins at the start of the bookmark's page. The search for this line begins at the start
    of the page. Exception: if the previous heading is on the same page, the search begins at this
    heading, because bookmarks are assumed to be in the order of the text.
    """
    headings = []
    position = 0
    for bookmark in bookmarks:
        page = pages[bookmark.page]
        if not page.char_start <= position < page.char_end:
            position = page.char_start
        position = _line_of_title(bookmark.title, text, position, page.char_end)
        # If the last page has no text, the page begins at the end of the text. No heading can begin
        # there.
        if position < len(text):
            headings.append(Heading(bookmark.title, bookmark.depth, position))
    return tuple(sorted(headings, key=lambda heading: heading.char_start))


def _line_of_title(title: str, text: str, start: int, end: int) -> int:
    """Returns the offset of the first line from `start` to `end` that is `title`, or `start`.

    In the text, the title may be numbered, broken into several lines, or in another letter case.
    """
    words = r"\s+".join(map(re.escape, title.split()))
    line = re.compile(rf"^{_NUMBERED}{words}[ \t]*$", re.MULTILINE | re.IGNORECASE)
    match = line.search(text, start, min(end, start + _TITLE_SEARCH_CHARS))
    return start if match is None else match.start()
