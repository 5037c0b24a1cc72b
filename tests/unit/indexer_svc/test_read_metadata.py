"""Fields of a file become metadata if the client has sent none of that name and they fit."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.values import canonical_json
from hrag.values.documents import ROOT_KEY
from hrag.values.limits import MAX_METADATA_BYTES, MAX_METADATA_VALUES
from hrag.values.read_report import NO_REPORT, LeftOut, LeftOutKind, ReadReport
from indexer_svc.document_limits import check_changeable
from indexer_svc.read_metadata import CompleteMetadata, complete_metadata

OUTPUT = LeftOut(LeftOutKind.OUTPUT, 2, "a picture")


def completed(
    sent: Mapping[str, Any],
    read: Mapping[str, str | list[str]],
    report: ReadReport = NO_REPORT,
) -> CompleteMetadata:
    result = complete_metadata(sent, canonical_json.encode(sent), read, report)
    assert result.metadata_json == canonical_json.encode(result.metadata)
    check_changeable(result.metadata, result.metadata_json, "")
    return result


def test_fields_that_the_client_has_not_sent_are_added():
    result = completed({"author": "me", "n": None}, {"author": "you", "n": "1", "to": ["a", "b"]})
    assert result.metadata == {"author": "me", "n": None, "to": ["a", "b"]}
    assert result.report == NO_REPORT


def test_a_file_cannot_name_the_folder_that_prune_compares():
    assert completed({}, {ROOT_KEY: "/home"}).metadata == {}


@pytest.mark.parametrize(
    ("sent", "read", "added"),
    [
        # The largest size may be reached: {"a":"…"}, with a comma, or {"x":1,"a":"…"}.
        ({}, {"a": "x" * (MAX_METADATA_BYTES - 9), "b": "y"}, ("a",)),
        ({}, {"a": "x" * (MAX_METADATA_BYTES - 8), "b": "y"}, ("b",)),
        ({"x": 1}, {"a": "x" * (MAX_METADATA_BYTES - 14), "b": "y"}, ("a",)),
        ({"x": 1}, {"a": "x" * (MAX_METADATA_BYTES - 13), "b": "y"}, ("b",)),
        ({}, {"a": ["x"] * (MAX_METADATA_VALUES - 1), "b": "y", "c": "z"}, ("a", "b")),
        ({"x": [1, 2]}, {"a": ["x"] * (MAX_METADATA_VALUES - 1), "b": "y"}, ("b",)),
        ({}, {"a": "\ud800", "b": "y"}, ("b",)),
        ({}, {"\ud800": "x", "b": "y"}, ("b",)),
    ],
)
def test_a_field_that_does_not_fit_is_left_out_and_reported(sent, read, added):
    result = completed(sent, read, ReadReport(left_out=(OUTPUT,)))
    assert set(result.metadata) == {*sent, *added}
    unfit = [name for name in read if name not in result.metadata]
    first, *rest = result.report.left_out
    assert first == OUTPUT
    assert [(part.kind, part.part_count) for part in rest] == [(LeftOutKind.METADATA, len(unfit))]
    assert rest[0].example.encode()


@given(
    st.dictionaries(st.text(max_size=9), st.integers(), max_size=4),
    st.dictionaries(
        st.text(st.characters(), max_size=9),
        st.text(st.characters(), max_size=9) | st.lists(st.text(max_size=9), max_size=4),
        max_size=6,
    ),
)
def test_the_client_has_precedence_and_every_field_is_added_or_reported(sent, read):
    result = completed(sent, read)
    assert {**result.metadata, **sent} == result.metadata
    unfit = sum(part.part_count for part in result.report.left_out)
    reserved = ROOT_KEY in read and ROOT_KEY not in sent
    assert len(result.metadata) == len({*sent, *read}) - unfit - reserved
