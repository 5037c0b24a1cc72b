"""JSON is read as protobuf messages, and an error names the invalid field."""

import base64

import pytest

from hrag.errors import InvalidArgument
from hrag.gateway.protojson import json_reader
from hrag.v1 import filter_pb2 as fpb
from hrag.v1 import indexer_pb2 as ipb
from hrag.v1 import retriever_pb2 as rpb


def _search(raw: str | bytes) -> rpb.SearchRequest:
    request = json_reader.read(rpb.SearchRequest, raw if isinstance(raw, bytes) else raw.encode())
    assert isinstance(request, rpb.SearchRequest)
    return request


def _document(fields: str) -> ipb.IngestDocumentRequest:
    raw = f'{{"document": {{{fields}}}}}'.encode()
    request = json_reader.read(ipb.IngestDocumentRequest, raw)
    assert isinstance(request, ipb.IngestDocumentRequest)
    return request


def test_a_name_that_occurs_twice_among_many_is_detected_quickly() -> None:
    names = ",".join(f'"{number}":0' for number in range(50_000))
    with pytest.raises(InvalidArgument, match="'49999' occurs twice"):
        _search(f'{{{names},"49999":0}}')


@pytest.mark.parametrize("names", [("tenantId", "minSequence"), ("tenant_id", "min_sequence")])
def test_fields_have_the_names_of_the_proto_or_their_camel_case(names: tuple[str, str]) -> None:
    tenant, sequence = names
    request = _search(f'{{"{tenant}": "acme", "{sequence}": "18446744073709551615"}}')
    assert request == rpb.SearchRequest(tenant_id="acme", min_sequence=2**64 - 1)


def test_all_kinds_of_fields_are_read() -> None:
    request = _search(
        """{"text": "a", "mode": "SEARCH_MODE_CONTEXT", "limit": 3,
        "vector": {"values": [1, "2.5"]}, "minScore": -0.5, "cutLast": true,
        "retrieval": 2, "candidates": 10.0,
        "filter": {"allOf": {"filters": [
            {"range": {"field": "metadata.date", "atLeast": {"timestamp": "2026-01-02T03:04:05Z"}}},
            {"match": {"field": "title", "values": [{"text": "x"}, {"flag": false}]}}]}}}"""
    )
    at_least = fpb.RangeBound()
    at_least.timestamp.FromJsonString("2026-01-02T03:04:05Z")
    values = [fpb.FilterValue(text="x"), fpb.FilterValue(flag=False)]
    filters = [
        fpb.Filter(range=fpb.FieldRange(field="metadata.date", at_least=at_least)),
        fpb.Filter(match=fpb.FieldMatch(field="title", values=values)),
    ]
    assert request == rpb.SearchRequest(
        text="a",
        mode=rpb.SEARCH_MODE_CONTEXT,
        limit=3,
        vector=rpb.Vector(values=[1, 2.5]),
        min_score=-0.5,
        cut_last=True,
        retrieval=rpb.RETRIEVAL_DENSE,
        candidates=10,
        filter=fpb.Filter(all_of=fpb.FilterList(filters=filters)),
    )


def test_the_largest_32_bit_float_is_read_from_its_shortest_digits() -> None:
    request = _search('{"minScore": 3.4028235e38}')
    assert request.min_score == 3.4028234663852886e38


def test_metadata_and_bytes_are_read() -> None:
    fields = '"content": "_-8", "metadata": {"a": [1, null, {"b": true}], "c": "d"}'
    document = _document(fields).document
    assert document.content == base64.b64decode("/+8=")
    assert dict(document.metadata) == {"a": [1, None, {"b": True}], "c": "d"}


def test_null_means_that_a_field_is_not_set() -> None:
    assert _search('{"text": null, "limit": null, "filter": null}') == rpb.SearchRequest()


@pytest.mark.parametrize(
    ("raw", "field", "words"),
    [
        ('{"txt": "a"}', "txt", "SearchRequest has no field 'txt'; it has tenantId"),
        ('{"filter": {"match": {"feld": 1}}}', "filter.match.feld", "it has field, values"),
        ('{"text": 5}', "text", "text is a number; it must be a string"),
        ('{"text": "\\ud800x"}', "text", "half a surrogate pair at character 0"),
        ('{"text": "a", "text": "b"}', "text", "twice"),
        ('{"tenantId": "a", "tenant_id": "b"}', "tenant_id", "tenantId and tenant_id are given"),
        ('{"filter": {"match": {}, "exists": {}}}', "filter.exists", "only one is allowed"),
        ('{"limit": -1}', "limit", "limit is -1; it must be 0 to 4294967295"),
        ('{"limit": 1.5}', "limit", "limit is 1.5; it must be a whole number"),
        ('{"limit": "x"}', "limit", "limit is a string; it must be a whole number"),
        ('{"limit": true}', "limit", "limit is true or false"),
        (f'{{"limit": {"1" * 4000}}}', "limit", "(4000 characters); it must be 0 to"),
        (f'{{"limit": {"1" * 5000}}}', "request", "more than 4,300 digits"),
        ('{"vector": {"values": [1, "x"]}}', "vector.values[1]", "must be a number"),
        (
            '{"vector": {"values": [1e39]}}',
            "vector.values[0]",
            "outside the range of 32-bit numbers",
        ),
        ('{"vector": {"values": [null]}}', "vector.values[0]", "is null; it must be a number"),
        ('{"vector": {"values": 5}}', "vector.values", "it must be an array"),
        ('{"vector": []}', "vector", "is an array; it must be an object"),
        ('{"minScore": NaN}', "request", 'NaN is not JSON; where .* send "NaN"'),
        ('{"minScore": 1e400}', "minScore", "outside the range of 32-bit numbers"),
        ('{"mode": "BEST"}', "mode", "mode is 'BEST'; allowed are SEARCH_MODE_UNSPECIFIED, "),
        ('{"mode": []}', "mode", "mode is an array; it must be one of"),
        ('{"keepOverlap": "true"}', "keepOverlap", "is a string; it must be true or false"),
        (
            '{"filter": {"range": {"atMost": {"timestamp": "May"}}}}',
            "filter.range.atMost.timestamp",
            "is 'May'; it must have the form 2026-11-21T10:00:00Z",
        ),
        ("[]", "request", "the body is an array; it must be an object"),
        ("null", "request", "the body is null"),
        ("", "request", "the body is not JSON: Expecting value at byte 0"),
        ('{"text": "ä"} x', "request", "Extra data at byte 15"),
        (b'{"text": "\xff"}', "request", "not UTF-8: byte 10 is 0xff"),
        ('{"a":' * 100_000, "request", "100,000 levels of objects and arrays; at most 128"),
        ('{"filter": {"noneOf": {"filters": [' * 30, "request", "not JSON"),
        (f"[{'1,' * 100_000}", "request", "100,001 values in .*; at most 100,000 are allowed"),
        (f"{{{','.join(['1'] * 100_001)}", "request", "100,001 values"),
    ],
)
def test_an_invalid_request_is_refused_with_field_and_problem(
    raw: str | bytes, field: str, words: str
) -> None:
    with pytest.raises(
        InvalidArgument, match=words.replace("(", r"\(").replace(")", r"\)")
    ) as refused:
        _search(raw)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ('"content": "a!"', "document.content", "is not base64: 'a!'"),
        ('"text": "a", "content": "YQ=="', "document.content", "text and content are given"),
        ('"metadata": [1]', "document.metadata", "is an array; it must be an object"),
        ('"metadata": {"a": 12345678901234567890}', "metadata", r"beyond 2\*\*53"),
        ('"metadata": {"a": 1e999}', "metadata", "must be finite"),
        ('"metadata": {"a": "\\ud800"}', "metadata", "metadata"),
        (f'"metadata": {{"a": {"[" * 99}{"]" * 99}}}', "metadata", "nested over"),
        (f'"metadata": {{"a": {[0] * 1025}}}', "metadata", "1,025 values; at most 1,024 are"),
    ],
)
def test_an_invalid_document_is_refused_with_field_and_problem(
    fields: str, field: str, words: str
) -> None:
    with pytest.raises(InvalidArgument, match=words) as refused:
        _document(fields)
    assert refused.value.field == field


@pytest.mark.parametrize(
    "time",
    [
        "1970-01-01T00:00:01.9e9999999Z",
        "1970-01-01T00:00:01.5e-3Z",
        "1970-01-01T00:00:01.1_0Z",
        "1970-01-01T00:00:01. 5Z",
        "1970-01-01T00:00:01.Z",
        "1970-01-01T00:00:01.0123456789Z",
        "1970-01-01T00:00:01",
        "1970-01-01T00:00:01Zulu",
        "1970-01-01T00:00:01+1:0",
        "1970-01-01 00:00:01Z",
        "1970-1-1T0:0:1Z",
        "1970-02-30T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+00:01",
        "9999-12-31T23:59:59-00:01",
    ],
)
def test_invalid_times_are_refused(time: str) -> None:
    with pytest.raises(InvalidArgument, match="it must have the form 2026-11-21T10:00:00Z"):
        _search(f'{{"filter": {{"range": {{"atMost": {{"timestamp": "{time}"}}}}}}}}')


@pytest.mark.parametrize(
    ("time", "seconds", "nanos"),
    [
        ("1970-01-01T00:00:01Z", 1, 0),
        ("1970-01-01T02:00:01.000000009+02:00", 1, 9),
        ("1969-12-31T22:30:01.25-01:30", 1, 250_000_000),
        ("0001-01-01T00:00:00Z", -62_135_596_800, 0),
        ("9999-12-31T23:59:59.999999999Z", 253_402_300_799, 999_999_999),
    ],
)
def test_times_are_read(time: str, seconds: int, nanos: int) -> None:
    request = _search(f'{{"filter": {{"range": {{"atMost": {{"timestamp": "{time}"}}}}}}}}')
    timestamp = request.filter.range.at_most.timestamp
    assert (timestamp.seconds, timestamp.nanos) == (seconds, nanos)


def test_filters_that_nest_too_deep_are_refused() -> None:
    nested = '{"noneOf": {"filters": [' * 32 + '{"exists": {}}' + "]}}" * 32
    with pytest.raises(InvalidArgument, match="nests over 64 messages"):
        _search(f'{{"filter": {nested}}}')
