"""Names and chunk ids are validated, and errors quote the invalid values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.errors import InvalidArgument
from hrag.values import ids
from hrag.values.ids import ChunkId

NAMES = ["a", "0", "A.b_c-d", "x" * 64]
INVALID_NAMES = ["", ".a", "-a", "_a", "a b", "a/b", "a#b", "a:b", "ü", "a\n", "a\0", "x" * 65]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_letters_digits_and_three_punctuation_marks_are_allowed(name):
    assert ids.check_tenant_id(name) == name
    assert ids.check_collection_name(name) == name
    assert ids.check_document_id(name) == name


@pytest.mark.parametrize("name", INVALID_NAMES)
def test_the_refusal_of_another_name_has_field_value_and_rule(name):
    for check, field in (
        (ids.check_tenant_id, "tenant_id"),
        (ids.check_collection_name, "collection"),
        (lambda value: ids.check_collection_name(value, "name"), "name"),
    ):
        with pytest.raises(InvalidArgument) as refused:
            check(name)
        assert refused.value.field == field
        assert refused.value.message.startswith(
            f"{field} is {name!a}; it must be 1 to 64 characters"
        )


def test_document_ids_may_be_longer_and_contain_colons():
    assert ids.check_document_id("doc:1") == "doc:1"
    assert ids.check_document_id("d" * 128)
    for invalid_id in ("", ":a", "a#b", "a b", "d" * 129):
        with pytest.raises(
            InvalidArgument, match=r"document_id is .*; it must be 1 to 128 characters"
        ):
            ids.check_document_id(invalid_id)


document_ids = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}", fullmatch=True)


@given(document_ids, st.integers(0, 7), st.integers(0, 999_999_999))
def test_a_chunk_id_is_parsed_from_its_text(document_id, level, index):
    chunk_id = ChunkId(document_id, level, index)
    assert ids.parse_chunk_id(str(chunk_id)) == chunk_id
    assert str(chunk_id) == f"{document_id}#{level}.{index}"


@pytest.mark.parametrize(
    "value",
    ["", "d", "d#0", "d#0.", "d#8.0", "d#0.01", "d#-1.0", "d#0.0 ", "#0.0", "d#0.0#0.0", "d#٣.0"],
)
def test_a_malformed_chunk_id_is_refused(value):
    with pytest.raises(InvalidArgument) as refused:
        ids.parse_chunk_id(value)
    assert refused.value.field == "chunk_id"
    assert refused.value.message == (
        f"chunk_id is {value!a}; it must be <document_id>#<level>.<index>, as in guide#2.0"
    )


def test_a_long_value_is_truncated_when_it_is_quoted():
    assert ids.quoted("x" * 80) == repr("x" * 80)
    assert ids.quoted("é" * 10_000) == ascii("é" * 80) + "… (10000 characters)"
