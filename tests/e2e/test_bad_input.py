"""Each kind of bad input fails with its status and a message that says what is allowed."""

import grpc
import pytest
from google.protobuf import struct_pb2

from hrag.errors import TooLarge
from hrag.types import Document
from hrag.v1 import indexer_pb2, retriever_pb2, types_pb2
from hrag.wire.status_codes import error_from
from tests.support.documents.pdfs import broken_pdf, encrypted_pdf, pdf_without_text

INVALID, MISSING = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND


def failure(call, request):
    """Makes a call that must fail; returns its status code and the error that clients raise."""
    with pytest.raises(grpc.RpcError) as caught:
        call(request, timeout=60)
    return caught.value.code(), error_from(caught.value)


def big_metadata():
    struct = struct_pb2.Struct()
    struct["key"] = "x" * 10_000_000
    return struct


@pytest.mark.parametrize(
    ("document", "field", "says"),
    [
        ({"text": ""}, "text", "blank"),
        ({"text": " \n\t\u3000 "}, "text", "blank"),
        ({}, "body", "missing"),
        ({"content": b"abc \0"}, "mime_type", "neither text nor a file"),
        ({"content": b"abc \xff", "encoding": "utf-8"}, "encoding", "not utf-8"),
        ({"content": b"abc", "encoding": "x-none"}, "encoding", "x-none"),
        ({"text": "ab " * 33_333_334}, "text", "33554432"),
        ({"text": "x" * 10_000_000}, "text", "1000000"),
        ({"content": broken_pdf()}, "content", "not a readable PDF"),
        ({"content": encrypted_pdf(["secret"], "pw")}, "content", "encrypted"),
        ({"content": pdf_without_text()}, "content", "without readable text"),
        ({"text": "a", "mime_type": "image/png"}, "mime_type", "text/markdown"),
        ({"text": "a", "document_id": "a/b"}, "document_id", "a/b"),
        ({"text": "a", "document_id": "a\x01"}, "document_id", r"a\x01"),
        ({"text": "a", "document_id": "x" * 10_240}, "document_id", "10240 characters"),
        ({"text": "a", "title": "x" * 1025}, "title", "1024"),
        ({"text": "a", "metadata": big_metadata()}, "metadata", "65536"),
    ],
    ids=lambda value: None if isinstance(value, dict) else value[:20],
)
def test_invalid_documents_are_refused_with_their_field(services, tenant, document, field, says):
    request = indexer_pb2.IngestDocumentRequest(
        tenant_id=tenant, document=types_pb2.Document(**document)
    )
    code, error = failure(services.raw_indexer.IngestDocument, request)
    assert (code, error.field) == (INVALID, field)
    assert says in error.message


def big_filter():
    return {"match": {"field": "document_id", "values": [{"text": "x"}] * 10_000}}


def vector(*values):
    return {"vector": retriever_pb2.Vector(values=values)}


@pytest.mark.parametrize(
    ("search", "field", "says"),
    [
        ({"text": "x", "limit": 0}, "limit", "from 1 to 100"),
        ({"text": "x", "limit": 10_000}, "limit", "from 1 to 100"),
        ({"text": "x", "candidates": 0}, "candidates", "10000"),
        ({"text": "x", "return_level": 9}, "return_level", "is 9"),
        ({"text": "x", "mode": 2, "return_level": 1}, "return_level", "STANDARD"),
        ({"text": "x", "mode": 77}, "mode", "77"),
        ({"text": "x", "merge_ratio": 0.5}, "merge_ratio", "only AUTO_MERGE"),
        ({"text": "x", "mode": 3, "merge_ratio": 0.0}, "merge_ratio", "greater than 0"),
        ({"text": "x", "mode": 3, "merge_ratio": 1.5}, "merge_ratio", "1.5"),
        ({"text": "x", "mode": 3, "merge_ratio": float("nan")}, "merge_ratio", "nan"),
        ({"text": "x", "min_score": float("nan")}, "min_score", "finite"),
        ({"text": "x", "min_score": float("-inf")}, "min_score", "finite"),
        ({"text": "x", "window_sentences": 3}, "window_sentences", "only SENTENCE_WINDOW"),
        ({"text": "x", "mode": 4, "window_sentences": 21}, "window_sentences", "from 0 to 20"),
        ({"text": "x", "mode": 4, "return_level": 0}, "return_level", "SENTENCE_WINDOW"),
        ({"text": "x", "cut_last": True}, "cut_last", "token_budget"),
        ({"text": "x", "top_sections": 3}, "top_sections", "only SUMMARY_FIRST"),
        ({"text": "x", "summary_scope": 2}, "summary_scope", "only SUMMARY_FIRST"),
        ({"text": "x", "mode": 5, "summary_scope": 9}, "summary_scope", "is 9"),
        ({"text": "x", "mode": 5, "top_sections": 0}, "top_sections", "from 1 to 1000"),
        ({"text": "x", "mode": 5, "top_sections": 1001}, "top_sections", "from 1 to 1000"),
        ({"text": "x", "mode": 5, "merge_ratio": 0.5}, "merge_ratio", "only AUTO_MERGE"),
        ({"text": "x", "filter": {}}, "filter", "set all_of"),
        ({"text": "x", "filter": {"all_of": {}}}, "filter.all_of", "empty"),
        ({"text": "x", "filter": {"exists": {"field": "a"}}}, "filter.exists.field", "metadata"),
        ({"text": "x", "filter": {"match": {"field": "title"}}}, "filter.match.values", "empty"),
        ({"text": "x", "filter": {"range": {"field": "metadata.a"}}}, "filter.range", "no bound"),
        ({"text": "x", "filter": big_filter()}, "filter", "at most 10000"),
        ({"text": " "}, "text", "blank"),
        ({"text": "x" * 40_000}, "text", "32768"),
        ({}, "text", "blank"),
        (vector(1.0, 2.0), "vector", "have 64"),
        (vector(*[float("nan")] * 64), "vector", "NaN"),
        (vector(*[0.0] * 64), "vector", "zero"),
        (vector(), "vector", ""),
    ],
)
def test_invalid_searches_are_refused_with_their_field(services, tenant, search, field, says):
    services.client.ingest(tenant, Document("Some text."))
    request = retriever_pb2.SearchRequest(tenant_id=tenant, **search)
    code, error = failure(services.raw_retriever.Search, request)
    assert (code, error.field) == (INVALID, field)
    assert says in error.message


def test_a_search_far_too_large_is_refused_because_of_its_length(services, tenant):
    """The request is not parsed, because 4 MB may need hundreds of MB of memory when parsed."""
    request = retriever_pb2.SearchRequest(tenant_id=tenant, text="x" * (16 << 20))
    code, error = failure(services.raw_retriever.Search, request)
    assert (code, type(error)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, TooLarge)


def test_calls_that_name_missing_objects_fail_with_not_found(services, tenant):
    unknown = retriever_pb2.SearchRequest(tenant_id=tenant, text="x")
    assert failure(services.raw_retriever.Search, unknown)[0] is MISSING
    elsewhere = indexer_pb2.IngestDocumentRequest(
        tenant_id=tenant, collection="nowhere", document=types_pb2.Document(text="x")
    )
    assert failure(services.raw_indexer.IngestDocument, elsewhere)[0] is MISSING
    services.client.ingest(tenant, Document("Some text."))
    document = indexer_pb2.GetDocumentRequest(tenant_id=tenant, document_id="unknown")
    assert failure(services.raw_indexer.GetDocument, document)[0] is MISSING
    chunk = retriever_pb2.GetChunkRequest(tenant_id=tenant, chunk_id="unknown#0.0")
    assert failure(services.raw_retriever.GetChunk, chunk)[0] is MISSING


def test_one_bad_document_does_not_end_a_stream(services, tenant):
    sent = [Document("Good."), Document(" "), Document("Also good.")]
    kinds = [type(result).__name__ for result in services.client.ingest_many(tenant, sent)]
    assert kinds == ["IngestResult", "BlankDocument", "IngestResult"]


def test_a_call_ends_at_its_deadline(services, tenant):
    services.client.ingest(tenant, Document("Some text."))
    request = retriever_pb2.SearchRequest(tenant_id=tenant, text="x", min_sequence=1 << 40)
    with pytest.raises(grpc.RpcError) as caught:
        services.raw_retriever.Search(request, timeout=0.001)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def test_a_search_for_an_unreached_sequence_ends_at_its_deadline(services, tenant):
    written = services.client.ingest(tenant, Document("Some text."))
    request = retriever_pb2.SearchRequest(tenant_id=tenant, text="x", min_sequence=1 << 40)
    with pytest.raises(grpc.RpcError) as caught:
        services.raw_retriever.Search(request, timeout=0.5)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    result = services.client.search(tenant, "x", min_sequence=written.sequence)
    assert result.sequence >= written.sequence
