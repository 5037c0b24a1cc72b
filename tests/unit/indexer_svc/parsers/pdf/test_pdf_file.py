"""A PDF gives the text of its pages, its sections and its title, or an error with the reason."""

import random
import time

import pytest

from hrag.errors import HragError, TooLarge, UnreadableDocument
from hrag.values.read_report import LeftOut, LeftOutKind
from indexer_svc.parsers.parsed_file import Heading, ParsedFile
from indexer_svc.parsers.pdf import parse_pdf, pdf_file
from tests.support.documents import pdfs

AMPLE_BYTES = 1 << 20


def pages_of(read: ParsedFile) -> list[str]:
    return [read.text[page.char_start : page.char_end] for page in read.pages]


def read_pages(content: bytes) -> list[str]:
    return pages_of(parse_pdf(content, AMPLE_BYTES))


def headings(content: bytes) -> list[tuple[str, int, str]]:
    """Returns title, depth and line of each heading."""
    read = parse_pdf(content, AMPLE_BYTES)
    return [
        (item.title, item.depth, read.text[item.char_start :].split("\n")[0])
        for item in read.headings
    ]


def test_the_text_of_each_page_is_read():
    content = pdfs.pdf_of(["First page\nsecond line", "", "Café (3) \\ x"])
    assert read_pages(content) == ["First page second line", "", "Café (3) \\ x"]


def test_words_broken_at_a_line_end_are_joined():
    assert read_pages(pdfs.pdf_of(["the docu-\nmentation"])) == ["the documentation"]


def test_codes_broken_at_a_line_end_keep_their_hyphen():
    assert read_pages(pdfs.pdf_of(["the code E-\n4711"])) == ["the code E-4711"]


def test_a_page_without_text_is_unread():
    read = parse_pdf(pdfs.pdf_of(["a", "b"]), AMPLE_BYTES)
    assert read.report.unread_pages == ()
    drawn = b"10 10 50 50 re f " * 60
    read = parse_pdf(pdfs.pdf_of_streams([drawn, pdfs.shown_at(50, 700, "a")]), AMPLE_BYTES)
    assert pages_of(read) == ["", "a"]
    assert read.report.unread_pages == (1,)


def test_a_page_whose_font_says_nothing_about_its_characters_is_unread():
    lost = b"BT /F4 12 Tf 50 700 Td <00410042004300440045> Tj ET"
    read = parse_pdf(pdfs.pdf_of_streams([lost, pdfs.shown_at(50, 700, "a")]), AMPLE_BYTES)
    assert pages_of(read) == ["", "a"]
    assert read.report.unread_pages == (1,)


def test_bookmarks_are_headings_at_their_lines():
    content = pdfs.pdf_of(
        ["Intro tells\n1. Intro\ntext\nMore\ntext", "elsewhere"],
        [
            pdfs.Bookmark("Intro", 1, 0),
            pdfs.Bookmark("More", 2, 0),
            pdfs.Bookmark("Not printed", 2, 1),
        ],
    )
    assert headings(content) == [
        ("1. Intro", 1, "# 1. Intro"),
        ("More", 2, "## More"),
        ("Not printed", 2, "## Not printed"),
    ]


def test_blank_bookmarks_and_bookmarks_without_a_page_are_left_out():
    content = pdfs.pdf_of(
        ["a"], [pdfs.Bookmark(" ", 1, 0), pdfs.Bookmark("gone", 1, 50), pdfs.Bookmark("ok", 1, 0)]
    )
    assert [title for title, _, _ in headings(content)] == ["ok"]


def test_a_bookmark_with_half_of_a_surrogate_pair_is_left_out():
    content = pdfs.pdf_of(["a"], [pdfs.Bookmark("XY", 1, 0), pdfs.Bookmark("ok", 1, 0)])
    halved = content.replace(b"00580059", b"d8000059")
    assert halved != content
    assert [title for title, _, _ in headings(halved)] == ["ok"]


def test_a_bookmark_that_is_its_own_successor_ends_the_outline():
    content = pdfs.pdf_of(["a"], [pdfs.Bookmark("one", 1, 0), pdfs.Bookmark("two", 1, 0)])
    looped = content.replace(b"/Next 9 0 R", b"/Next 8 0 R")
    assert looped != content
    assert [title for title, _, _ in headings(looped)] == ["one"]


def test_bookmarks_of_a_file_without_text_are_left_out():
    content = pdfs.pdf_of([""], [pdfs.Bookmark("Part", 1, 0)])
    assert parse_pdf(content, AMPLE_BYTES).text == ""


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
    assert parse_pdf(pdfs.pdf_of(["a"], title=written), AMPLE_BYTES).title == title


def test_a_title_with_half_of_a_surrogate_pair_is_left_out():
    content = pdfs.pdf_of(["a"], title="XY")
    halved = content.replace(b"00580059", b"d8000059")
    assert halved != content
    assert parse_pdf(halved, AMPLE_BYTES).title == ""


def test_the_error_says_that_a_password_is_needed():
    with pytest.raises(UnreadableDocument, match="encrypted PDF that needs a password") as caught:
        parse_pdf(pdfs.encrypted_pdf(["secret"], "hush"), AMPLE_BYTES)
    assert caught.value.field == "content"


def test_the_error_says_that_the_encryption_is_unknown():
    content = pdfs.encrypted_pdf(["secret"], "hush").replace(b"/Standard", b"/Homemade")
    with pytest.raises(UnreadableDocument, match="encrypted in an unknown way"):
        parse_pdf(content, AMPLE_BYTES)


def test_encrypted_pdf_with_the_empty_password_is_read():
    assert read_pages(pdfs.encrypted_pdf(["open to all"], "")) == ["open to all"]


@pytest.mark.parametrize(
    "content", [pdfs.broken_pdf(), b"", b"%PDF-1.7", b"plain text", pdfs.pdf_of([])]
)
def test_damaged_pdfs_are_unreadable(content):
    with pytest.raises(UnreadableDocument, match="content is not a readable PDF: ") as caught:
        parse_pdf(content, AMPLE_BYTES)
    assert caught.value.field == "content"


def test_the_error_names_a_page_that_cannot_be_loaded():
    content = pdfs.pdf_of(["a", "b"]).replace(
        b"8 0 obj\n<< /Type /Page ", b"8 0 obj\n(no dictionary) "
    )
    with pytest.raises(UnreadableDocument, match="not a readable PDF: page 2: "):
        parse_pdf(content, AMPLE_BYTES)


def test_text_beyond_the_limit_is_refused():
    content = pdfs.pdf_of(["12345", "é7890"])
    assert len(parse_pdf(content, 20).pages) == 2
    with pytest.raises(TooLarge, match=r"11 bytes.*first 2 pages.*HRAG_MAX_DOCUMENT_BYTES.* 10"):
        parse_pdf(content, 10)


def test_pages_beyond_the_limit_are_refused(monkeypatch):
    monkeypatch.setattr(pdf_file, "MAX_PAGES", 2)
    assert len(parse_pdf(pdfs.pdf_of(["a", "b"]), AMPLE_BYTES).pages) == 2
    with pytest.raises(TooLarge, match="3 pages; at most 2"):
        parse_pdf(pdfs.pdf_of(["a", "b", "c"]), AMPLE_BYTES)


def test_a_table_is_markdown():
    cells = [("Part", "Qty", "Price"), ("Pump", "1", "120"), ("Valve", "7", "8")]
    stream = b"".join(
        pdfs.shown_at(x, 700 - 16 * row, text)
        for row, texts in enumerate(cells)
        for x, text in zip((50, 150, 250), texts, strict=True)
    )
    read = parse_pdf(pdfs.pdf_of_streams([stream]), AMPLE_BYTES)
    assert (
        read.text
        == "| Part | Qty | Price |\n| --- | --- | --- |\n| Pump | 1 | 120 |\n| Valve | 7 | 8 |"
    )
    assert read.report.table_count == 1


def test_what_is_left_out_is_reported():
    stream = b"".join(pdfs.shown_at(50, 700 - 12 * row, f"line {row} of text") for row in range(9))
    pages = [stream + pdfs.shown_at(50, 800, "The report") for _ in range(4)]
    read = parse_pdf(pdfs.pdf_of_streams(pages), AMPLE_BYTES)
    assert "The report" not in read.text
    assert [(item.kind, item.part_count, item.example) for item in read.report.left_out] == [
        ("running_head", 4, "The report")
    ]


def test_slanted_text_is_reported():
    slanted = b"BT /F1 40 Tf 0.7 0.7 -0.7 0.7 100 300 Tm (DRAFT) Tj ET\n"
    pages = [slanted + pdfs.shown_at(50, 700, "text")] * 2
    read = parse_pdf(pdfs.pdf_of_streams(pages), AMPLE_BYTES)
    assert pages_of(read) == ["text", "text"]
    assert read.report.left_out == (LeftOut(LeftOutKind.SLANTED_TEXT, 2, "DRAFT"),)
    assert parse_pdf(pdfs.pdf_of_streams([slanted]), AMPLE_BYTES).report.left_out


@pytest.mark.parametrize(
    "pages",
    [
        ["line 1", "line 2", "line 3"],
        ["line 1", "Other words", "line 3", "and more"],
        ["line 1\nline 2\nline 3"] * 6,
        ["1 apples", "2 pears", "Cherries", "Dates and other words"],
        ["Alpha", "2", "Gamma"],
        ["Label"] * 3 + ["Label\nof a box"],
    ],
)
def test_pages_of_a_few_words_keep_them(pages):
    content = pdfs.pdf_of(pages)
    assert read_pages(content) == [page.replace("\n", " ") for page in pages]


def test_a_page_without_text_has_no_running_head_where_other_pages_have_one():
    pages = ["Report\n\n\nthe text", "Report\n\n\nmore text", "Report", "Report\n\n\nits end"]
    assert read_pages(pdfs.pdf_of(pages)) == ["the text", "more text", "", "its end"]


def test_a_file_without_bookmarks_has_headings_by_their_style():
    lines = b"".join(
        pdfs.shown_at(50, 650 - 12 * row, "words that go on and on in the text of this page")
        for row in range(9)
    )
    stream = pdfs.shown_at(50, 700, "Safety rules", font="F2", size=16) + lines
    read = parse_pdf(pdfs.pdf_of_streams([stream]), AMPLE_BYTES)
    assert read.headings == (Heading("Safety rules", 1, 0),)


def test_randomly_damaged_pdfs_are_read_or_refused():
    rng = random.Random(7)
    original = pdfs.pdf_of(["one", "two"], [pdfs.Bookmark("x", 1, 1)], title="Numbers")
    refused = 0
    for _ in range(300):
        damaged = bytearray(original)
        for _ in range(rng.randrange(1, 12)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            parse_pdf(bytes(damaged[: rng.randrange(len(damaged))]), AMPLE_BYTES)
        except HragError:
            refused += 1
    assert refused > 0


def test_a_refused_file_leaves_the_next_one_readable():
    with pytest.raises(UnreadableDocument):
        parse_pdf(b"no", AMPLE_BYTES)
    assert read_pages(pdfs.pdf_of(["yes"])) == ["yes"]


def test_hostile_lines_do_not_make_the_search_for_bookmark_titles_slow():
    page = "\n".join(["Chapter 2" + " x" * 20] * 500 + ["Chapter 2: The end"])
    bookmarks = [pdfs.Bookmark("Start", 1, 0)] * 200 + [pdfs.Bookmark("The end", 1, 0)]
    content = pdfs.pdf_of([page], bookmarks)
    started = time.process_time()
    read = parse_pdf(content, AMPLE_BYTES)
    assert time.process_time() - started < 5
    assert read.headings[-1].title == "Chapter 2: The end"
