"""A document is read as what its client says, else as what its content is beyond doubt."""

import pytest

from hrag.errors import InvalidArgument
from hrag.types import MARKDOWN, PDF, PLAIN_TEXT, Document, Page
from hrag.values.formats import CSV, DOCX, EPUB, FORMATS, HTML, PPTX, PYTHON, RST, XLSX
from indexer_svc import mime_types
from indexer_svc.mime_types import require_readable, resolve_mime_type
from tests.support.documents.format_files import (
    archive,
    docx_file,
    epub_file,
    html_page,
    pptx_file,
    xlsx_file,
)

OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500)


def refusal(document: Document) -> InvalidArgument:
    with pytest.raises(InvalidArgument) as caught:
        resolve_mime_type(document)
    return caught.value


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
        ("a", "application/xhtml+xml", HTML),
        ("a", "text/x-rst", RST),
        (b"a", "text/csv", CSV),
        (b"a", "application/x-python", PYTHON),
        ("<html>", "", PLAIN_TEXT),
        (b"<html>", "", HTML),
        (b"\xef\xbb\xbf \n<!DOCTYPE  html>", "", HTML),
        (b"<?xml version='1.0'?>\n<!doctype html><html>", "", HTML),
        (b"a <html>", "", PLAIN_TEXT),
        (b"<htmlx>", "", PLAIN_TEXT),
    ],
)
def test_type_is_resolved_from_the_given_type_and_the_body(body, given_type, resolved):
    assert resolve_mime_type(Document(body, mime_type=given_type)) == resolved


@pytest.mark.parametrize(
    ("made", "resolved"),
    [(html_page, HTML), (docx_file, DOCX), (pptx_file, PPTX), (xlsx_file, XLSX), (epub_file, EPUB)],
)
def test_a_file_without_a_type_is_known_by_its_content(made, resolved):
    assert resolve_mime_type(Document(made())) == resolved


def test_an_archive_is_what_its_own_parts_are_not_those_of_a_file_in_it():
    content = archive({"xl/workbook.xml": "x", "embedded.docx": b"word/document.xml"})
    assert resolve_mime_type(Document(content)) == XLSX


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (archive({"a.txt": "text"}), "not a DOCX, PPTX, XLSX or EPUB"),
        (OLE, "encrypted or of an old format"),
    ],
)
def test_other_archives_are_refused(content, says):
    error = refusal(Document(content))
    assert error.field == "content"
    assert says in error.message


@pytest.mark.parametrize(
    ("body", "given_type", "allowed"),
    [
        ("a", "application/pdf", "with text it must be text/plain, text/markdown, text/html"),
        ((Page("a"),), "text/html", "with pages it must be text/plain, text/markdown or empty"),
        (b"a", "image/png", "text/plain, text/markdown, application/pdf, text/html"),
        (b"a", "application/jsonl", "text/csv"),
        ("a", "text", "text/plain, text/markdown"),
    ],
)
def test_other_types_are_refused_with_the_allowed_ones(body, given_type, allowed):
    error = refusal(Document(body, mime_type=given_type))
    assert error.field == "mime_type"
    assert allowed in error.message
    assert f"'{given_type}'" in error.message


@pytest.fixture
def without_extra(monkeypatch):
    monkeypatch.setattr(mime_types, "_has_extra", lambda: False)


def test_without_the_extra_its_formats_are_refused_with_the_command_that_installs_it(without_extra):
    for each in FORMATS:
        if not each.needs_extra:
            require_readable(each.mime_type)
            continue
        with pytest.raises(InvalidArgument, match=r"pip install 'hrag\[formats\]'") as caught:
            require_readable(each.mime_type)
        assert each.mime_type in caught.value.message


def test_without_the_extra_an_unknown_type_is_told_what_it_would_add(without_extra):
    message = refusal(Document(b"a", mime_type="image/png")).message
    allowed, _, more = message.partition("after pip install 'hrag[formats]' also ")
    assert HTML not in allowed
    assert more == ", ".join((HTML, DOCX, PPTX, XLSX, EPUB))
    assert "pip" not in refusal(Document((Page("a"),), mime_type="image/png")).message
