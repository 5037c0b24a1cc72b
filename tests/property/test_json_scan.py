"""The compiled `json_size` returns the same as its twin, and never less than a parser builds."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hrag_fast
from tests import twins

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
# Bytes in which strings begin and end in unusual places.
FRAGMENTS = st.lists(st.sampled_from([*b'"\\[]{},:1 ', 0, 0xFF])).map(bytes)


def built(value: Any) -> tuple[int, int]:
    """Returns the count of members and elements in a JSON value, and its depth."""
    if not isinstance(value, dict | list):
        return 0, 0
    inner = [built(item) for item in (value.values() if isinstance(value, dict) else value)]
    return len(inner) + sum(count for count, _ in inner), 1 + max((d for _, d in inner), default=0)


@given(FRAGMENTS | st.binary())
def test_any_bytes_have_the_same_size_as_in_the_twin(raw: bytes) -> None:
    assert hrag_fast.json_size(raw) == twins.json_size(raw)


@given(JSON, st.sampled_from([None, 2]), st.booleans())
def test_a_document_has_at_least_the_size_of_its_values(
    value: Any, indent: int | None, ensure_ascii: bool
) -> None:
    raw = json.dumps(value, indent=indent, ensure_ascii=ensure_ascii).encode()
    values, depth = hrag_fast.json_size(raw)
    count, levels = built(value)
    # An empty object or array counts as one value more. Strings may contain such brackets too.
    empty = raw.count(b"[]") + raw.count(b"{}")
    assert count <= values <= count + empty
    assert depth == levels


def test_other_types_than_bytes_are_refused() -> None:
    with pytest.raises(TypeError):
        hrag_fast.json_size("{}")  # type: ignore[arg-type]
