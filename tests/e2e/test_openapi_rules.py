"""The schemas of requests and the services demand the same.

Each rule of a schema is broken by one request, and met at its limit by another one. The first one
is refused by the schema and by the service, the second one by neither.
"""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import jsonschema
import pytest

from hrag.gateway.reference.openapi import document
from hrag.gateway.reference.proto_comments import read_comments
from hrag.gateway.services.methods import METHODS, method_named
from tests.support.servers.credentials import TENANT
from tests.support.servers.gateways import Gateway, gateway_to
from tests.support.servers.openai_server import OpenAIServer
from tests.support.servers.processes import FAST, running

_DOCUMENT = document(METHODS, read_comments())
_SCHEMAS = _DOCUMENT["components"]["schemas"]
_PLACE = {"tenantId": TENANT, "collection": "default"}
_NAMED = {"tenantId": TENANT, "name": "books"}
_OF_DOCUMENT = {**_PLACE, "documentId": "pets"}
_OF_CHUNK = {**_PLACE, "chunkId": "pets#0.0"}
_MATCH = {"match": {"field": "title", "values": [{"text": "Pets"}]}}
_MARKDOWN = {"field": "format", "values": [{"text": "md"}, {"text": "text/markdown"}]}
_RANGE = {"range": {"field": "metadata.year", "atLeast": {"number": 2026}}}
_FILTER = {"allOf": {"filters": [_MATCH, _RANGE, {"exists": {"field": "title"}}]}}
_SEARCH = {**_PLACE, "text": "dogs"}
_TIME = "2026-11-27T10:00:00Z"
_VECTOR = {"values": [1.0] * 3}
_FUSION = "FUSION_METHOD_CONVEX"


def _matching(*values: dict[str, Any]) -> dict[str, Any]:
    return {"match": {"field": "title", "values": list(values)}}


def _between(lower: dict[str, Any], upper: dict[str, Any]) -> dict[str, Any]:
    return {"range": {"field": "metadata.a", "atLeast": lower, "atMost": upper}}


_TURN = {"role": "TURN_ROLE_USER", "text": "Who barks?"}
# Requests that meet all rules. A method may have several, because some options exclude each other.
_VALID: tuple[tuple[str, dict[str, Any]], ...] = (
    ("CreateCollection", {**_NAMED, "settings": {"levelSizes": [256], "overlapRatio": 0.2}}),
    ("GetCollection", _NAMED),
    ("ListTenants", {"pageSize": 5}),
    ("ListCollections", {"tenantId": TENANT, "pageSize": 5}),
    ("DeleteCollection", {**_NAMED, "name": "nothing"}),
    ("ReembedCollection", _NAMED),
    ("SetAlias", {"tenantId": TENANT, "alias": "a", "collection": "default"}),
    ("DeleteAlias", {"tenantId": TENANT, "alias": "b"}),
    ("ListAliases", {"tenantId": TENANT}),
    (
        "IngestDocument",
        {
            **_PLACE,
            "document": {
                "documentId": "rule",
                "title": "Rule",
                "source": "rule.txt",
                "metadata": {"a": 1},
                "text": "Dogs bark.",
            },
            "validateOnly": True,
        },
    ),
    ("IngestDocument", {**_PLACE, "document": {"pages": {"pages": [{"text": "Dogs."}]}}}),
    ("IngestDocument", {**_PLACE, "document": {"content": "RG9ncy4="}}),
    ("UpdateMetadata", {**_OF_DOCUMENT, "source": "pets.txt"}),
    ("UpdateMetadata", {**_OF_DOCUMENT, "metadata": {"a": 1}, "replace": True}),
    ("UpdateMetadata", {**_OF_DOCUMENT, "removeKeys": ["b"]}),
    ("DeleteDocument", {**_OF_DOCUMENT, "documentId": "nothing"}),
    ("DeleteDocuments", {**_PLACE, "filter": {"exists": {"field": "metadata.nothing"}}}),
    ("GetDocument", _OF_DOCUMENT),
    ("ListDocuments", {**_PLACE, "pageSize": 5, "filter": _FILTER}),
    ("CountDocuments", {**_PLACE, "filter": {"match": {**_MATCH["match"]}}}),
    ("CountDocuments", {**_PLACE, "filter": {"match": _MARKDOWN}}),
    ("GetIndexStatus", _PLACE),
    (
        "Search",
        {
            **_SEARCH,
            "limit": 5,
            "candidates": 20,
            "returnLevel": 0,
            "lexicalWeight": 0.5,
            "neighbourBonus": 0.5,
            "maxPerDocument": 2,
            "filter": _FILTER,
        },
    ),
    ("Search", {**_PLACE, "vector": {"values": [1.0]}}),
    ("Search", {**_SEARCH, "mode": "SEARCH_MODE_AUTO_MERGE", "mergeRatio": 0.5}),
    ("Search", {**_SEARCH, "mode": "SEARCH_MODE_SENTENCE_WINDOW", "windowSentences": 1}),
    ("Search", {**_SEARCH, "mode": "SEARCH_MODE_SUMMARY_FIRST", "topSections": 2}),
    ("BatchSearch", {"searches": [_SEARCH]}),
    ("Answer", {"search": _SEARCH, "question": "Who?", "maxTokens": 5, "history": [_TURN]}),
    ("GetChunk", _OF_CHUNK),
    ("GetHierarchy", {**_OF_CHUNK, "depth": 1}),
    ("GetServerInfo", {}),
)
# At its limit, a request with these fields is refused for another reason: the sizes of levels must
# increase, a collection has fewer levels than the highest number, a JSON document has fewer values,
# a setting allows fewer tokens, and a vector has the length of the collection's vectors.
_NO_LIMIT = ("levelSizes", "returnLevel", "embeddingLevel", "pages", "maxTokens", "vector")
# A request with more items than this takes seconds.
_MOST_ITEMS = 10_000

Case = tuple[str, Any, Any]


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    if not name:
        return schema
    named = _SCHEMAS[name]
    return {**named, **schema, "properties": named.get("properties", {})}


def _cases(schema: dict[str, Any], value: Any) -> Iterator[Case]:
    """Yields for each rule its name, a value that breaks it, and a value at its limit or None."""
    schema = _resolved(schema)
    if isinstance(value, dict):
        yield from _object_cases(schema, value)
    elif isinstance(value, list):
        yield from _array_cases(schema, value)
    elif isinstance(value, str):
        if pattern := schema.get("pattern"):
            yield f"pattern {pattern[:20]}", " " if pattern.endswith(r"\S") else "!", None
        if longest := schema.get("maxLength"):
            yield "maxLength", "a" * (longest + 1), "a" * longest
    elif "maximum" in schema and not isinstance(value, bool):
        step = 0.5 if schema["type"] == "number" else 1
        yield "maximum", _beyond(schema["maximum"], step), schema["maximum"]
    if "minimum" in schema and "exclusiveMinimum" not in schema:
        yield "minimum", _beyond(schema["minimum"], -1), schema["minimum"]
    if "exclusiveMinimum" in schema:
        yield "exclusiveMinimum", schema["exclusiveMinimum"], None
    if "not" in schema and "const" in schema["not"]:
        yield "not", schema["not"]["const"], None


def _beyond(limit: float, step: float) -> float:
    """Returns a number beyond a limit; adding a step does not change a very large number."""
    return limit + step if limit + step != limit else 2 * limit


def _object_cases(schema: dict[str, Any], value: dict[str, Any]) -> Iterator[Case]:
    for name in schema.get("required", ()):
        yield f"required {name}", {key: value[key] for key in value if key != name}, None
    if schema.get("additionalProperties") is False:
        yield "additionalProperties", {**value, "nonsense": 1}, None
    if "minProperties" in schema:
        few = list(value.items())[: schema["minProperties"] - 1]
        yield "minProperties", dict(few), None
    if most := schema.get("maxProperties"):
        if most > 1:  # Metadata.
            numbered = {f"k{number}": 1 for number in range(most + 1)}
            yield "maxProperties", numbered, dict(list(numbered.items())[:most])
        else:
            other = next(name for name in schema["properties"] if name not in value)
            yield "maxProperties", {**value, other: _example(schema["properties"][other])}, None
    for name, inner in value.items():
        for rule, bad, good in _cases(schema.get("properties", {}).get(name, {}), inner):
            allowed = None if good is None or name in _NO_LIMIT else {**value, name: good}
            yield f"{name} {rule}", {**value, name: bad}, allowed


def _example(schema: dict[str, Any]) -> Any:
    schema = _resolved(schema)
    if schema.get("format") == "date-time":
        return "2026-11-27T10:00:00Z"
    if schema["type"] == "object":
        return {name: _example(schema["properties"][name]) for name in schema.get("required", ())}
    return {"array": [], "boolean": True, "number": 1, "string": "title"}[schema["type"]]


def _array_cases(schema: dict[str, Any], value: list[Any]) -> Iterator[Case]:
    if "minItems" in schema:
        yield "minItems", [], None
    most = schema.get("maxItems", _MOST_ITEMS)
    if most < _MOST_ITEMS:
        yield "maxItems", value[:1] * (most + 1), value[:1] * most
    if "$ref" in schema["items"] and schema["items"]["$ref"].endswith("/SearchRequest"):
        return  # A wrong search of a batch is an outcome, not an error of the call.
    for rule, bad, good in _cases(schema["items"], value[0]):
        yield f"[0] {rule}", [bad, *value[1:]], None if good is None else [good, *value[1:]]


def _schema_of(method: str) -> dict[str, Any]:
    name = method_named(method).descriptor.input_type.name
    return {"$ref": f"#/components/schemas/{name}", "components": _DOCUMENT["components"]}


def _is_allowed(method: str, request: Any) -> bool:
    validator = jsonschema.Draft202012Validator(_schema_of(method))
    return bool(validator.is_valid(request))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway to services with a chat model and a document."""
    with OpenAIServer() as chat:
        settings = {
            **FAST,
            "HRAG_CHAT_MODEL": "test-model",
            "HRAG_CHAT_BASE_URL": chat.base_url,
            "HRAG_CHAT_API_KEY": "sk-test",
        }
        with (
            running(tmp_path_factory.mktemp("rules") / "store", settings) as both,
            gateway_to(both.indexer.address, both.retriever.address) as to_both,
        ):
            pets = {"documentId": "pets", "text": "Cats sleep. Dogs bark."}
            to_both.post(method_named("IngestDocument").path, {**_PLACE, "document": pets})
            yield to_both


def _refusal(gateway: Gateway, method: str, request: Any) -> str:
    """Returns why the service or the gateway refuses a request as invalid; empty otherwise."""
    reply = gateway.post(method_named(method).path, json.dumps(request).encode())
    if reply.status != 400 or reply.json["code"] != "invalid_argument":
        return ""
    return str(reply.json["message"])


@pytest.mark.parametrize(
    ("method", "request_"), _VALID, ids=[f"{method}-{at}" for at, (method, _) in enumerate(_VALID)]
)
def test_schema_and_service_refuse_the_same_requests(
    gateway: Gateway, method: str, request_: dict[str, Any]
) -> None:
    assert _is_allowed(method, request_)
    is_vector = "vector" in request_  # The collection's vectors have more dimensions.
    assert is_vector or not _refusal(gateway, method, request_)
    for rule, bad, good in _cases({"$ref": _schema_of(method)["$ref"]}, request_):
        assert not _is_allowed(method, bad), rule
        assert _refusal(gateway, method, bad), rule
        if good is not None:
            assert _is_allowed(method, good), rule
            assert not _refusal(gateway, method, good), (rule, _refusal(gateway, method, good))


@pytest.mark.parametrize("field", ["mime_type", "format"])
def test_the_condition_that_a_format_exists_is_refused_by_both(
    gateway: Gateway, field: str
) -> None:
    request = {**_PLACE, "filter": {"exists": {"field": field}}}
    assert not _is_allowed("CountDocuments", request)
    assert "every document has one" in _refusal(gateway, "CountDocuments", request)


@pytest.mark.parametrize("method", [method.name for method in METHODS])
def test_an_empty_request_is_refused_by_both_or_by_neither(gateway: Gateway, method: str) -> None:
    if method == "IngestDocuments":
        reply = gateway.send(
            "POST", method_named(method).path, b"{}", {"content-type": "application/octet-stream"}
        )
        assert reply.headers["content-type"] == "application/octet-stream"
        is_refused = reply.json["error"]["error"]["code"] == 3
    else:
        is_refused = bool(_refusal(gateway, method, {}))
    assert is_refused is not _is_allowed(method, {})
    assert is_refused is (method not in ("GetServerInfo", "ListTenants"))


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("UpdateMetadata", _OF_DOCUMENT),
        ("UpdateMetadata", {**_OF_DOCUMENT, "metadata": {}}),
        ("UpdateMetadata", {**_OF_DOCUMENT, "removeKeys": []}),
        ("UpdateMetadata", {**_OF_DOCUMENT, "replace": False}),
        ("IngestDocument", {**_PLACE, "document": {}}),
        ("IngestDocument", {**_PLACE, "document": {"text": "a", "content": "YQ=="}}),
        ("IngestDocument", {**_PLACE, "document": {"text": " "}}),
        ("IngestDocument", {**_PLACE, "document": {"content": ""}}),
        ("Search", _PLACE),
        ("Search", {**_PLACE, "text": " "}),
        ("ListDocuments", {**_PLACE, "filter": {"range": {"field": "metadata.a"}}}),
        (
            "ListDocuments",
            {
                **_PLACE,
                "filter": {
                    "range": {
                        "field": "metadata.a",
                        "atLeast": {"number": 1},
                        "above": {"number": 1},
                    }
                },
            },
        ),
        ("IngestDocument", {**_PLACE, "document": {"content": "0"}}),
        ("IngestDocument", {**_PLACE, "document": {"pages": {"pages": [{}]}}}),
        ("IngestDocument", {**_PLACE, "document": {"pages": {"pages": [{"text": " "}]}}}),
        ("IngestDocument", {**_PLACE, "document": {"content": "=="}}),
        ("IngestDocument", {**_PLACE, "document": {"content": "a b"}}),
        ("CreateCollection", {**_NAMED, "settings": {"nonsense": 1}}),
        ("CreateCollection", {**_NAMED, "settings": {"analyzer": "klingon"}}),
        ("UpdateMetadata", {**_OF_DOCUMENT, "replace": True, "removeKeys": ["a"]}),
        ("GetPageImage", {**_OF_DOCUMENT, "page": 1, "dpi": 20}),
        ("GetPageImage", {**_OF_DOCUMENT, "page": 1, "spans": [{"nonsense": 1}]}),
        ("GetOriginal", {**_OF_DOCUMENT, "start": "9" * 21}),
        ("CountDocuments", {**_PLACE, "filter": _matching({"flag": True})}),
        ("CountDocuments", {**_PLACE, "filter": _matching({"text": "a"}, {"number": 1})}),
        ("CountDocuments", {**_PLACE, "filter": _between({"number": 1}, {"timestamp": _TIME})}),
        ("Search", {**_SEARCH, "mergeRatio": 0.5}),
        ("Search", {**_SEARCH, "mode": "SEARCH_MODE_CONTEXT", "mergeRatio": 0.5}),
        ("Search", {**_SEARCH, "windowSentences": 1}),
        ("Search", {**_SEARCH, "topSections": 1}),
        ("Search", {**_SEARCH, "summaryScope": "SUMMARY_SCOPE_SECTIONS"}),
        ("Search", {**_SEARCH, "retrieval": "RETRIEVAL_DENSE", "lexicalWeight": 0.5}),
        ("Search", {**_SEARCH, "retrieval": "RETRIEVAL_LEXICAL", "fusion": _FUSION}),
        ("Search", {**_PLACE, "vector": _VECTOR, "lexicalWeight": 0.5}),
        ("Search", {**_PLACE, "vector": _VECTOR, "retrieval": "RETRIEVAL_HYBRID"}),
        ("Search", {**_PLACE, "vector": _VECTOR, "text": " "}),
        ("Search", {**_PLACE, "vector": {"values": [0.0] * 64}}),
        ("Answer", {"search": {**_PLACE, "vector": _VECTOR}}),
    ],
)
def test_rules_about_several_fields_hold_in_both(
    gateway: Gateway, method: str, request_: dict[str, Any]
) -> None:
    assert not _is_allowed(method, request_)
    assert _refusal(gateway, method, request_)


# The examples of these operations come first, and those that delete come last.
_FIRST = ("CreateCollection", "IngestDocument", "IngestDocuments")
_LAST = ("DeleteAlias", "DeleteDocument", "DeleteDocuments", "DeleteCollection")


def _operations() -> list[tuple[str, str, dict[str, Any]]]:
    """Returns path, HTTP method and operation, in the order in which the examples work."""
    order = {name: at for at, name in enumerate((*_FIRST, "", *_LAST))}
    operations = [
        (path, verb.upper(), operation)
        for path, methods in _DOCUMENT["paths"].items()
        for verb, operation in methods.items()
    ]
    return sorted(operations, key=lambda each: order.get(each[2]["operationId"], len(_FIRST)))


def _address(path: str, operation: dict[str, Any]) -> str:
    """Returns the address of an example, with its parameters."""
    given = [each for each in operation["parameters"] if "example" in each]
    values = {each["name"]: each["example"] for each in given}
    query = urlencode({each["name"]: each["example"] for each in given if each["in"] == "query"})
    escaped = {name: quote(value, safe="") for name, value in values.items()}
    return path.format_map(escaped) + (f"?{query}" if query else "")


def test_every_example_works(gateway: Gateway) -> None:
    """Sent in order, all examples of the document are valid and have the effect that they show."""
    replies = {}
    for path, verb, operation in _operations():
        contents = operation.get("requestBody", {}).get("content", {"": {}})
        ((media_type, content),) = contents.items()
        example = content.get("example", "")
        if isinstance(example, dict):
            schema = {**content["schema"], "components": _DOCUMENT["components"]}
            jsonschema.Draft202012Validator(schema).validate(example)
        body = example.encode() if isinstance(example, str) else json.dumps(example).encode()
        headers = {"content-type": media_type} if media_type else {}
        reply = gateway.send(verb, _address(path, operation), body, headers)
        assert reply.status == 200, (operation["operationId"], reply.body)
        replies[operation["operationId"]] = reply
    outcomes = [json.loads(line) for line in replies["IngestDocuments"].body.splitlines()]
    assert ["result" in outcome for outcome in outcomes] == [True, True]
    assert replies["CountDocuments"].json["documentCount"] == "1"
    assert replies["GetPageImage"].json["boxes"]
    assert replies["BatchSearch"].json["outcomes"][1]["response"]["passages"]
