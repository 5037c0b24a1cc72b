"""The error for a document that exceeds a limit names the limit."""

import pytest

from hrag.errors import InvalidArgument
from hrag.types import Document, Page
from hrag.values.document_limits import (
    DOCUMENT_LIMITS,
    MAX_DATA_DEPTH,
    MAX_ELEMENT_ATTRIBUTES,
    MAX_FORM_OPTIONS,
    MAX_PAGES,
    MAX_RTF_DEPTH,
)
from hrag.values.formats import HTML, PLAIN_TEXT, RTF, XML
from indexer_svc.extract import extract
from indexer_svc.parsers.parser_functions import parse

_ATTRIBUTES = " ".join(f"a{number}" for number in range(MAX_ELEMENT_ATTRIBUTES + 1))
_CONTENTS = {
    "data_depth": (XML, "<a>" * (MAX_DATA_DEPTH + 1)),
    "element_attributes": (HTML, f"<p {_ATTRIBUTES}>x"),
    "form_options": (HTML, "<select>" + "<option>x" * (MAX_FORM_OPTIONS + 1)),
    "table_cells": (HTML, "<table><tr><td colspan=1000>x" + "<tr><td colspan=1000>x" * 1_000),
    "rtf_depth": (RTF, r"{\rtf1 " + "{" * MAX_RTF_DEPTH),
    "document_bytes": (HTML, f"<p>{'x ' * (1 << 19)}"),
}


@pytest.mark.parametrize("limit", _CONTENTS)
def test_a_parser_names_the_limit_that_a_file_exceeds(limit):
    mime_type, content = _CONTENTS[limit]
    with pytest.raises(InvalidArgument) as refused:
        parse(content.encode(), mime_type, 1 << 18)
    assert refused.value.limit == limit


@pytest.mark.parametrize(
    ("limit", "body"),
    [
        ("run_chars", "x" * (DOCUMENT_LIMITS["run_chars"] + 1)),
        ("white_space_chars", f"x{' ' * (DOCUMENT_LIMITS['white_space_chars'] + 1)}x"),
        ("document_bytes", "x " * (1 << 20)),
        ("document_pages", (Page("x"),) * (MAX_PAGES + 1)),
    ],
)
def test_the_error_about_a_body_names_its_limit(limit, body):
    with pytest.raises(InvalidArgument) as refused:
        extract(Document(body, mime_type=PLAIN_TEXT), 3 << 19, parse)
    assert refused.value.limit == limit
