"""A parsed request is the query of its message, whether or not its options are remembered."""

from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given

from hrag.errors import InvalidArgument
from hrag.filters import Match
from hrag.types import SearchMode, SearchQuery
from hrag.v1 import retriever_pb2 as pb
from hrag.wire.retriever import search_query_from, search_request
from retriever_svc import search_requests
from retriever_svc.query_options import check_query
from retriever_svc.search_requests import (
    MAX_OPTION_BYTES,
    MAX_OPTIONS,
    CheckedQuery,
    SearchRequests,
)
from tests.support.documents.values import queries

VECTOR = (1.0, 0.5)
QUERY = SearchQuery("t", VECTOR, "c", limit=5, filter=Match("metadata.n", (1.0,)))
LONG = replace(QUERY, filter=Match("metadata.n", ("x" * MAX_OPTION_BYTES,)))


def encoded(query: SearchQuery) -> bytes:
    return search_request(query).SerializeToString()


def options_of(query: SearchQuery) -> dict[str, Any]:
    values = {name: getattr(query, name) for name in SearchQuery.__dataclass_fields__}
    numbers = values["query"] if isinstance(values["query"], str) else list(values["query"])
    return values | {"query": numbers, "vector": values["vector"] and list(values["vector"])}


@given(queries)
def test_a_query_equals_that_of_its_message_the_first_and_the_next_time(query: SearchQuery) -> None:
    requests, request = SearchRequests(), encoded(query)
    expected = search_query_from(pb.SearchRequest.FromString(request))
    for _ in range(2):
        parsed = requests(request)
        if isinstance(parsed, CheckedQuery):
            check_query(expected)
        else:
            parsed = search_query_from(parsed)
        assert options_of(parsed) == options_of(expected)


def test_queries_that_differ_only_in_their_vectors_share_their_options() -> None:
    requests = SearchRequests()
    for vector in (VECTOR, (2.0,), (0.0, 0.0)):
        parsed = requests(encoded(replace(QUERY, query=vector)))
        assert isinstance(parsed, CheckedQuery)
        assert options_of(parsed) == options_of(replace(QUERY, query=vector))
    assert len(requests) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"tenant_id": "u"},
        {"collection": "d"},
        {"mode": SearchMode.STANDARD},
        {"min_sequence": 7},
        {"filter": Match("metadata.n", (2.0,))},
        {"filter": None},
    ],
)
def test_queries_that_differ_in_an_option_share_nothing(other: dict[str, Any]) -> None:
    requests = SearchRequests()
    requests(encoded(QUERY))
    parsed = requests(encoded(replace(QUERY, **other)))
    assert isinstance(parsed, CheckedQuery)
    assert options_of(parsed) == options_of(replace(QUERY, **other))
    assert len(requests) == 2


@pytest.mark.parametrize(
    "query",
    [
        replace(QUERY, query="cats"),
        replace(QUERY, query="cats", vector=VECTOR),
        replace(QUERY, query=()),
        replace(QUERY, limit=0),
        replace(QUERY, tenant_id="../x"),
        LONG,
    ],
)
def test_texts_and_refused_and_long_options_are_left_to_the_handler(query: SearchQuery) -> None:
    requests = SearchRequests()
    for _ in range(2):
        assert requests(encoded(query)) == search_request(query)
    assert len(requests) == 0


def test_an_unknown_mode_is_left_to_the_handler() -> None:
    message = search_request(QUERY)
    message.mode = 77  # type: ignore[assignment]
    parsed = SearchRequests()(message.SerializeToString())
    assert parsed == message
    with pytest.raises(InvalidArgument):
        search_query_from(parsed)  # type: ignore[arg-type]


@pytest.mark.parametrize("more", [b"\x0a\x01\xff", b"\x0c", b"\x1f", b"\x0a\x09"])
def test_bytes_that_are_no_message_are_refused(more: bytes) -> None:
    for _ in range(2):
        with pytest.raises(DecodeError):
            SearchRequests()(encoded(QUERY) + more)


def test_the_count_of_remembered_options_is_limited() -> None:
    requests = SearchRequests()
    for number in range(2 * MAX_OPTIONS + 1):
        requests(encoded(replace(QUERY, min_sequence=number)))
        assert len(requests) <= MAX_OPTIONS


def test_long_options_are_not_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are converted in the handler, after the tenant and the rate limits were checked."""
    converted = list[Any]()
    monkeypatch.setattr(search_requests, "search_query_from", converted.append)
    SearchRequests()(encoded(LONG))
    assert not converted
