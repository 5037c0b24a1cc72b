"""Documents become text with pages, sections and a title, or are refused with a reason."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hrag.errors import BlankDocument, InvalidArgument, TooLarge, UnreadableDocument
from hrag.tree import PageSpan, ParsedText, Section
from hrag.types import MARKDOWN, MAX_TITLE_BYTES, PDF, PLAIN_TEXT, Document, Page
from indexer_svc import extract as module
from indexer_svc.extract import MAX_RUN_CHARS, extract, resolve_mime_type
from indexer_svc.parsers.formats import parse
from tests import pdfs

PLENTY = 32 << 20
MIB = 1 << 20


def parsed(document: Document, max_bytes: int = PLENTY) -> ParsedText:
    return extract(document, max_bytes, parse).parsed


def title(document: Document) -> str:
    return extract(document, PLENTY, parse).title


def refusal(error: type[InvalidArgument], document: Document, max_bytes: int = PLENTY):
    with pytest.raises(InvalidArgument) as caught:
        extract(document, max_bytes, parse)
    assert type(caught.value) is error
    return caught.value


def test_text_is_kept_as_it_is():
    text = "\ufeffone\r\n\ttwo \x00 汉字\n"
    assert parsed(Document(text), PLENTY) == ParsedText(text)


def test_bytes_are_utf8_without_byte_order_mark():
    assert parsed(Document(b"\xef\xbb\xbfcaf\xc3\xa9"), PLENTY) == ParsedText("café")


@pytest.mark.parametrize(
    ("body", "given_type", "resolved"),
    [
        ("a", "", PLAIN_TEXT),
        ((Page("a"),), "", PLAIN_TEXT),
        (b"a", "", PLAIN_TEXT),
        (b"%PDF-1.7", "", PDF),
        ("%PDF-1.7", "", PLAIN_TEXT),
        (b"%PDF-1.7", "text/plain", PLAIN_TEXT),
        (b"a", "application/pdf", PDF),
        ("a", "Text/Markdown; charset=utf-8", MARKDOWN),
        ((Page("a"),), " text/markdown ", MARKDOWN),
        ("a", "; charset=utf-8", PLAIN_TEXT),
    ],
)
def test_type_is_resolved_from_the_given_type_and_the_body(body, given_type, resolved):
    assert resolve_mime_type(Document(body, mime_type=given_type)) == resolved


@pytest.mark.parametrize(
    ("body", "given_type", "allowed"),
    [
        ("a", "application/pdf", "with text it must be text/plain, text/markdown or empty"),
        ((Page("a"),), "application/pdf", "with pages it must be text/plain, text/markdown or"),
        (b"a", "image/png", "text/plain, text/markdown, application/pdf or empty"),
        ("a", "text", "text/plain, text/markdown"),
    ],
)
def test_other_types_are_refused_with_the_allowed_ones(body, given_type, allowed):
    error = refusal(InvalidArgument, Document(body, mime_type=given_type))
    assert error.field == "mime_type"
    assert allowed in error.message
    assert f"'{given_type}'" in error.message


def test_pages_are_joined_by_a_blank_line():
    pages = (Page("one 一"), Page("", 7), Page("three"))
    assert parsed(Document(pages), PLENTY) == ParsedText(
        "one 一\n\n\n\nthree", (), (PageSpan(1, 0, 5), PageSpan(7, 7, 7), PageSpan(3, 9, 14))
    )


@given(st.lists(st.text(st.characters(codec="utf-8")), min_size=1))
def test_every_page_span_is_its_page(texts):
    found = parsed(Document((Page("visible"), *map(Page, texts))), PLENTY)
    assert [found.text[page.char_start : page.char_end] for page in found.pages[1:]] == texts
    assert [page.number for page in found.pages] == list(range(1, len(texts) + 2))


def test_markdown_headings_of_pages_are_sections_of_the_joined_text():
    document = Document((Page("# A\nx"), Page("B\n---")), mime_type="text/markdown")
    found = parsed(document, PLENTY)
    assert found.sections == (Section("A", 1, 0), Section("B", 2, 7))
    assert len(found.pages) == 2


def test_markdown_bytes_have_sections_and_plain_text_has_none():
    assert parsed(Document(b"# A", mime_type=MARKDOWN), PLENTY).sections == (Section("A", 1, 0),)
    assert parsed(Document("# A"), PLENTY).sections == ()


@pytest.mark.parametrize(
    ("body", "field", "size"),
    [("é" * 6, "text", 12), (b"x" * 12, "content", 12), ((Page("é" * 4), Page("yy")), "pages", 12)],
)
def test_size_is_measured_in_bytes_and_may_reach_the_limit(body, field, size):
    assert parsed(Document(body), size).text
    error = refusal(TooLarge, Document(body), size - 1)
    assert error.field == field
    assert error.message == f"{field} is 12 bytes; HRAG_MAX_DOCUMENT_BYTES allows 11"


def test_a_large_pdf_file_is_refused_before_it_is_read():
    error = refusal(TooLarge, Document(b"%PDF-" + b"x" * 100), 50)
    assert error.message == "content is 105 bytes; HRAG_MAX_DOCUMENT_BYTES allows 50"


def test_too_many_pages_are_refused():
    error = refusal(TooLarge, Document((Page("x"),) * (module.MAX_PAGES + 1)))
    assert error.message == "pages has 100001 pages; at most 100000 are allowed"
    assert error.field == "pages"


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_bytes_that_are_not_utf8_are_unreadable_from_an_offset(mark):
    error = refusal(UnreadableDocument, Document(mark + b"caf\xe9 x"))
    assert f"byte 0xE9 at offset {3 + len(mark)}" in error.message
    assert error.field == "content"


@pytest.mark.parametrize(
    ("body", "name", "field"),
    [
        ("ab\ud800c", "text has", "text"),
        ((Page("x"), Page("ab\ud800")), "pages[1].text has", "pages"),
    ],
)
def test_lone_surrogates_are_refused(body, name, field):
    error = refusal(InvalidArgument, Document(body))
    assert error.message.startswith(f"{name} the lone surrogate U+D800 at character 2")
    assert error.field == field


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ("", "text"),
        (" \n\t\u3000\xa0", "text"),
        ("\ufeff\u200b \u2060", "text"),
        (b"", "content"),
        (b"\xef\xbb\xbf\n", "content"),
        ((), "pages"),
        ((Page(""), Page(" \n")), "pages"),
    ],
)
def test_blank_documents_are_refused(body, field):
    error = refusal(BlankDocument, Document(body))
    assert error.field == field
    assert f"{field} is blank" in error.message


def test_the_longest_run_allowed_is_accepted():
    run = "x" * MAX_RUN_CHARS
    assert parsed(Document(f"{run} {run}\n{run}"), PLENTY).text


@pytest.mark.parametrize("before", ["", "ab cd\u3000", " " * 10])
@pytest.mark.parametrize("after", ["", " tail", "\u3000" + "y" * 50])
def test_a_longer_run_is_refused_with_its_offset(before, after):
    error = refusal(InvalidArgument, Document(before + "汉" * (MAX_RUN_CHARS + 2) + after))
    assert f"1000002 characters without white space from character {len(before)}" in error.message
    assert "at most 1000000" in error.message
    assert error.field == "text"


@settings(max_examples=300)
@given(st.text("ab \n\u3000", max_size=60), st.integers(1, 6))
def test_a_run_is_refused_exactly_when_it_is_too_long(text, longest):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_RUN_CHARS", longest)
        document = Document("a " + text)
        runs = document.body.split()
        if max(map(len, runs)) <= longest:
            assert parsed(document, PLENTY).text == document.body
        else:
            first = next(run for run in runs if len(run) > longest)
            assert f"text has {len(first)} characters" in refusal(InvalidArgument, document).message


@pytest.mark.parametrize("unit", ["word ", "x" * 999_999 + " ", " ", "汉字 "])
def test_32_mib_are_checked_quickly(unit):
    text = "x " + unit * (32 * MIB // len(unit.encode()) - 2)
    started = time.process_time()
    parsed(Document(text), PLENTY)
    assert time.process_time() - started < 1.0


def test_pdf_pages_are_joined_and_numbered():
    found = parsed(Document(pdfs.pdf_of(["one", "", "three"])), PLENTY)
    assert found == ParsedText(
        "one\n\n\n\nthree", (), (PageSpan(1, 0, 3), PageSpan(2, 5, 5), PageSpan(3, 7, 12))
    )


def test_pdf_bookmarks_are_sections_at_their_titles_line():
    content = pdfs.pdf_of(
        ["Intro tells\n1. Intro\ntext\nMore\ntext", "elsewhere", "last"],
        [
            pdfs.Bookmark("Intro", 1, 0),
            pdfs.Bookmark("More", 2, 0),
            pdfs.Bookmark("Not printed", 2, 1),
            pdfs.Bookmark("Back", 1, 0),
        ],
    )
    found = parsed(Document(content), PLENTY)
    assert found.sections == (
        Section("Back", 1, 0),
        Section("Intro", 1, found.text.index("1. Intro")),
        Section("More", 2, found.text.index("More")),
        Section("Not printed", 2, found.text.index("elsewhere")),
    )


@pytest.mark.parametrize(
    "line", ["ON THE VALVE", "2.1 On the valve", "IV. On the valve", "Chapter 3: On\nthe valve"]
)
def test_the_line_of_a_bookmark_may_be_numbered_broken_and_in_another_case(line):
    content = pdfs.pdf_of(
        [f"More on the valve\n{line}\ntext"], [pdfs.Bookmark("On the valve", 1, 0)]
    )
    found = parsed(Document(content), PLENTY)
    assert found.sections == (Section("On the valve", 1, found.text.index(line)),)


def test_bookmarks_of_a_last_page_without_text_are_left_out():
    content = pdfs.pdf_of(["one", ""], [pdfs.Bookmark("A", 1, 0), pdfs.Bookmark("B", 1, 1)])
    assert parsed(Document(content), PLENTY).sections == (Section("A", 1, 0),)


def test_pdf_without_text_is_refused_as_a_possible_scan():
    error = refusal(BlankDocument, Document(pdfs.pdf_without_text(2)))
    assert "without text on any of its 2 pages; it may be a scan" in error.message
    assert error.field == "content"


def test_size_limit_applies_to_the_text_of_a_small_pdf():
    content = pdfs.pdf_of(["\n".join(["x" * 60] * 50)] * 10)
    assert len(content) < 10_000
    error = refusal(TooLarge, Document(content), 10_000)
    assert "12196 bytes of text on its first 4 pages" in error.message


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (Document("---\ntitle: A\n---\n# B", mime_type=MARKDOWN), "A"),
        (Document(b"\xef\xbb\xbf# B", mime_type=MARKDOWN), "B"),
        (Document((Page("none"), Page("# On page 2")), mime_type=MARKDOWN), "On page 2"),
        (Document("# B"), ""),
        (Document(pdfs.pdf_of(["a"], title="Study")), "Study"),
        (Document(pdfs.pdf_of(["a"])), ""),
    ],
)
def test_the_title_is_the_documents_own(document, expected):
    assert title(document) == expected


def test_a_title_is_within_the_limit_of_titles():
    document = Document(f"---\ntitle: {'é' * 2000}\n---\ntext", mime_type=MARKDOWN)
    assert title(document) == "é" * (MAX_TITLE_BYTES // 2)
    assert title(Document(pdfs.pdf_of(["a"], title="汉" * 2000))) == "汉" * (MAX_TITLE_BYTES // 3)
