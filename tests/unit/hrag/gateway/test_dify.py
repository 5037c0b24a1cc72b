"""Requests of Dify become searches, passages become Dify's records, and errors get Dify's codes."""

import json
from typing import Any

import pytest
from google.protobuf import json_format

from hrag import errors
from hrag.gateway import dify
from hrag.gateway.http.reply import JSON
from hrag.v1 import retriever_pb2 as rpb
from hrag.v1 import types_pb2 as tpb
from hrag.values.ids import quoted
from tests.support.servers.fake_services import Fake
from tests.support.servers.gateways import Gateway

PATH = "/retrieval"
_REQUEST = {
    "knowledge_id": "acme/handbook",
    "query": "what?",
    "retrieval_setting": {"top_k": 3, "score_threshold": 0.25},
}

_TEAM_A = {"match": {"field": "metadata.team", "values": [{"text": "a"}]}}


def _search(**changes: Any) -> dict[str, Any]:
    """Returns the fields of the search that a changed request of Dify becomes."""
    raw = json.dumps({**_REQUEST, **changes}).encode()
    message = rpb.SearchRequest.FromString(dify.search_request(raw))
    fields: dict[str, Any] = json_format.MessageToDict(message)
    return fields


def _filter(operator: str, value: Any = None, name: Any = "team") -> dict[str, Any]:
    """Returns the filter that a condition of Dify becomes."""
    condition = {"name": name, "comparison_operator": operator, "value": value}
    (filter_,) = _search(metadata_condition={"conditions": [condition]})["filter"]["allOf"][
        "filters"
    ]
    assert isinstance(filter_, dict)
    return filter_


def test_a_request_becomes_a_search() -> None:
    assert _search() == {
        "tenantId": "acme",
        "collection": "handbook",
        "text": "what?",
        "limit": 3,
        "minScore": 0.25,
    }
    assert "minScore" not in _search(retrieval_setting={"top_k": 3, "score_threshold": 0.0})


def test_a_knowledge_id_with_only_a_tenant_means_its_default_collection() -> None:
    assert "collection" not in _search(knowledge_id="acme")


@pytest.mark.parametrize(
    ("operator", "value", "expected"),
    [
        ("is", "a", _TEAM_A),
        ("=", 5, {"match": {"field": "metadata.team", "values": [{"number": 5.0}]}}),
        (
            "in",
            ["a", True],
            {"match": {"field": "metadata.team", "values": [{"text": "a"}, {"flag": True}]}},
        ),
        (
            "in",
            "a, b c,",
            {"match": {"field": "metadata.team", "values": [{"text": "a"}, {"text": "b c"}]}},
        ),
        ("is", "a, b", {"match": {"field": "metadata.team", "values": [{"text": "a, b"}]}}),
        ("not in", "a", {"noneOf": {"filters": [_TEAM_A]}}),
        ("before", 5, {"range": {"field": "metadata.team", "below": {"number": 5.0}}}),
        ("is not", "a", {"noneOf": {"filters": [_TEAM_A]}}),
        ("not empty", None, {"exists": {"field": "metadata.team"}}),
        ("empty", None, {"noneOf": {"filters": [{"exists": {"field": "metadata.team"}}]}}),
        ("≥", 2, {"range": {"field": "metadata.team", "atLeast": {"number": 2.0}}}),
        ("<", "2.5", {"range": {"field": "metadata.team", "below": {"number": 2.5}}}),
        (
            "after",
            "2026-01-02",
            {"range": {"field": "metadata.team", "above": {"timestamp": "2026-01-02T00:00:00Z"}}},
        ),
    ],
)
def test_conditions_become_filters(operator: str, value: Any, expected: dict[str, Any]) -> None:
    assert _filter(operator, value) == expected


def test_several_field_names_in_a_condition_are_alternatives() -> None:
    alternatives = _filter("not empty", name=["title", "team"])
    fields = [filter_["exists"]["field"] for filter_ in alternatives["anyOf"]["filters"]]
    assert fields == ["title", "metadata.team"]


@pytest.mark.parametrize(
    ("name", "field"),
    [
        *((name, name) for name in ("document_id", "title", "source", "mime_type", "format")),
        ("metadata.format", "metadata.format"),
        ("formats", "metadata.formats"),
    ],
)
def test_a_name_is_a_field_of_documents_or_a_key_of_the_metadata(name: str, field: str) -> None:
    assert _filter("is", "pdf", name) == {"match": {"field": field, "values": [{"text": "pdf"}]}}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        *(
            (name, ".name: a key is missing: it must be document_id, title, source,")
            for name in ("", " ", "metadata.", ["team", "metadata."], ["", "team"])
        ),
        *((name, ".name must be the name of a field") for name in (None, [], 7, ["team", None])),
    ],
)
def test_a_condition_without_a_key_is_refused(name: Any, words: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=words) as refused:
        _filter("is", "pdf", name)
    assert refused.value.field == "metadata_condition.conditions[0].name"


def test_conditions_may_be_alternatives() -> None:
    condition = {"name": "team", "comparison_operator": "not empty"}
    conditions = {"logical_operator": "or", "conditions": [condition, condition]}
    assert list(_search(metadata_condition=conditions)["filter"]) == ["anyOf"]


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"knowledge_id": ""}, "knowledge_id", "must be a text that is not empty"),
        ({"query": None}, "query", "must be a text"),
        ({"retrieval_setting": [1]}, "retrieval_setting", "must be an object"),
        ({"retrieval_setting": {"topk": 1}}, "retrieval_setting.topk", "allowed are"),
        ({"retrieval_setting": {"top_k": "many"}}, "limit", "must be a whole number"),
        ({"retrieval_setting": []}, "retrieval_setting", "must be an object"),
        ({"retrieval_setting": {"score_threshold": []}}, "minScore", "must be a number"),
        ({"other": 1}, "other", "is not a field"),
        ({"\ud800": 1}, "?", "is not a field"),
        (
            {"metadata_condition": {"logical_operator": ["and"]}},
            "metadata_condition.logical_operator",
            "allowed are and, or",
        ),
        (
            {"metadata_condition": {"logical_operator": "xor"}},
            "metadata_condition.logical_operator",
            "'xor'; allowed are and, or",
        ),
    ],
)
def test_invalid_requests_are_refused_with_the_field(
    changes: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(errors.InvalidArgument, match=words) as refused:
        _search(**changes)
    assert refused.value.field == field


@pytest.mark.parametrize(
    "operator", ["contains", "not contains", "start with", "end with", None, ["="]]
)
def test_operators_that_filters_do_not_have_are_refused_by_name(operator: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match="; allowed are is, =") as refused:
        _filter(operator, "a")
    assert refused.value.field == "metadata_condition.conditions[0].comparison_operator"
    assert quoted(str(operator)) in refused.value.message


def _record(passage: rpb.Passage) -> dict[str, Any]:
    encoded = rpb.SearchResponse(passages=[passage]).SerializeToString()
    (record,) = json.loads(dify.records(encoded))["records"]
    assert isinstance(record, dict)
    return record


def test_a_passage_becomes_a_record() -> None:
    chunk = tpb.Chunk(chunk_id="d#2.0", document_id="d", content="text", source="file")
    chunk.metadata.update({"team": "a"})
    assert _record(rpb.Passage(chunk=chunk, score=0.5)) == {
        "content": "text",
        "score": 0.5,
        "title": "d",
        "metadata": {"team": "a", "document_id": "d", "chunk_id": "d#2.0", "source": "file"},
    }
    assert _record(rpb.Passage(chunk=chunk, score=-0.5))["score"] == 0


@pytest.mark.parametrize(
    ("error", "authorization", "status", "code"),
    [
        (errors.Unauthenticated("no"), "", 401, 1001),
        (errors.Unauthenticated("no"), "Basic abc", 401, 1001),
        (errors.Unauthenticated("no"), "Bearer abc", 401, 1002),
        (errors.PermissionDenied("no"), "Bearer abc", 403, 1002),
        (errors.CollectionNotFound("no"), "Bearer abc", 404, 2001),
        (errors.TooBusy("no"), "Bearer abc", 429, 429),
    ],
)
def test_errors_have_the_codes_that_dify_knows(
    gateway: Gateway, fake: Fake, error: Exception, authorization: str, status: int, code: int
) -> None:
    fake.failures.append(error)
    headers = {"authorization": authorization} if authorization else {}
    reply = gateway.post(PATH, _REQUEST, headers)
    assert (reply.status, reply.json) == (status, {"error_code": code, "error_msg": "no"})


def test_a_request_is_answered_with_records(gateway: Gateway) -> None:
    reply = gateway.post(PATH, _REQUEST)
    assert (reply.status, reply.json) == (200, {"records": []})
    assert reply.headers["content-type"] == JSON
