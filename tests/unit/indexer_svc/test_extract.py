"""Documents become text with pages, sections and a title, or are refused with a reason."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hrag.errors import BlankDocument, InvalidArgument, TooLarge, UnreadableDocument
from hrag.text import tokens
from hrag.types import MARKDOWN, MAX_PAGES, MAX_TITLE_BYTES, PLAIN_TEXT, Document, Page
from hrag.values.document_limits import MAX_RUN_CHARS, MAX_WHITE_SPACE_CHARS
from hrag.values.formats import CSV, DOCX, EPUB, HTML, PPTX, PYTHON, RST, XLSX, XML
from hrag.values.tree import PageSpan, ParsedText, Section
from indexer_svc import extract as module
from indexer_svc.extract import extract
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.parser_functions import parse
from tests.support.documents import pdfs
from tests.support.documents.format_files import (
    DANCE,
    docx_file,
    epub_file,
    html_page,
    pptx_file,
    xlsx_file,
)

AMPLE_BYTES = 32 << 20
MIB = 1 << 20


def parsed(document: Document, max_bytes: int = AMPLE_BYTES) -> ParsedText:
    return extract(document, max_bytes, parse).parsed


def title(document: Document) -> str:
    return extract(document, AMPLE_BYTES, parse).title


def refusal(error: type[InvalidArgument], document: Document, max_bytes: int = AMPLE_BYTES):
    with pytest.raises(InvalidArgument) as caught:
        extract(document, max_bytes, parse)
    assert type(caught.value) is error
    return caught.value


def test_text_is_kept_as_it_is():
    text = "\ufeffone\r\n\ttwo \x00 汉字\n"
    assert parsed(Document(text), AMPLE_BYTES) == ParsedText(text)


def test_bytes_are_utf8_without_byte_order_mark():
    assert parsed(Document(b"\xef\xbb\xbfcaf\xc3\xa9"), AMPLE_BYTES) == ParsedText("café")


def test_a_format_that_needs_a_parser_process_is_parsed_there_at_any_size():
    calls = []

    def parse_in_process(
        content: bytes, mime_type: str, max_text_bytes: int, keep_boilerplate: bool
    ) -> ParsedFile:
        calls.append((mime_type, max_text_bytes))
        assert not keep_boilerplate
        return parse(content, mime_type, max_text_bytes)

    for make_file in (html_page, docx_file, pptx_file, xlsx_file, epub_file):
        assert DANCE in extract(Document(make_file()), AMPLE_BYTES, parse_in_process).parsed.text
    extract(Document("<p>text", mime_type=HTML), AMPLE_BYTES, parse_in_process)
    extract(Document("a\n=", mime_type=RST), AMPLE_BYTES, parse_in_process)
    mime_types = (HTML, DOCX, PPTX, XLSX, EPUB, HTML, RST)
    assert calls == [(mime_type, AMPLE_BYTES) for mime_type in mime_types]


def test_pages_that_a_client_sends_keep_their_text_without_front_matter():
    pages = (Page("---\ntitle: Bees\n---\n\n# Dance"), Page("Round."), Page(""))
    read = extract(Document(pages, mime_type=MARKDOWN), AMPLE_BYTES, parse).parsed
    assert [read.text[page.char_start : page.char_end] for page in read.pages] == [
        "# Dance",
        "Round.",
        "",
    ]
    assert [section.char_start for section in read.sections] == [0]


@pytest.mark.parametrize(
    ("mime_type", "text"),
    [(MARKDOWN, "# a\n"), (PYTHON, "def a(): pass\n"), (CSV, "a,b\n")],
)
def test_a_short_text_is_parsed_directly_and_a_long_one_in_a_process_with_equal_results(
    mime_type, text
):
    calls = []

    def parse_in_process(
        content: bytes, mime_type: str, max_text_bytes: int, keep_boilerplate: bool
    ) -> ParsedFile:
        calls.append(mime_type)
        return parse(content, mime_type, max_text_bytes, keep_boilerplate)

    for times, expected_calls in ((2, []), (20_000, [mime_type])):
        document = Document(text * times, mime_type=mime_type)
        sections = extract(document, AMPLE_BYTES, parse_in_process).parsed.sections
        assert calls == expected_calls
        assert bool(sections) == (mime_type != CSV)


def test_slides_are_pages_and_sections():
    slides = parsed(Document(pptx_file()))
    assert [page.number for page in slides.pages] == [1, 2, 3]
    assert [section.title for section in slides.sections] == ["Dance", "Slide 3"]


@pytest.mark.parametrize("mime_type", ["", "text/plain", "text/markdown", "text/csv", "text/x-c"])
def test_bytes_with_a_nul_are_not_text(mime_type):
    error = refusal(UnreadableDocument, Document(b"NOISE!a\x01\0\x02", mime_type=mime_type))
    assert error.field == "mime_type"
    assert "NUL byte at offset 8" in error.message
    assert "mime_type may name its format if it is not text" in error.message


@pytest.mark.parametrize("mime_type", ["", "text/plain", "text/html", "text/csv", "text/x-c"])
@pytest.mark.parametrize(
    ("encoding", "name", "is_guessed"),
    [
        ("utf-8", "utf-8", False),
        ("utf-8-sig", "utf-8", False),
        ("utf-16", "utf-16-le", False),
        ("cp1252", "windows-1252", True),
    ],
)
def test_a_text_is_the_same_in_any_encoding_and_its_encoding_is_reported(
    mime_type, encoding, name, is_guessed
):
    line = "Größe: der Käse reift früh in der Höhle\n"
    document = Document(line.encode(encoding), mime_type=mime_type)
    in_utf_8 = Document(line.encode(), mime_type=mime_type)
    extracted = extract(document, AMPLE_BYTES, parse)
    assert extracted.parsed == extract(in_utf_8, AMPLE_BYTES, parse).parsed
    assert extracted.report.encoding == name
    assert extracted.report.is_encoding_guessed == is_guessed
    assert extracted.report.mime_type == (mime_type or PLAIN_TEXT)


def test_an_encoding_that_the_client_names_is_used():
    document = Document("č".encode("cp1250"), encoding="windows-1250")
    assert parsed(document) == ParsedText("č")
    assert refusal(InvalidArgument, Document("č", encoding="utf-8")).field == "encoding"
    assert refusal(InvalidArgument, Document(b"a", encoding="base64")).field == "encoding"
    error = refusal(UnreadableDocument, Document(b"caf\xe9", encoding="utf-8"))
    assert (error.field, "0xE9 at offset 3" in error.message) == ("encoding", True)
    # A file that is not a text has no encoding.
    assert DANCE in parsed(Document(docx_file(), encoding="windows-1250")).text


def test_the_size_of_a_text_is_limited_in_utf_8():
    content = ("中文的文档，关于猫和狗。" * 10).encode("gb18030")
    error = refusal(TooLarge, Document(content), len(content) + 1)
    assert error.field == "content"
    assert "360 bytes of text in UTF-8" in error.message
    assert parsed(Document(content), 360).text.startswith("中文")


@pytest.mark.parametrize(
    ("text", "mime_type", "codec"),
    [
        ('<meta charset="koi8-r"><p>Привет', HTML, "koi8_r"),
        ('<?xml version="1.0" encoding="iso-8859-1"?><a>é</a>', XML, "latin_1"),
        ("# coding: latin-1\nclass Ré:\n    pass\n", PYTHON, "cp1252"),
    ],
)
def test_an_encoding_that_the_file_declares_is_used(text, mime_type, codec):
    document = Document(text.encode(codec), mime_type=mime_type)
    in_utf_8 = Document(text.encode(), mime_type=mime_type)
    assert parsed(document) == parsed(in_utf_8)
    assert not extract(document, AMPLE_BYTES, parse).report.is_encoding_guessed


def test_the_report_counts_what_was_read():
    report = extract(Document(pptx_file()), AMPLE_BYTES, parse).report
    assert (report.mime_type, report.page_count, report.section_count) == (PPTX, 3, 2)
    assert report.encoding == ""
    report = extract(Document((Page("a"), Page("b"))), AMPLE_BYTES, parse).report
    assert (report.mime_type, report.page_count) == (PLAIN_TEXT, 2)


@pytest.mark.parametrize(
    ("body", "mime_type", "message"),
    [
        ("<p>", HTML, "text is an HTML page without text"),
        (b"<script>x</script>", HTML, "content is an HTML page without text"),
        (b",,\n,,", CSV, "content is blank"),
    ],
)
def test_a_file_without_text_is_blank(body, mime_type, message):
    assert message in refusal(BlankDocument, Document(body, mime_type=mime_type)).message


def test_source_code_keeps_its_lines_and_only_definitions_are_headings():
    shell = "#!/bin/sh\n# Title\n\n\techo x\n"
    assert parsed(Document(shell, mime_type="text/x-shellscript")) == ParsedText(shell)
    python = "# Title\nclass A:\n    pass\n"
    assert parsed(Document(python, mime_type=PYTHON)) == ParsedText(
        python, (Section("class A", 1, 8),)
    )


def test_too_much_text_of_a_file_is_refused():
    page = b"<table>" + b"<tr><td>x" * 50
    error = refusal(TooLarge, Document(page, mime_type=HTML), len(page) - 1)
    assert "HRAG_MAX_DOCUMENT_BYTES allows" in error.message
    records = b"Name,Price\n" + b"Pump,1\n" * 200
    error = refusal(TooLarge, Document(records, mime_type=CSV), len(records))
    assert error.message.startswith("content has more than")


@pytest.mark.usefixtures("without_formats_extra")
def test_without_the_extra_its_formats_are_refused():
    error = refusal(InvalidArgument, Document(docx_file()))
    assert error.field == "mime_type"
    assert "pip install '.[formats]'" in error.message


def test_pages_are_joined_by_a_blank_line():
    pages = (Page("one 一"), Page("", 7), Page("three"))
    assert parsed(Document(pages), AMPLE_BYTES) == ParsedText(
        "one 一\n\n\n\nthree", (), (PageSpan(1, 0, 5), PageSpan(7, 7, 7), PageSpan(3, 9, 14))
    )


@given(st.lists(st.text(st.characters(codec="utf-8")), min_size=1))
def test_every_page_span_contains_the_text_of_its_page(texts):
    joined = parsed(Document((Page("visible"), *map(Page, texts))), AMPLE_BYTES)
    assert [joined.text[page.char_start : page.char_end] for page in joined.pages[1:]] == texts
    assert [page.number for page in joined.pages] == list(range(1, len(texts) + 2))


def test_markdown_headings_of_pages_are_sections_of_the_joined_text():
    document = Document((Page("# A\nx"), Page("B\n---")), mime_type="text/markdown")
    joined = parsed(document, AMPLE_BYTES)
    assert joined.sections == (Section("A", 1, 0), Section("B", 2, 7))
    assert len(joined.pages) == 2


def test_markdown_bytes_have_sections_and_plain_text_has_none():
    assert parsed(Document(b"# A", mime_type=MARKDOWN), AMPLE_BYTES).sections == (
        Section("A", 1, 0),
    )
    assert parsed(Document("# A"), AMPLE_BYTES).sections == ()


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
def test_damaged_utf8_is_unreadable_from_an_offset(mark):
    error = refusal(UnreadableDocument, Document(mark + "Größe ".encode() * 2 + b"caf\xe9 x"))
    assert f"byte 0xE9 at offset {19 + len(mark)}" in error.message
    assert error.field == "encoding"


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


def test_the_longest_allowed_run_without_white_space_is_accepted():
    run = "x" * MAX_RUN_CHARS
    assert parsed(Document(f"{run} {run}\n{run}"), AMPLE_BYTES).text


@pytest.mark.parametrize("before", ["", "ab cd\u3000", " " * 10])
@pytest.mark.parametrize("after", ["", " tail", "\u3000" + "y" * 50])
def test_a_longer_run_without_white_space_is_refused_with_its_offset(before, after):
    error = refusal(InvalidArgument, Document(before + "汉" * (MAX_RUN_CHARS + 2) + after))
    assert f"1000002 characters without white space from character {len(before)}" in error.message
    assert "at most 1000000" in error.message
    assert error.field == "text"


@pytest.mark.parametrize("separator", "\x1c\x1d\x1e\x1f")
def test_separators_that_are_no_white_space_for_the_tokenizer_do_not_end_a_run(separator):
    body = ("-" * 999_000 + separator) * 2
    error = refusal(InvalidArgument, Document("ab " + body))
    assert f"{len(body)} characters without white space from character 3" in error.message


@pytest.mark.parametrize("before", ["ab", "ab c"])
@pytest.mark.parametrize("blank", [" ", "\n", "\u3000"])
@pytest.mark.parametrize("after", ["", "tail"])
def test_a_longer_run_of_white_space_is_refused_with_its_offset(before, blank, after):
    longest = MAX_WHITE_SPACE_CHARS
    assert parsed(Document(before + blank * longest + after), AMPLE_BYTES).text
    error = refusal(InvalidArgument, Document(before + blank * (longest + 1) + after))
    assert error.message == (
        f"text has 250001 characters of white space in a row from character {len(before)}; "
        "at most 250000 are allowed"
    )
    assert error.field == "text"


def test_runs_of_white_space_are_limited_in_every_text():
    blanks = " " * (MAX_WHITE_SPACE_CHARS + 1)
    assert refusal(InvalidArgument, Document(f"a{blanks}b".encode())).field == "content"
    pages = Document((Page("a"), Page(blanks), Page("b")))
    assert refusal(InvalidArgument, pages).field == "pages"
    page = f"<p>a</p><pre>b{blanks}c</pre>"
    assert "white space" in refusal(InvalidArgument, Document(page, mime_type=HTML)).message


def test_all_pages_except_two_may_be_empty():
    pages = (Page("first"), *[Page("")] * (MAX_PAGES - 2), Page("last"))
    assert len(parsed(Document(pages)).pages) == MAX_PAGES


@settings(max_examples=300)
@given(st.text("ab \n\u3000", max_size=60), st.integers(1, 6))
def test_a_run_without_white_space_is_refused_exactly_when_it_is_too_long(text, longest):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_RUN_CHARS", longest)
        document = Document("a " + text)
        runs = document.body.split()
        if max(map(len, runs)) <= longest:
            assert parsed(document, AMPLE_BYTES).text == document.body
        else:
            first = next(run for run in runs if len(run) > longest)
            assert f"text has {len(first)} characters" in refusal(InvalidArgument, document).message


@settings(max_examples=300)
@given(st.text("ab \n\u3000", max_size=60), st.integers(1, 6))
def test_a_run_of_white_space_is_refused_exactly_when_it_is_too_long(text, longest):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_WHITE_SPACE_CHARS", longest)
        document = Document(f"a{text}")
        runs = re.finditer(r"\s+", document.body)
        first = next((run for run in runs if len(run[0]) > longest), None)
        if first is None:
            assert parsed(document, AMPLE_BYTES).text == document.body
        else:
            expected = f"{len(first[0])} characters of white space in a row from {first.start()}"
            message = refusal(InvalidArgument, document).message
            assert expected in message.replace("from character", "from")


WHITE_SPACE = [c for c in map(chr, range(0x10000)) if c.isspace() and not "\x1c" <= c <= "\x1f"]
LONGEST = MAX_WHITE_SPACE_CHARS
LONGEST_PIECES = {
    "letters": "x" * MAX_RUN_CHARS,
    "ideographs": "汉" * MAX_RUN_CHARS,
    "digits": "7" * MAX_RUN_CHARS,
    "marks": "-" * MAX_RUN_CHARS + "\n" * LONGEST,
    "combining marks": "\u0301" * MAX_RUN_CHARS,
    "separators": "\x1f" * MAX_RUN_CHARS,
    "line breaks": "\n" * LONGEST,
    "blanks": " " * LONGEST,
    "blanks before a line break": " " * (LONGEST - 1) + "\n",
    "blanks and line breaks": " \n" * (LONGEST // 2),
    "line breaks before blanks": "\n" + " " * (LONGEST - 1),
    "white space of every kind": "".join(WHITE_SPACE) * (LONGEST // len(WHITE_SPACE)),
    **{f"U+{ord(blank):04X}": blank * LONGEST for blank in WHITE_SPACE},
}


@pytest.mark.parametrize("piece", LONGEST_PIECES.values(), ids=LONGEST_PIECES)
def test_the_longest_allowed_pieces_of_text_are_tokenized_quickly(piece):
    """With a longer piece, the tokenizer would be slow or would fail."""
    before, after = ("" if side in WHITE_SPACE else " " for side in (piece[0], piece[-1]))
    text = parsed(Document(f"a{before}{piece}{after}b")).text
    started = time.process_time()
    ends = tokens.byte_ends(tokens.encode(text))
    size_bytes = len(text.encode())
    assert ends[-1] == size_bytes
    assert time.process_time() - started < 1 + 4e-6 * size_bytes


@pytest.mark.parametrize(
    "unit",
    ["word ", "x" * 999_999 + " ", " " * 249_999 + "x", "汉字 ", "\x1c ", " " * 10_000 + "word"],
)
def test_a_text_of_32_mib_is_checked_quickly(unit):
    text = "x " + unit * (32 * MIB // len(unit.encode()) - 2)
    started = time.process_time()
    parsed(Document(text), AMPLE_BYTES)
    assert time.process_time() - started < 1.0


def test_pdf_pages_are_joined_and_numbered():
    joined = parsed(Document(pdfs.pdf_of(["one", "", "three"])), AMPLE_BYTES)
    assert joined == ParsedText(
        "one\n\nthree", (), (PageSpan(1, 0, 3), PageSpan(2, 3, 3), PageSpan(3, 5, 10))
    )


def test_pdf_bookmarks_are_sections_at_the_lines_of_their_titles():
    content = pdfs.pdf_of(
        ["Intro tells\n1. Intro\ntext\nMore\ntext", "elsewhere", "last"],
        [
            pdfs.Bookmark("Intro", 1, 0),
            pdfs.Bookmark("More", 2, 0),
            pdfs.Bookmark("Not printed", 2, 1),
            pdfs.Bookmark("Back", 1, 0),
        ],
    )
    document = parsed(Document(content), AMPLE_BYTES)
    assert document.sections == (
        Section("1. Intro", 1, document.text.index("# 1. Intro")),
        Section("More", 2, document.text.index("## More")),
        Section("Back", 1, document.text.index("# Back")),
        Section("Not printed", 2, document.text.index("## Not printed")),
    )


@pytest.mark.parametrize(
    "line", ["ON THE VALVE", "2.1 On the valve", "IV. On the valve", "Chapter 3: On\nthe valve"]
)
def test_the_line_of_a_bookmark_may_be_numbered_broken_and_in_another_case(line):
    content = pdfs.pdf_of(
        [f"More on the valve\n{line}\ntext"], [pdfs.Bookmark("On the valve", 1, 0)]
    )
    document = parsed(Document(content), AMPLE_BYTES)
    title = line.replace("\n", " ")
    assert document.sections == (Section(title, 1, document.text.index(f"# {title}")),)


def test_bookmarks_of_a_last_page_without_text_are_left_out():
    content = pdfs.pdf_of(["one", ""], [pdfs.Bookmark("A", 1, 0), pdfs.Bookmark("B", 1, 1)])
    assert parsed(Document(content), AMPLE_BYTES).sections == (Section("A", 1, 0),)


def test_a_pdf_without_text_is_refused():
    error = refusal(BlankDocument, Document(pdfs.pdf_without_text(2)))
    assert error.message == "content is a PDF without readable text on any of its 2 pages"
    assert error.field == "content"


def test_size_limit_applies_to_the_text_of_a_small_pdf():
    content = pdfs.pdf_of(["\n".join(["x" * 60] * 50)] * 10)
    assert len(content) < 10_000
    error = refusal(TooLarge, Document(content), 10_000)
    assert "12000 bytes of text on its first 4 pages" in error.message


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
def test_the_title_comes_from_the_document(document, expected):
    assert title(document) == expected


def test_a_title_is_within_the_limit_of_titles():
    document = Document(f"---\ntitle: {'é' * 2000}\n---\ntext", mime_type=MARKDOWN)
    assert title(document) == "é" * (MAX_TITLE_BYTES // 2)
    assert title(Document(pdfs.pdf_of(["a"], title="汉" * 2000))) == "汉" * (MAX_TITLE_BYTES // 3)
