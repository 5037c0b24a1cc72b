"""A key in a condition of a framework is a field of documents or a key of the metadata."""

import pytest

from hrag.errors import InvalidArgument
from hrag.filters import Match, check_filter
from hrag.integrations.native_filters import condition, field_of


@pytest.mark.parametrize(
    ("key", "field"),
    [
        *((name, name) for name in ("document_id", "title", "source", "mime_type", "format")),
        ("team", "metadata.team"),
        ("metadata.format", "metadata.format"),
        ("metadata.mime_type", "metadata.mime_type"),
    ],
)
def test_a_key_becomes_a_field(key: str, field: str) -> None:
    assert field_of(key, "filters.key") == field


def test_the_refusal_of_a_key_of_passages_names_the_fields_of_documents() -> None:
    with pytest.raises(InvalidArgument, match="document_id, title, source, mime_type, format or"):
        field_of("score", "filters.key")


def test_a_metadata_key_with_the_name_of_a_field_is_not_mistaken_for_it() -> None:
    paper = condition(field_of("format", "filters.key"), "==", "A4", "filters")
    with pytest.raises(InvalidArgument, match=r"'A4'; format must be .*; metadata\.format is the"):
        check_filter(paper)
    paper = condition(field_of("metadata.format", "filters.key"), "==", "A4", "filters")
    assert paper == Match("metadata.format", ("A4",))
    check_filter(paper)
