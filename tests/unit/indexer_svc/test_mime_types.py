"""A document has the type that its client gives, or else the type that its content shows."""

import pytest

from hrag.errors import InvalidArgument
from hrag.types import MARKDOWN, PDF, PLAIN_TEXT, Document, Page
from hrag.values.formats import CSV, FORMATS, FORMATS_EXTRA, HTML, PYTHON, RST
from indexer_svc.mime_types import require_readable, resolve_mime_type


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
    ("source", "document_id", "resolved"),
    [
        ("docs/a.md", "a.csv", MARKDOWN),
        ("", "a.csv", CSV),
        ("a.unknown", "a.csv", PLAIN_TEXT),
        ("", "", PLAIN_TEXT),
    ],
)
def test_the_name_of_a_file_is_its_source_or_else_its_id(source, document_id, resolved):
    for given_type in ("", "application/octet-stream", "; charset=utf-8"):
        document = Document(b"a", document_id, source=source, mime_type=given_type)
        assert resolve_mime_type(document) == resolved
    assert resolve_mime_type(Document("a", document_id, source=source)) == PLAIN_TEXT


@pytest.mark.parametrize(
    ("given_type", "message"),
    [
        ("application/msword", "convert it first, for example with: libreoffice"),
        ("application/zip", "a ZIP archive; send each file"),
    ],
)
def test_known_types_that_are_not_read_are_refused_with_advice(given_type, message):
    assert message in refusal(Document(b"a", mime_type=given_type)).message


@pytest.mark.parametrize(
    ("body", "given_type", "allowed"),
    [
        ("a", "application/pdf", "with text it must be text/plain, text/markdown, text/html"),
        ((Page("a"),), "text/html", "with pages it must be text/plain, text/markdown or empty"),
        (b"a", "image/gif", "text/plain, text/markdown, application/pdf, text/html"),
        (b"a", "application/x-unknown", "text/csv"),
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
        with pytest.raises(InvalidArgument, match=r"pip install '\.\[formats\]'") as caught:
            require_readable(known.mime_type)
        assert known.mime_type in caught.value.message


@pytest.mark.usefixtures("without_formats_extra")
def test_without_the_extra_the_error_for_an_unknown_type_lists_the_types_of_the_extra():
    message = refusal(Document(b"a", mime_type="image/gif")).message
    allowed, _, more = message.partition(f"after {FORMATS_EXTRA}, also ")
    assert HTML not in allowed
    assert more == ", ".join(known.mime_type for known in FORMATS if known.needs_extra)
    assert "pip" not in refusal(Document((Page("a"),), mime_type="image/gif")).message
