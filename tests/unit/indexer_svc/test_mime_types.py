"""A document has the type that its client gives, or else the type that its content shows."""

import pytest

from hrag.errors import InvalidArgument
from hrag.types import MARKDOWN, PDF, PLAIN_TEXT, Document, Page
from hrag.values.formats import CSV, DOCX, EPUB, FORMATS, HTML, ODS, PPTX, PYTHON, RST, XLS, XLSX
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
def test_a_document_has_the_type_that_its_client_names_or_else_that_its_body_shows(
    body, given_type, resolved
):
    assert resolve_mime_type(Document(body, mime_type=given_type)) == resolved


@pytest.mark.parametrize(
    ("make_file", "resolved"),
    [(html_page, HTML), (docx_file, DOCX), (pptx_file, PPTX), (xlsx_file, XLSX), (epub_file, EPUB)],
)
def test_the_type_of_a_file_is_detected_from_its_content(make_file, resolved):
    assert resolve_mime_type(Document(make_file())) == resolved


def test_the_type_of_an_archive_depends_on_its_parts_not_on_files_inside_them():
    content = archive({"xl/workbook.xml": "x", "embedded.docx": b"word/document.xml"})
    assert resolve_mime_type(Document(content)) == XLSX


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (archive({"a.txt": "text"}), "not a DOCX, PPTX, XLSX or EPUB"),
        (OLE, "encrypted or of an old format"),
    ],
)
def test_archives_of_unknown_formats_are_refused(content, message):
    error = refusal(Document(content))
    assert error.field == "content"
    assert message in error.message


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
def test_unknown_types_are_refused_and_the_error_lists_the_allowed_types(body, given_type, allowed):
    error = refusal(Document(body, mime_type=given_type))
    assert error.field == "mime_type"
    assert allowed in error.message
    assert f"'{given_type}'" in error.message


@pytest.mark.usefixtures("without_formats_extra")
def test_without_the_extra_its_formats_are_refused_with_the_command_that_installs_it():
    for known in FORMATS:
        if not known.needs_extra:
            require_readable(known.mime_type)
            continue
        with pytest.raises(InvalidArgument, match=r"pip install 'hrag\[formats\]'") as caught:
            require_readable(known.mime_type)
        assert known.mime_type in caught.value.message


@pytest.mark.usefixtures("without_formats_extra")
def test_without_the_extra_the_error_for_an_unknown_type_lists_the_types_of_the_extra():
    message = refusal(Document(b"a", mime_type="image/png")).message
    allowed, _, more = message.partition("after pip install 'hrag[formats]' also ")
    assert HTML not in allowed
    assert more == ", ".join((HTML, DOCX, PPTX, XLSX, XLS, ODS, EPUB))
    assert "pip" not in refusal(Document((Page("a"),), mime_type="image/png")).message
