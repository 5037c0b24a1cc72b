"""Requests with millions of entries are refused before the entries are decoded."""

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf import struct_pb2

from hrag.errors import TooLarge
from hrag.filters import (
    MAX_FILTER_CONDITIONS,
    MAX_FILTER_DEPTH,
    MAX_FILTER_RANGES,
    MAX_FILTER_TERMS,
    AnyOf,
    Match,
    check_filter,
)
from hrag.types import MAX_LEVELS, MAX_METADATA_BYTES, MAX_PAGES
from hrag.v1 import filter_pb2 as fpb
from hrag.v1 import types_pb2 as tpb
from hrag.wire import common
from hrag.wire.filters import filter_from, filter_message


def _conditions(count: int) -> fpb.FilterList:
    return fpb.FilterList(filters=[fpb.Filter(exists={"field": "title"})] * count)


def _metadata_with_list_of(count: int) -> struct_pb2.Struct:
    metadata = struct_pb2.Struct()
    metadata.fields["k"].list_value.extend([1] * count)
    return metadata


# A filter message may contain this count of conditions, lists of conditions, and values.
_MAX_FILTER_ENTRIES = MAX_FILTER_DEPTH * MAX_FILTER_CONDITIONS + MAX_FILTER_TERMS
_HALF = _MAX_FILTER_ENTRIES // 2


@pytest.mark.parametrize(
    ("read", "message", "field"),
    [
        (filter_from, fpb.Filter(any_of=_conditions(_MAX_FILTER_ENTRIES)), "filter"),
        (
            filter_from,
            fpb.Filter(
                match={"field": "title", "values": [{"text": ""}] * (_MAX_FILTER_ENTRIES + 1)}
            ),
            "filter",
        ),
        (
            filter_from,
            fpb.Filter(
                any_of={
                    "filters": [
                        {"match": {"field": "title", "values": [{"text": ""}] * _HALF}},
                        {"match": {"field": "title", "values": [{"text": ""}] * _HALF}},
                    ]
                }
            ),
            "filter",
        ),
        (
            common.document_from,
            tpb.Document(pages={"pages": [tpb.Page(text="x")] * (MAX_PAGES + 1)}),
            "pages",
        ),
        (
            common.document_from,
            tpb.Document(text="x", metadata=_metadata_with_list_of(MAX_METADATA_BYTES)),
            "metadata",
        ),
        (
            common.settings_request_from,
            tpb.CollectionSettings(level_sizes=range(32, 33 + MAX_LEVELS)),
            "level_sizes",
        ),
    ],
    ids=["conditions", "values", "values of two", "pages", "metadata", "levels"],
)
def test_a_message_with_too_many_entries_is_refused(
    read: Callable[[Any], Any], message: Any, field: str
) -> None:
    with pytest.raises(TooLarge, match=r"at most \d+") as caught:
        read(message)
    assert caught.value.field == field


@pytest.mark.parametrize("kind", ["range", "exists", "match"])
def test_a_filter_is_decoded_no_further_than_its_limit(kind: str) -> None:
    """The conditions after the limit are not valid, but nothing reads them."""
    condition = fpb.Filter(**{kind: {"field": "title"}})
    limit = MAX_FILTER_CONDITIONS if kind == "match" else MAX_FILTER_RANGES
    message = fpb.Filter(any_of={"filters": [condition] * (limit + 1) + [fpb.Filter()] * 10_000})
    with pytest.raises(TooLarge, match=f"at least {limit + 1} .*; at most {limit} ") as caught:
        filter_from(message)
    assert caught.value.field == "filter"


def test_the_largest_allowed_filter_is_accepted() -> None:
    """The largest message has conditions that are each nested, alone, as deep as allowed."""
    inner: Any = Match("title", ("x",))
    for _ in range(MAX_FILTER_DEPTH - 2):
        inner = AnyOf((inner,))
    values = MAX_FILTER_TERMS - 2 * (MAX_FILTER_CONDITIONS - 1) - 1
    largest = AnyOf((inner,) * (MAX_FILTER_CONDITIONS - 1) + (Match("source", ("x",) * values),))
    check_filter(largest)
    assert filter_from(filter_message(largest)) == largest


def test_the_largest_allowed_metadata_is_accepted() -> None:
    """The limit is in bytes of JSON. A list of one-digit numbers has the most entries per byte."""
    count = (MAX_METADATA_BYTES - len('{"k":[]}')) // 2
    document = common.document_from(tpb.Document(text="x", metadata=_metadata_with_list_of(count)))
    assert len(document.metadata["k"]) == count
