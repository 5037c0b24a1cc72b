"""The outline of a PDF gives its bookmarks, up to a limit."""

from contextlib import closing

import pypdfium2 as pdfium

from indexer_svc.parsers.pdf import outline
from indexer_svc.parsers.pdf.page_content import Bookmark
from tests.support.documents import pdfs


def bookmarks(content):
    with closing(pdfium.PdfDocument(content)) as document:
        return list(outline.bookmarks_of(document))


def test_bookmarks_have_title_depth_and_page():
    content = pdfs.pdf_of(
        ["a", "b"],
        [
            pdfs.Bookmark("  第一章\n One ", 1, 0),
            pdfs.Bookmark("Sub", 2, 1),
            pdfs.Bookmark("2", 1, 1),
        ],
    )
    assert bookmarks(content) == [
        Bookmark("第一章 One", 1, 0),
        Bookmark("Sub", 2, 1),
        Bookmark("2", 1, 1),
    ]


def test_bookmarks_beyond_the_limit_are_left_out(monkeypatch):
    monkeypatch.setattr(outline, "MAX_BOOKMARKS", 2)
    content = pdfs.pdf_of(["a"], [pdfs.Bookmark(str(number), 1, 0) for number in range(3)])
    assert [bookmark.title for bookmark in bookmarks(content)] == ["0", "1"]
