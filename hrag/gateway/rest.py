"""Serves three calls at short paths, with parameters in the address and replies in envelopes.

`POST /api/v1/retrieve` is Search, `GET /api/v1/chunks/{id}/hierarchy` is GetHierarchy, and
`GET /api/v1/status` is GetServerInfo. Each path forwards one call and only renames its fields, so
rights, limits, quotas and the audit log are those of the call. A reply is
`{"data": ..., "meta": {"requestId", "timestamp"}}`, and an error has `error` in place of `data`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from google.protobuf import json_format
from starlette.requests import Request
from starlette.responses import Response

from hrag.gateway.calls.exchange import Exchange
from hrag.gateway.http import call_headers
from hrag.gateway.http.address_parameters import parameters
from hrag.gateway.http.connect_error import ConnectError
from hrag.gateway.http.reply import JSON
from hrag.gateway.http.routes import Route
from hrag.gateway.protojson import json_reader
from hrag.gateway.protojson.json_writer import as_json, dumped
from hrag.gateway.reference.rest_paths import (
    HIERARCHY,
    HIERARCHY_PARAMETERS,
    MODE_PREFIX,
    RENAMED,
    RETRIEVAL_MODES,
    RETRIEVE,
    RETRIEVE_PARAMETERS,
    STATUS,
    STATUS_PARAMETERS,
)
from hrag.gateway.services.methods import ServiceMethod, method_named
from hrag.server.admission.byte_budget import Share
from hrag.v1 import retriever_pb2 as pb
from hrag.values.errors import InvalidArgument
from hrag.values.ids import quoted

_SEARCH = method_named("Search")
_GET_HIERARCHY = method_named("GetHierarchy")
_GET_SERVER_INFO = method_named("GetServerInfo")
_FLAGS = {"true": True, "false": False}
_RENAMED = {name: field for field, name in RENAMED.items()}
# These fields of a SearchRequest are parameters of the address, or have the names above.
_NOT_IN_BODY = ("tenant_id", "tenantId", "collection", *_RENAMED.values())


def rest_routes(exchange: Exchange) -> dict[str, Route]:
    """Returns the routes of the three paths."""
    get = ("GET",)
    return {
        RETRIEVE: Route(partial(_retrieve, exchange), ("POST",), (JSON,), error_form),
        HIERARCHY: Route(partial(_hierarchy, exchange), get, (), error_form),
        STATUS: Route(partial(_status, exchange), get, (), error_form),
    }


def error_form(request: Request, error: ConnectError) -> bytes:
    """Returns an error in the envelope of the three paths."""
    return dumped({"error": error.as_json(), "meta": _meta(request)})


def _enveloped(request: Request, data: Any) -> bytes:
    return dumped({"data": data, "meta": _meta(request)})


def _meta(request: Request) -> dict[str, str]:
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"requestId": request.state.request_id, "timestamp": now}


# The functions below serve POST /api/v1/retrieve.


async def _retrieve(exchange: Exchange, request: Request) -> Response:
    retrieval = _Retrieval(exchange, request)
    return await exchange.reply(request, retrieval.start, JSON, retrieval.reply)


@dataclass(slots=True)
class _Retrieval:
    """One request of RETRIEVE; its reply repeats the query of the request."""

    exchange: Exchange
    request: Request
    query: str = ""

    async def start(self, share: Share) -> Any:
        """Reads the request and starts the search."""
        request, exchange = self.request, self.exchange
        time_left_s = call_headers.time_left_s(request)
        metadata = call_headers.metadata(request)
        place = parameters(request, RETRIEVE_PARAMETERS)
        raw = await exchange.body(_SEARCH, request, share, metadata)
        caller = call_headers.caller_or_address(request)
        search = await exchange.conversion.of_request(partial(search_request, place), raw, caller)
        self.query = search.text
        return exchange.services.call(_SEARCH, search.SerializeToString(), metadata, time_left_s())

    def reply(self, encoded: bytes) -> bytes:
        """Converts the encoded response of the search to the reply."""
        return _enveloped(self.request, retrieval_data(self.query, encoded))


def search_request(place: Mapping[str, str], raw: bytes) -> pb.SearchRequest:
    """Returns the search that the body of a request describes; raises InvalidArgument.

    `place` has the tenant and the collection.
    """
    body = json_reader.load(raw)
    if not isinstance(body, dict):
        raise InvalidArgument(f"{json_reader.BODY} must be an object", field=json_reader.BODY)
    for name in _NOT_IN_BODY:
        if name in body:
            other = RENAMED.get(name)
            advice = f"name it {other}" if other else "send it as a parameter of the address"
            raise InvalidArgument(f"{name} is not a field of this body; {advice}", field=name)
    values = {_RENAMED.get(name, name): value for name, value in body.items()}
    if values.get("mode") is not None:
        values["mode"] = _mode(values["mode"])
    search = pb.SearchRequest()
    json_reader.fill(search, {**values, **place})
    return search


def _mode(value: Any) -> str:
    if value not in RETRIEVAL_MODES:
        raise InvalidArgument(
            f"retrieval_mode is {quoted(str(value))}; allowed are {', '.join(RETRIEVAL_MODES)}",
            field="retrieval_mode",
        )
    return f"{MODE_PREFIX}{value.upper()}"


def retrieval_data(query: str, encoded: bytes) -> dict[str, Any]:
    """Returns the `data` of the reply for the encoded response of a search."""
    response = as_json(_SEARCH.response, encoded)
    return {
        "query": query,
        "results": [_result(passage) for passage in response.get("passages", ())],
        "retrieval_mode": response.get("mode", "").removeprefix(MODE_PREFIX).lower(),
        "matched_at_level": response.get("matchedAtLevel", 0),
        "returned_at_level": response.get("returnedAtLevel", 0),
    }


def _result(passage: Mapping[str, Any]) -> dict[str, Any]:
    chunk = passage["chunk"]
    return {
        **_chunk(chunk),
        "matched_child_ids": [child["chunkId"] for child in passage.get("matchedChildren", ())],
        "score": passage.get("score", 0.0),
    }


def _chunk(chunk: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": chunk.get("chunkId", ""),
        "content": chunk.get("content", ""),
        "level": chunk.get("level", 0),
        "token_count": chunk.get("tokenCount", 0),
        "document_id": chunk.get("documentId", ""),
    }


# The functions below serve the two paths that are read with GET.


async def _hierarchy(exchange: Exchange, request: Request) -> Response:
    values: dict[str, Any] = {
        **parameters(request, HIERARCHY_PARAMETERS),
        "chunk_id": request.path_params["id"],
    }
    if "include_content" in values:
        values["include_content"] = _flag("include_content", values["include_content"])
    start = partial(_start, exchange, request, _GET_HIERARCHY, values)
    return await exchange.reply(request, start, JSON, partial(_hierarchy_reply, request))


def _hierarchy_reply(request: Request, encoded: bytes) -> bytes:
    response = as_json(_GET_HIERARCHY.response, encoded)
    relatives = ("ancestors", "siblings", "descendants")
    return _enveloped(
        request,
        {
            "node": _node(response.get("node", {})),
            **{name: list(map(_node, response.get(name, ()))) for name in relatives},
        },
    )


def _node(node: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **_chunk(node.get("chunk", {})),
        "parent_id": node.get("parentId", ""),
        "child_ids": node.get("childIds", []),
    }


async def _status(exchange: Exchange, request: Request) -> Response:
    parameters(request, STATUS_PARAMETERS)
    start = partial(_start, exchange, request, _GET_SERVER_INFO, {})
    return await exchange.reply(request, start, JSON, partial(_status_reply, request))


def _status_reply(request: Request, encoded: bytes) -> bytes:
    response = _GET_SERVER_INFO.response.FromString(encoded)
    return _enveloped(
        request,
        json_format.MessageToDict(
            response,
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
        ),
    )


async def _start(
    exchange: Exchange,
    request: Request,
    method: ServiceMethod,
    values: Mapping[str, Any],
    _share: Share,
) -> Any:
    """Starts the call of a request that has no body."""
    time_left_s = call_headers.time_left_s(request)
    message = method.request()
    json_reader.fill(message, dict(values))
    metadata = call_headers.metadata(request)
    return exchange.services.call(method, message.SerializeToString(), metadata, time_left_s())


def _flag(name: str, value: str) -> bool:
    if value not in _FLAGS:
        raise InvalidArgument(f"{name} is {quoted(value)}; it must be true or false", field=name)
    return _FLAGS[value]
