"""Reads the bookmarks of a PDF: the entries of its outline."""

from collections.abc import Iterator
from itertools import islice

import pypdfium2 as pdfium

from indexer_svc.parsers.pdf.page_content import Bookmark
from indexer_svc.titles import section_title

# At most this many bookmarks are read, because PDFium searches all pages for the target page of
# each bookmark.
MAX_BOOKMARKS = 10_000

# These characters are removed from titles: soft hyphens, NUL, and characters that do not exist.
ARTEFACTS = dict.fromkeys(map(ord, "\x00\x02\u00ad\ufffe\uffff"))


def bookmarks_of(document: pdfium.PdfDocument) -> Iterator[Bookmark]:
    """Yields the first MAX_BOOKMARKS bookmarks that have a title and lead to a page."""
    for entry in islice(document.get_toc(), MAX_BOOKMARKS):
        destination = entry.get_dest()
        page = None if destination is None else destination.get_index()
        title = _title(entry)
        if title and page is not None and page < len(document):
            yield Bookmark(title, entry.level + 1, page)


def _title(entry: pdfium.PdfBookmark) -> str:
    try:
        return section_title(entry.get_title().translate(ARTEFACTS))
    except UnicodeDecodeError:  # Half a surrogate pair in the title is no reason to refuse a PDF.
        return ""
