"""Domain values are converted to protobuf messages and back; invalid values are refused."""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, time
from typing import Any

import numpy as np
import pytest
from google.protobuf import struct_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from hrag import errors, types
from hrag.client import calls
from hrag.errors import HragError, InvalidArgument, TooLarge
from hrag.filters import AllOf, Exists, Filter, Match, NoneOf, Range
from hrag.v1 import filter_pb2 as fpb
from hrag.v1 import indexer_pb2 as ipb
from hrag.v1 import retriever_pb2 as rpb
from hrag.v1 import types_pb2 as tpb
from hrag.wire import common, indexer, retriever
from hrag.wire.encoded_results import encoded_batch, encoded_response
from hrag.wire.filters import filter_from, filter_from_json, filter_json, filter_message
from hrag.wire.passages import encoded_passage
from tests.support.documents.values import (
    F32,
    METADATA,
    TEXT,
    chunks,
    collections,
    documents,
    hierarchies,
    infos,
    nodes,
    queries,
    results,
    search_results,
    server_infos,
    setting_requests,
    spans,
    statuses,
    tenants,
)


def _encoded_and_parsed(message: Any) -> Any:
    """Returns the message after encoding and parsing, as the receiver of a call gets it."""
    return type(message).FromString(message.SerializeToString())


def _listing_of(items: Any) -> Any:
    return st.builds(types.Listing, st.lists(items, max_size=3).map(tuple), TEXT)


def _encoded(result: types.SearchResult) -> Any:
    return replace(result, passages=tuple(map(encoded_passage, result.passages)))


def _batch(outcomes: Iterable[Any]) -> rpb.BatchSearchResponse:
    return rpb.BatchSearchResponse.FromString(encoded_batch(outcomes))


ROUND_TRIPS: list[tuple[str, Any, Callable[[Any], Any], Callable[[Any], Any]]] = [
    ("span", spans, common.span_message, common.span_from),
    ("chunk", chunks, common.chunk_message, common.chunk_from),
    ("document", documents, common.document_message, common.document_from),
    ("info", infos, common.document_info_message, common.document_info_from),
    ("collection", collections, common.collection_message, common.collection_from),
    (
        "settings",
        setting_requests,
        common.settings_request_message,
        common.settings_request_from,
    ),
    ("ingest", results, indexer.ingest_response, indexer.ingest_result_from),
    ("outcome", results, indexer.result_outcome, indexer.outcome_from),
    (
        "collections",
        _listing_of(collections),
        indexer.collections_response,
        indexer.collections_from,
    ),
    ("tenants", _listing_of(tenants), indexer.tenants_response, indexer.tenants_from),
    ("documents", _listing_of(infos), indexer.documents_response, indexer.documents_from),
    ("status", statuses, indexer.status_response, indexer.status_from),
    ("query", queries, retriever.search_request, retriever.search_query_from),
    ("result", search_results, retriever.search_response, retriever.search_result_from),
    (
        "encoded result",
        search_results,
        lambda result: rpb.SearchResponse.FromString(encoded_response(_encoded(result))),
        retriever.search_result_from,
    ),
    (
        "batch",
        st.lists(search_results, max_size=3),
        lambda results: _batch(map(_encoded, results)),
        retriever.batch_from,
    ),
    (
        "batch query",
        st.lists(queries, max_size=3),
        retriever.batch_request,
        retriever.batch_queries_from,
    ),
    ("node", nodes, retriever.chunk_response, retriever.chunk_node_from),
    ("hierarchy", hierarchies, retriever.hierarchy_response, retriever.hierarchy_from),
    ("server", server_infos, retriever.server_info_response, retriever.server_info_from),
]


@pytest.mark.parametrize(
    ("values", "pack", "unpack"),
    [row[1:] for row in ROUND_TRIPS],
    ids=[row[0] for row in ROUND_TRIPS],
)
@settings(max_examples=25)
@given(data=st.data())
def test_a_value_is_unchanged_after_encoding_and_parsing(
    values: Any, pack: Any, unpack: Any, data: Any
) -> None:
    value = data.draw(values)
    assert unpack(_encoded_and_parsed(pack(value))) == value


@given(st.lists(F32, max_size=8))
def test_a_query_vector_is_unchanged_after_encoding_and_parsing(vector: list[float]) -> None:
    message = _encoded_and_parsed(retriever.search_request(types.SearchQuery("t", vector)))
    decoded = retriever.search_query_from(message).query
    assert np.asarray(decoded, np.float32).tolist() == vector


# The following tests cover metadata.


@given(METADATA)
def test_metadata_is_unchanged_after_encoding_and_parsing(metadata: Mapping[str, Any]) -> None:
    assert common.struct_from(_encoded_and_parsed(common.struct_message(metadata))) == metadata


@pytest.mark.parametrize("number", [0, 1, -(2**53), 2**53])
def test_integers_in_metadata_stay_integers(number: int) -> None:
    decoded = common.struct_from(common.struct_message({"n": number}))["n"]
    assert (type(decoded), decoded) == (int, number)


@pytest.mark.parametrize("number", [2**53 + 1, -(2**53) - 1, 10**400])
def test_an_integer_that_would_lose_digits_is_refused(number: int) -> None:
    with pytest.raises(InvalidArgument, match=r"2\*\*53") as caught:
        common.struct_message({"order": [number]})
    assert caught.value.field == "metadata"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        ({1: "x"}, "key 1"),
        (b"bytes", "bytes"),
        ({1, 2}, "set"),
        ({"inner": [datetime(2026, 1, 1)]}, r"type datetime in the key 'key'; .*isoformat\(\)"),
        (date(2026, 1, 1), r"type date in .*isoformat\(\)"),
        (np.float32(1), "type float32 in the key 'key'; only JSON values are allowed$"),
        ("\ud800", "surrogate"),
        ({"\udfff": 1}, "surrogate"),
    ],
)
def test_metadata_that_json_cannot_represent_is_refused(value: Any, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words) as caught:
        common.struct_message({"key": value})
    assert caught.value.field == "metadata"


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_metadata_from_other_clients_must_be_finite(number: float) -> None:
    struct = struct_pb2.Struct()
    struct.fields["n"].list_value.values.add().number_value = number
    with pytest.raises(InvalidArgument, match="must be finite") as caught:
        common.struct_from(struct)
    assert caught.value.field == "metadata"


def test_a_metadata_value_without_a_kind_is_null() -> None:
    assert common.struct_from(struct_pb2.Struct(fields={"a": struct_pb2.Value()})) == {"a": None}


def _nested(depth: int, inner: Callable[[Any], Any]) -> Any:
    value: Any = 1
    for _ in range(depth - 1):
        value = inner(value)
    return value


MAX_METADATA_DEPTH = 30


@pytest.mark.parametrize("inner", [lambda value: {"a": value}, lambda value: [value]])
def test_metadata_of_the_maximum_depth_is_parsed_in_every_message(inner: Any) -> None:
    """Protobuf parsers accept 100 levels of nesting. Replies nest metadata deeper than requests."""
    metadata = {"a": _nested(MAX_METADATA_DEPTH, inner)}
    assert _encoded_and_parsed(
        calls.ingest("t", types.Document("x", metadata=metadata), "c").request
    )
    span = types.Span(0, 1, 0, 1)
    chunk = types.Chunk("d#0.0", "d", 0, 0, "x", 1, span, (), 0, 0, "", "", metadata)
    node = types.ChunkNode(chunk, "")
    hierarchy = types.Hierarchy(node, (node,), (), ())
    result = types.SearchResult(
        (types.Passage(chunk, 1, ()),),
        types.SearchMode.STANDARD,
        0,
        0,
        1,
        True,
        1,
        types.Timings(0, 0, 0, 0, 0),
        types.SearchPlan.SCAN,
        1,
    )
    assert (
        retriever.hierarchy_from(_encoded_and_parsed(retriever.hierarchy_response(hierarchy)))
        == hierarchy
    )
    assert (
        retriever.search_result_from(_encoded_and_parsed(retriever.search_response(result)))
        == result
    )


@pytest.mark.parametrize("inner", [lambda value: {"a": value}, lambda value: [value]])
def test_deeper_metadata_is_refused_when_encoded_and_when_decoded(inner: Any) -> None:
    with pytest.raises(InvalidArgument, match="nested over 30 deep"):
        common.struct_message({"a": _nested(MAX_METADATA_DEPTH + 1, inner)})
    struct = struct_pb2.Struct()
    value = struct.fields["a"]
    for _ in range(MAX_METADATA_DEPTH):
        value = value.list_value.values.add()
    with pytest.raises(InvalidArgument, match="nested over 30 deep"):
        common.struct_from(struct)


# The following tests cover messages that other clients may send.


def test_unset_fields_of_a_search_have_their_defaults() -> None:
    query = retriever.search_query_from(rpb.SearchRequest(tenant_id="t", text="x"))
    assert query == types.SearchQuery("t", "x")


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (fpb.Filter(), "set all_of, any_of"),
        (fpb.Filter(any_of=fpb.FilterList(filters=[fpb.Filter()])), "set all_of, any_of"),
        (fpb.Filter(match=fpb.FieldMatch(values=[fpb.FilterValue()])), "without a type"),
        (fpb.Filter(range=fpb.FieldRange(above=fpb.RangeBound())), "without a type"),
        (
            fpb.Filter(range=fpb.FieldRange(above=fpb.RangeBound(timestamp={"seconds": 10**12}))),
            "timestamp of 1000000000000 s",
        ),
        (
            fpb.Filter(range=fpb.FieldRange(above=fpb.RangeBound(timestamp={"nanos": -5}))),
            "-5 ns",
        ),
    ],
)
def test_a_filter_message_with_a_missing_or_invalid_field_is_refused(
    message: fpb.Filter, words: str
) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(words)) as caught:
        retriever.search_query_from(rpb.SearchRequest(text="x", filter=message))
    assert caught.value.field == "filter"


def test_a_filter_that_cannot_be_encoded_is_refused() -> None:
    deep: Filter = Exists("title")
    for _ in range(200):
        deep = NoneOf((deep,))
    with pytest.raises(TooLarge, match="nested over 16 deep"):
        retriever.search_request(types.SearchQuery("t", "x", filter=deep))
    for wrong in (Match("title", ("\ud800",)), Match("metadata.n", (10**400,)), Exists("\ud800")):
        with pytest.raises(InvalidArgument):
            retriever.search_request(types.SearchQuery("t", "x", filter=wrong))


@pytest.mark.parametrize("wrong", [{"metadata.team": "zoo"}, "team=zoo", NoneOf(({},)), 5, []])
def test_a_value_that_is_not_a_filter_is_refused_and_never_ignored(wrong: Any) -> None:
    """A search without its filter would return passages that the filter excludes."""
    with pytest.raises(InvalidArgument, match=r"filter contains .*; it may contain only AllOf"):
        retriever.search_request(types.SearchQuery("t", "x", filter=wrong))


def test_a_filter_is_unchanged_after_conversion_to_json_and_back() -> None:
    moment = datetime(2026, 1, 1, 12, 30, tzinfo=UTC)
    condition = AllOf((Match("metadata.a", ("x", 1.5, True, moment)), NoneOf((Exists("title"),))))
    assert filter_from_json(json.loads(json.dumps(filter_json(condition)))) == condition
    with pytest.raises(InvalidArgument, match="filter cannot be read"):
        filter_from_json({"matches": {}})


def test_a_date_in_a_filter_is_its_midnight_in_utc() -> None:
    day, midnight = date(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC)
    for written, meant in (
        (Range("metadata.n", at_least=day), Range("metadata.n", at_least=midnight)),
        (Match("metadata.n", (day, "x")), Match("metadata.n", (midnight, "x"))),
    ):
        assert filter_from(filter_message(written)) == meant


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (Range("metadata.n", above="2026-01-01"), "'2026-01-01' of the type str; .*fromisoformat"),
        (Range("metadata.n", above=b"1"), "of the type bytes; a value must be a number, a date"),
        (Match("metadata.n", (None,)), "'None' of the type NoneType; .* a text, True, False, a n"),
        (Match("metadata.n", ({"a": 1},)), "of the type dict"),
        (Match("metadata.n", (time(1),)), "of the type time"),
    ],
)
def test_a_value_of_another_type_is_refused_in_words(condition: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message) as caught:
        filter_message(condition)
    assert caught.value.field == "filter"


def test_a_time_without_a_time_zone_is_in_utc() -> None:
    sent = filter_message(Match("metadata.t", (datetime(2026, 1, 1),)))
    assert filter_from(sent) == Match("metadata.t", (datetime(2026, 1, 1, tzinfo=UTC),))


def test_a_field_with_the_value_zero_differs_from_an_unset_field() -> None:
    message = rpb.SearchRequest(text="x", limit=0, candidates=0, return_level=0)
    query = retriever.search_query_from(_encoded_and_parsed(message))
    assert (query.limit, query.candidates, query.return_level) == (0, 0, 0)


def test_what_only_a_newer_server_knows_is_left_out() -> None:
    known = ipb.LeftOut(kind=ipb.LEFT_OUT_KIND_OUTPUT, part_count=2, example="x")
    unknown: Any = ipb.LeftOut(part_count=1)
    unknown.kind = 77
    report: Any = ipb.ReadReport(page_count=3, left_out=[unknown, known])
    report.page_unit = 77
    message = ipb.IngestDocumentResponse(outcome=ipb.INGEST_OUTCOME_CREATED, report=report)
    left_out = (types.LeftOut(types.LeftOutKind.OUTPUT, 2, "x"),)
    expected = types.ReadReport(page_count=3, left_out=left_out)
    assert indexer.ingest_result_from(_encoded_and_parsed(message)).report == expected


@pytest.mark.parametrize("field", ["mode", "aggregation", "retrieval", "fusion"])
def test_the_refusal_of_an_unknown_enum_number_names_its_field(field: str) -> None:
    message = _encoded_and_parsed(rpb.SearchRequest(text="x", **{field: 77}))
    with pytest.raises(InvalidArgument, match=f"{field} is 77") as caught:
        retriever.search_query_from(message)
    assert caught.value.field == field


@pytest.mark.parametrize("field", ["mode", "aggregation", "summary_scope", "retrieval", "fusion"])
def test_the_refusal_of_an_unknown_enum_name_names_its_field(field: str) -> None:
    query = types.SearchQuery("t", "x", **{field: "best"})
    with pytest.raises(InvalidArgument, match=f"{field} is 'best'; allowed are ") as caught:
        retriever.search_request(query)
    assert caught.value.field == field


def test_a_search_may_have_a_text_and_a_vector() -> None:
    message = _encoded_and_parsed(
        retriever.search_request(types.SearchQuery("t", "x", vector=[0.5, 2.0]))
    )
    query = retriever.search_query_from(message)
    assert (query.text, list(query.vector or ())) == ("x", [0.5, 2.0])


def test_a_query_with_two_vectors_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="given twice") as caught:
        retriever.search_request(types.SearchQuery("t", [1.0], vector=[1.0]))
    assert caught.value.field == "vector"


def test_an_empty_vector_is_read_as_a_vector_without_numbers() -> None:
    message = _encoded_and_parsed(rpb.SearchRequest(vector=rpb.Vector()))
    assert len(retriever.search_query_from(message).query) == 0


@pytest.mark.parametrize("message", [tpb.Document(), tpb.Document(document_id="d")])
def test_a_document_without_a_body_is_refused(message: tpb.Document) -> None:
    with pytest.raises(InvalidArgument, match="text, content or pages") as caught:
        common.document_from(message)
    assert caught.value.field == "body"


def test_an_empty_collection_name_means_default() -> None:
    assert common.collection_or_default("") == "default"
    assert common.collection_or_default("c") == "c"


# The following tests cover values that users pass to the SDK.


@pytest.mark.parametrize("field", ["document_id", "title", "source", "mime_type"])
def test_a_lone_surrogate_in_a_document_field_is_refused_before_sending(field: str) -> None:
    with pytest.raises(InvalidArgument, match="surrogate") as caught:
        common.document_message(types.Document("x", **{field: "a\ud800"}))
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("body", "field"), [("a\udc80", "text"), ((types.Page("fine"), types.Page("\udc80")), "pages")]
)
def test_a_lone_surrogate_in_a_document_body_is_refused_before_sending(
    body: Any, field: str
) -> None:
    with pytest.raises(InvalidArgument, match="surrogate") as caught:
        common.document_message(types.Document(body))
    assert caught.value.field == field


@pytest.mark.parametrize("number", [-1, 2**32, "1", 1.5])
def test_a_page_number_that_is_not_a_uint32_is_refused_before_sending(number: Any) -> None:
    document = types.Document((types.Page("fine"), types.Page("x", number)))
    with pytest.raises(InvalidArgument, match=f"number is '{number}': ") as caught:
        common.document_message(document)
    assert caught.value.field == "number"
    message = common.document_message(types.Document((types.Page("x", 2**32 - 1),)))
    assert message.pages.pages[0].number == 2**32 - 1


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: calls.get_document("t\ud800", "d", "c"), "tenant_id"),
        (lambda: calls.get_text("t", "d\ud800", "c", calls.TextPart()), "document_id"),
        (lambda: calls.list_documents("t", "c", -1, "", None), "page_size"),
        (lambda: calls.list_collections("t", 2**32, ""), "page_size"),
        (lambda: calls.get_chunk("t", "d#0.0\udfff", "c"), "chunk_id"),
        (lambda: calls.get_hierarchy("t", "d#0.0", "c", -2, False), "depth"),
        (lambda: calls.search(types.SearchQuery("\ud800", "x")), "tenant_id"),
        (lambda: calls.search(types.SearchQuery("t", "\ud800")), "text"),
        (lambda: calls.search(types.SearchQuery("t", "x", limit=-1)), "limit"),
        (lambda: calls.search(types.SearchQuery("t", "x", candidates=2**40)), "candidates"),
        (lambda: calls.search(types.SearchQuery("t", "x", min_sequence=-1)), "min_sequence"),
    ],
)
def test_the_refusal_of_a_value_outside_the_range_of_its_field_names_the_field(
    call: Callable[[], Any], field: str
) -> None:
    with pytest.raises(InvalidArgument, match=field) as caught:
        call()
    assert caught.value.field == field


# The following tests cover the outcomes of streamed documents and of batched searches.


@pytest.mark.parametrize(
    "error",
    [
        errors.BlankDocument("text is blank", field="text"),
        errors.EmbedderUnavailable("down"),
        errors.InternalError("internal error 4711"),
    ],
)
def test_the_error_of_a_streamed_document_keeps_class_message_and_field(error: HragError) -> None:
    decoded = indexer.outcome_from(_encoded_and_parsed(indexer.error_outcome("d", error)))
    assert isinstance(decoded, HragError)
    assert (type(decoded), decoded.message, decoded.field) == (
        type(error),
        error.message,
        error.field,
    )


def test_an_invalid_search_of_a_batch_fails_alone() -> None:
    searches = [
        rpb.SearchRequest(text=text, mode=mode) for text, mode in (("x", 0), ("", 77), ("y", 0))
    ]
    first, refused, other = retriever.batch_queries_from(rpb.BatchSearchRequest(searches=searches))
    assert (first.query, other.query) == ("x", "y")
    assert isinstance(refused, InvalidArgument)
    (decoded,) = retriever.batch_from(_batch([refused]))
    assert (type(decoded), decoded.message, decoded.field) == (
        InvalidArgument,
        refused.message,
        "mode",
    )


def test_the_message_of_a_streamed_error_has_document_id_and_code() -> None:
    message = indexer.error_outcome("d", errors.TooLarge("too large", field="text"))
    assert message == ipb.DocumentOutcome(
        error=ipb.DocumentError(
            document_id="d",
            error=tpb.CallError(code=3, message="too large", reason="TOO_LARGE", field="text"),
        )
    )


def test_the_refusal_of_a_value_of_a_wrong_type_names_its_field() -> None:
    with pytest.raises(InvalidArgument, match="tenant_id"):
        common.built(rpb.GetChunkRequest, tenant_id=5)
