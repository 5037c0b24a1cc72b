"""The lines of an export are read back as they were written, and malformed lines are refused.

An export leaves out a document that keeps changing.
"""

import json
from types import SimpleNamespace

import pytest

from hrag.cli.export_format import (
    CompleteDocument,
    ExportReader,
    NotAnExport,
    document_line,
    header_line,
    pages_of,
    parse_document,
    parse_header,
)
from hrag.cli.input_documents import Unreadable
from hrag.errors import DocumentChanged, DocumentNotFound
from hrag.types import (
    Chunk,
    Collection,
    CollectionSettings,
    DocumentInfo,
    Page,
    PageStart,
    SettingsRequest,
    Span,
    SummaryUnit,
    TreeSettings,
)


def _info(mime_type: str) -> DocumentInfo:
    metadata = {"标签": ["甲", 2]}
    return DocumentInfo("d", "标题", "文/d", mime_type, metadata, (1,), 1, 1, 2, 0, 1)


def test_a_document_is_read_back():
    text = "one\r\n\u2028 two \x00"
    document = parse_document(
        document_line(CompleteDocument(_info("text/markdown"), text)).encode()
    )
    assert (document.body, document.document_id, document.title) == (text, "d", "标题")
    assert (document.mime_type, document.metadata) == ("text/markdown", {"标签": ["甲", 2]})


def test_pages_are_kept_and_the_type_of_their_file_is_not_kept():
    pages = (Page("one", 7), Page("", 8))
    line = document_line(CompleteDocument(_info("application/pdf"), "one\n\n", pages))
    document = parse_document(line.encode())
    assert (document.body, document.mime_type) == (pages, "text/plain")


@pytest.mark.parametrize(
    ("stored", "sent"),
    [
        ("", ""),
        ("text/markdown", "text/markdown"),
        ("text/x-python", "text/x-python"),
        ("text/csv", "text/plain"),
        ("text/html", "text/plain"),
        ("text/x-rst", "text/plain"),
        ("application/json", "text/plain"),
        ("message/rfc822", "text/plain"),
        ("application/pdf", "text/plain"),
        ("future/type", "text/plain"),
    ],
)
def test_a_text_is_not_read_as_the_file_that_it_came_from(stored, sent):
    line = document_line(CompleteDocument(_info(stored), "text"))
    assert parse_document(line.encode()).mime_type == sent


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"\xff", "not UTF-8"),
        (b"{", "not JSON"),
        (b"[" * 100_000, "nested too deep"),
        (b"[]", "not a JSON object"),
        (b'{"text": "x"}', "id is missing"),
        (b'{"id": 5, "text": "x"}', "id is int"),
        (b'{"id": "d"}', "either text or pages"),
        (b'{"id": "d", "text": "x", "pages": []}', "either text or pages"),
        (b'{"id": "d", "text": "x", "metadata": []}', "metadata is not a JSON object"),
        (b'{"id": "d", "pages": 5}', "pages is not a list"),
        (b'{"id": "d", "pages": [{"text": 5}]}', "each page"),
        (b'{"id": "d", "pages": [{"text": "x", "number": true}]}', "each page"),
        (b'{"id": "d", "text": "x", "more": 1}', "the field 'more'"),
    ],
)
def test_a_malformed_line_is_refused(line, says):
    with pytest.raises(Unreadable, match=says):
        parse_document(line)


def test_settings_are_read_back_except_the_embedder():
    settings = CollectionSettings(
        TreeSettings((64, 128), 0.2, 1), "hash/4", 4, 1, SummaryUnit.PAGE, "german/1", True
    )
    line = header_line(Collection("t", "c", settings)).encode()
    assert parse_header(line) == SettingsRequest(
        (64, 128), 0.2, 1, 1, SummaryUnit.PAGE, None, "german", True
    )


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"", "first line"),
        (b"[1]", "first line"),
        (b'{"id": "d"}', "first line"),
        (b'{"hrag_export": 2}', "format 2"),
        (b'{"hrag_export": 1}', "settings"),
        (b'{"hrag_export": 1, "settings": {"embedder": "x"}}', "settings"),
    ],
)
def test_a_file_that_is_no_export_is_refused(line, says):
    with pytest.raises(NotAnExport, match=says):
        parse_header(line)


def _chunk(start: int, end: int, first: int, last: int, *starts: tuple[int, int]) -> Chunk:
    """Returns a chunk of the characters `start` to `end`, on the pages `first` to `last`.

    `starts` are the characters at which further pages start, each with its page number.
    """
    return Chunk(
        "d#0.0",
        "d",
        0,
        0,
        "",
        1,
        Span(0, 0, start, end),
        (),
        first,
        last,
        "",
        "",
        {},
        tuple(PageStart(number, at) for at, number in starts),
    )


@pytest.mark.parametrize(
    "chunks",
    [
        [_chunk(0, 12, 3, 5, (5, 4), (7, 5))],
        [_chunk(0, 6, 3, 4, (5, 4)), _chunk(4, 12, 3, 5, (5, 4), (7, 5))],  # These chunks overlap.
        [_chunk(0, 7, 3, 4, (5, 4)), _chunk(7, 12, 5, 5)],  # The first chunk ends with a page.
    ],
)
def test_pages_are_reconstructed_from_the_chunks(chunks):
    text = "one\n\n\n\nthree"
    pages = pages_of(text, iter(chunks), 3)
    assert pages == (Page("one", 3), Page("", 4), Page("three", 5))
    assert "\n\n".join(page.text for page in pages) == text


@pytest.mark.parametrize(
    ("pages", "chunk"),
    [
        (("one", "two", ""), _chunk(0, 10, 3, 4, (5, 4))),
        (("one", "two", "", ""), _chunk(0, 12, 3, 5, (5, 4), (10, 5))),
        (("one", "two\n\n"), _chunk(0, 10, 3, 4, (5, 4))),
        (("one\n\n", ""), _chunk(0, 7, 3, 3)),
        (("", "one", ""), _chunk(0, 7, 3, 4, (2, 4))),
    ],
)
def test_an_empty_last_page_is_reconstructed(pages, chunk):
    expected = tuple(Page(text, number) for number, text in enumerate(pages, start=3))
    assert pages_of("\n\n".join(pages), iter([chunk]), len(pages)) == expected


def test_the_page_number_of_an_empty_last_page_can_be_imported():
    last = pages_of("one\n\n", iter([_chunk(0, 5, 2**32 - 1, 2**32 - 1)]), 2)[-1]
    assert last == Page("", 2**32 - 1)


def test_a_document_is_one_line_whatever_line_ends_its_text_has():
    line = document_line(CompleteDocument(_info("text/plain"), "a\nb\r\n"))
    assert line.count("\n") == 1
    assert json.loads(line)["text"] == "a\nb\r\n"


INFO = DocumentInfo("d", "", "", "", {}, (1,), 1, 1, 0, 0, sequence=1)


@pytest.mark.parametrize("error", [DocumentChanged("11 times"), DocumentNotFound("gone")])
def test_a_document_that_keeps_changing_or_is_deleted_is_left_out(error):
    def get_text(*_, **__):
        raise error

    client = SimpleNamespace(get_text=get_text, get_document=lambda *_, **__: INFO)
    assert ExportReader(client, "t", "c").with_pages(INFO) is None
