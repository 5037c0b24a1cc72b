"""A PDF gives the text of its pages, its bookmarks and its title, or an error with the reason."""

import random
import time

import pytest

from hrag.errors import HragError, TooLarge, UnreadableDocument
from indexer_svc.parsers import pdf
from indexer_svc.parsers.parsed_file import PageRange
from indexer_svc.parsers.pdf import Bookmark, PdfContent, headings_of_bookmarks, read_pdf
from tests.support.documents import pdfs

AMPLE_BYTES = 1 << 20


def test_the_text_of_each_page_is_read():
    content = pdfs.pdf_of(["First page\nsecond line", "", "Café (3) \\ x"])
    assert read_pdf(content, AMPLE_BYTES) == PdfContent(
        ("First page\nsecond line", "", "Café (3) \\ x"), ()
    )


def test_words_broken_at_a_line_end_are_joined():
    assert read_pdf(pdfs.pdf_of(["the docu-\nmentation"]), AMPLE_BYTES).pages == (
        "the documentation",
    )


def test_a_page_without_text_is_empty():
    assert read_pdf(pdfs.pdf_without_text(2), AMPLE_BYTES).pages == ("", "")


def test_bookmarks_have_title_depth_and_page():
    content = pdfs.pdf_of(
        ["a", "b"],
        [
            pdfs.Bookmark("  第一章\n One ", 1, 0),
            pdfs.Bookmark("Sub", 2, 1),
            pdfs.Bookmark("2", 1, 1),
        ],
    )
    assert read_pdf(content, AMPLE_BYTES).bookmarks == (
        Bookmark("第一章 One", 1, 0),
        Bookmark("Sub", 2, 1),
        Bookmark("2", 1, 1),
    )


def test_blank_bookmarks_and_bookmarks_without_a_page_are_left_out():
    content = pdfs.pdf_of(
        ["a"], [pdfs.Bookmark(" ", 1, 0), pdfs.Bookmark("gone", 1, 50), pdfs.Bookmark("ok", 1, 0)]
    )
    assert read_pdf(content, AMPLE_BYTES).bookmarks == (Bookmark("ok", 1, 0),)


def test_a_bookmark_with_half_of_a_surrogate_pair_is_left_out():
    content = pdfs.pdf_of(["a"], [pdfs.Bookmark("XY", 1, 0), pdfs.Bookmark("ok", 1, 0)])
    halved = content.replace(b"00580059", b"d8000059")
    assert halved != content
    assert read_pdf(halved, AMPLE_BYTES).bookmarks == (Bookmark("ok", 1, 0),)


def test_a_bookmark_that_is_its_own_successor_ends_the_outline():
    content = pdfs.pdf_of(["a"], [pdfs.Bookmark("one", 1, 0), pdfs.Bookmark("two", 1, 0)])
    looped = content.replace(b"/Next 9 0 R", b"/Next 8 0 R")
    assert looped != content
    assert read_pdf(looped, AMPLE_BYTES).bookmarks == (Bookmark("one", 1, 0),)


def test_bookmarks_beyond_the_limit_are_left_out(monkeypatch):
    monkeypatch.setattr(pdf, "MAX_BOOKMARKS", 2)
    content = pdfs.pdf_of(["a"], [pdfs.Bookmark(str(number), 1, 0) for number in range(3)])
    assert [bookmark.title for bookmark in read_pdf(content, AMPLE_BYTES).bookmarks] == ["0", "1"]


@pytest.mark.parametrize(
    ("written", "title"),
    [
        ("  A study\n of bees ", "A study of bees"),
        ("研究 😀", "研究 😀"),
        ("soft\u00adhyphen", "softhyphen"),
        ("Microsoft Word - report.doc", ""),
        (" ", ""),
    ],
)
def test_the_title_in_the_metadata_is_read(written, title):
    assert read_pdf(pdfs.pdf_of(["a"], title=written), AMPLE_BYTES).title == title


def test_a_title_with_half_of_a_surrogate_pair_is_left_out():
    content = pdfs.pdf_of(["a"], title="XY")
    halved = content.replace(b"00580059", b"d8000059")
    assert halved != content
    assert read_pdf(halved, AMPLE_BYTES).title == ""


def test_the_error_says_that_a_password_is_needed():
    with pytest.raises(UnreadableDocument, match="encrypted PDF that needs a password") as caught:
        read_pdf(pdfs.encrypted_pdf(["secret"], "hush"), AMPLE_BYTES)
    assert caught.value.field == "content"


def test_the_error_says_that_the_encryption_is_unknown():
    content = pdfs.encrypted_pdf(["secret"], "hush").replace(b"/Standard", b"/Homemade")
    with pytest.raises(UnreadableDocument, match="encrypted in an unknown way"):
        read_pdf(content, AMPLE_BYTES)


def test_encrypted_pdf_with_the_empty_password_is_read():
    assert read_pdf(pdfs.encrypted_pdf(["open to all"], ""), AMPLE_BYTES).pages == ("open to all",)


@pytest.mark.parametrize(
    "content", [pdfs.broken_pdf(), b"", b"%PDF-1.7", b"plain text", pdfs.pdf_of([])]
)
def test_damaged_pdfs_are_unreadable(content):
    with pytest.raises(UnreadableDocument, match="content is not a readable PDF: ") as caught:
        read_pdf(content, AMPLE_BYTES)
    assert caught.value.field == "content"


def test_the_error_names_a_page_that_cannot_be_loaded():
    content = pdfs.pdf_of(["a", "b"]).replace(
        b"8 0 obj\n<< /Type /Page ", b"8 0 obj\n(no dictionary) "
    )
    with pytest.raises(UnreadableDocument, match="not a readable PDF: page 2: "):
        read_pdf(content, AMPLE_BYTES)


def test_text_beyond_the_limit_is_refused():
    content = pdfs.pdf_of(["12345", "é7890"])
    assert len(read_pdf(content, 11).pages) == 2
    with pytest.raises(TooLarge, match=r"11 bytes.*first 2 pages.*HRAG_MAX_DOCUMENT_BYTES.* 10"):
        read_pdf(content, 10)


def test_pages_beyond_the_limit_are_refused(monkeypatch):
    monkeypatch.setattr(pdf, "MAX_PAGES", 2)
    assert len(read_pdf(pdfs.pdf_of(["a", "b"]), AMPLE_BYTES).pages) == 2
    with pytest.raises(TooLarge, match="3 pages; at most 2"):
        read_pdf(pdfs.pdf_of(["a", "b", "c"]), AMPLE_BYTES)


def test_randomly_damaged_pdfs_are_read_or_refused():
    rng = random.Random(7)
    original = pdfs.pdf_of(["one", "two"], [pdfs.Bookmark("x", 1, 1)], title="Numbers")
    refused = 0
    for _ in range(300):
        damaged = bytearray(original)
        for _ in range(rng.randrange(1, 12)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            read_pdf(bytes(damaged[: rng.randrange(len(damaged))]), AMPLE_BYTES)
        except HragError:
            refused += 1
    assert refused > 0


def test_a_refused_file_leaves_the_next_one_readable():
    with pytest.raises(UnreadableDocument):
        read_pdf(b"no", AMPLE_BYTES)
    assert read_pdf(pdfs.pdf_of(["yes"]), AMPLE_BYTES).pages == ("yes",)


def test_hostile_lines_do_not_make_the_search_for_bookmark_titles_slow():
    """If two patterns could divide the spaces between them, each bookmark would take a second."""
    text = "Chapter" + " " * 19_000 + "\nChapter 2:  The  end"
    bookmarks = [Bookmark("Start", 1, 0)] * 100 + [Bookmark("The end", 1, 0)]
    started = time.perf_counter()
    headings = headings_of_bookmarks(bookmarks, text, [PageRange(0, len(text))])
    assert time.perf_counter() - started < 5
    assert [heading.char_start for heading in headings] == [0] * 100 + [text.index("\n") + 1]
