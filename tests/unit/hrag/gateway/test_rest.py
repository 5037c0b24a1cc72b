"""The short paths below /api/v1 answer in envelopes, and forward one call each."""

import json
from datetime import datetime
from typing import Any

import pytest

from hrag import errors
from hrag.gateway import rest
from hrag.v1 import retriever_pb2 as rpb
from hrag.v1 import types_pb2 as tpb
from tests.support.servers.fake_services import Fake
from tests.support.servers.gateways import JSON, Gateway

RETRIEVE = "/api/v1/retrieve?tenant_id=acme"
HIERARCHY = "/api/v1/chunks/guide%232.0/hierarchy?tenant_id=acme"
STATUS = "/api/v1/status"
_PLACE = {"tenant_id": "acme", "collection": "handbook"}


def _search(**body: Any) -> rpb.SearchRequest:
    """Returns the search that a body becomes."""
    return rest.search_request(_PLACE, json.dumps(body).encode())


def test_a_body_becomes_a_search() -> None:
    exists = {"exists": {"field": "title"}}
    search = _search(query="what?", retrieval_mode="auto_merge", limit=3, filter=exists)
    assert search == rpb.SearchRequest(
        tenant_id="acme",
        collection="handbook",
        text="what?",
        mode=rpb.SEARCH_MODE_AUTO_MERGE,
        limit=3,
        filter={"exists": {"field": "title"}},
    )
    assert _search(query="?", tokenBudget=7, token_budget=None).token_budget == 7
    assert _search(query="?", retrieval_mode=None).mode == rpb.SEARCH_MODE_UNSPECIFIED


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ([], "request", "must be an object"),
        ({"tenant_id": "b"}, "tenant_id", "send it as a parameter of the address"),
        ({"tenantId": "b"}, "tenantId", "send it as a parameter of the address"),
        ({"collection": "b"}, "collection", "send it as a parameter of the address"),
        ({"text": "b"}, "text", "name it query"),
        ({"mode": "b"}, "mode", "name it retrieval_mode"),
        ({"retrieval_mode": "SMALL"}, "retrieval_mode", "allowed are small_to_big, standard"),
        ({"retrieval_mode": ["a"]}, "retrieval_mode", "allowed are small_to_big"),
        ({"top": 3}, "top", "has no field 'top'"),
        ({"limit": "many"}, "limit", "must be a whole number"),
    ],
)
def test_a_wrong_body_is_refused_with_the_field(body: Any, field: str, words: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=words) as refused:
        rest.search_request(_PLACE, json.dumps(body).encode())
    assert refused.value.field == field


def test_the_data_of_a_retrieval_has_exactly_the_fields_of_the_specification() -> None:
    chunk = tpb.Chunk(chunk_id="d#2.0", document_id="d", content="text", level=2, token_count=9)
    children = [rpb.MatchedChild(chunk_id="d#0.1"), rpb.MatchedChild(chunk_id="d#0.0")]
    response = rpb.SearchResponse(
        passages=[
            rpb.Passage(chunk=chunk, score=0.5, matched_children=children),
            rpb.Passage(chunk=tpb.Chunk(chunk_id="d#0.0", document_id="d")),
        ],
        mode=rpb.SEARCH_MODE_SMALL_TO_BIG,
        returned_at_level=2,
    )
    assert rest.retrieval_data("what?", response.SerializeToString()) == {
        "query": "what?",
        "results": [
            {
                "id": "d#2.0",
                "content": "text",
                "level": 2,
                "matched_child_ids": ["d#0.1", "d#0.0"],
                "token_count": 9,
                "document_id": "d",
                "score": 0.5,
            },
            {
                "id": "d#0.0",
                "content": "",
                "level": 0,
                "matched_child_ids": [],
                "token_count": 0,
                "document_id": "d",
                "score": 0.0,
            },
        ],
        "retrieval_mode": "small_to_big",
        "matched_at_level": 0,
        "returned_at_level": 2,
    }


def test_a_reply_is_data_and_meta(gateway: Gateway) -> None:
    reply = gateway.post(RETRIEVE, {"query": "dogs"}, {"x-request-id": "by-rest"})
    assert reply.status == 200
    assert reply.headers["content-type"] == JSON["content-type"]
    assert set(reply.json) == {"data", "meta"}
    assert reply.json["data"]["query"] == "dogs"
    assert reply.json["meta"]["requestId"] == reply.headers["x-request-id"] == "by-rest"
    assert datetime.fromisoformat(reply.json["meta"]["timestamp"]).utcoffset() is not None


@pytest.mark.parametrize("escaped", ["a:b%232.0", "a%3Ab%232.0"])
def test_the_id_of_a_chunk_may_have_escapes(gateway: Gateway, fake: Fake, escaped: str) -> None:
    before = fake.calls["GetHierarchy"]
    reply = gateway.send("GET", f"/api/v1/chunks/{escaped}/hierarchy?tenant_id=acme&depth=2")
    assert (reply.status, set(reply.json["data"])) == (
        200,
        {"node", "ancestors", "siblings", "descendants"},
    )
    assert set(reply.json["data"]["node"]) == {
        *("id", "content", "level", "token_count", "document_id", "parent_id", "child_ids")
    }
    assert fake.calls["GetHierarchy"] == before + 1


def test_the_status_has_the_names_of_the_proto_file(gateway: Gateway) -> None:
    data = gateway.send("GET", f"{STATUS}?tenant_id=acme").json["data"]
    assert {"version", "embedder", "return_level", "chat_model"} <= set(data)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", RETRIEVE, 405, "unimplemented"),
        ("POST", STATUS, 405, "unimplemented"),
        ("HEAD", STATUS, 405, ""),
        ("GET", f"{STATUS}?tenant=acme", 400, "invalid_argument"),
        ("GET", f"{HIERARCHY}&tenant_id=acme", 400, "invalid_argument"),
        ("GET", f"{HIERARCHY}&depth=two", 400, "invalid_argument"),
        ("GET", f"{HIERARCHY}&include_content=1", 400, "invalid_argument"),
    ],
)
def test_refused_requests_get_the_envelope_of_errors(
    gateway: Gateway, method: str, path: str, status: int, code: str
) -> None:
    reply = gateway.send(method, path)
    assert reply.status == status
    if code:
        assert set(reply.json) == {"error", "meta"}
        assert reply.json["error"]["code"] == code


@pytest.mark.parametrize(
    ("method", "path"), [("POST", RETRIEVE), ("GET", HIERARCHY), ("GET", STATUS)]
)
def test_errors_of_the_services_and_of_the_gateway_have_the_envelope(
    gateway: Gateway, fake: Fake, method: str, path: str
) -> None:
    def send(**headers: str) -> Any:
        return gateway.send(method, path, b'{"query": "dogs"}', {**JSON, **headers})

    fake.failures.append(errors.TooBusy("no"))
    busy = send()
    assert (busy.status, busy.json["error"]["code"]) == (429, "resource_exhausted")
    assert "retry-after" in busy.headers
    assert busy.json["meta"]["requestId"] == busy.headers["x-request-id"]
    strange = send(host="evil.example.org")
    assert (strange.status, strange.json["error"]["code"]) == (403, "permission_denied")
    late = send(**{"connect-timeout-ms": "0"})
    assert (late.status, late.json["error"]["code"]) == (504, "deadline_exceeded")


def test_a_body_of_another_type_gets_the_envelope_of_errors(gateway: Gateway) -> None:
    reply = gateway.send("POST", RETRIEVE, b"{}", {"content-type": "text/plain"})
    assert (reply.status, reply.json["error"]["code"]) == (415, "unimplemented")
    assert reply.headers["accept-post"] == JSON["content-type"]


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/chunks/a%2Fb/c/hierarchy",
        "/api/v1/chunks//hierarchy",
        "/api/v1/chunks/{id}/hierarchy/",
        "/api/v1/chunks%2Fa/hierarchy",
        "/api/v1/%72etrieve",
    ],
)
def test_other_spellings_of_a_path_are_not_served(gateway: Gateway, path: str) -> None:
    assert gateway.send("GET", path).status == 404
