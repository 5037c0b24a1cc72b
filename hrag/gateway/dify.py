"""Serves Dify's external knowledge API: translates `POST /retrieval` to one search.

`knowledge_id` is `tenant/collection`, or only `tenant` for the tenant's collection `default`. The
search uses the default mode and retrieval, because their scores are from 0 to 1, as in Dify.
`score_threshold` becomes the search's `min_score`. Conditions on metadata become a filter. If hrag
cannot express the operator of a condition, the request is refused, and the error names the
operator. See https://docs.dify.ai/en/use-dify/knowledge/external-knowledge-api.
"""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

import grpc
from starlette.requests import Request
from starlette.responses import Response

from hrag.gateway.calls.exchange import Exchange
from hrag.gateway.http import call_headers
from hrag.gateway.http.connect_error import ConnectError
from hrag.gateway.http.reply import JSON
from hrag.gateway.http.routes import Route
from hrag.gateway.protojson import json_reader
from hrag.gateway.protojson.json_writer import as_json, dumped
from hrag.gateway.services.methods import method_named
from hrag.server.admission.byte_budget import Share
from hrag.values.errors import InvalidArgument
from hrag.values.filters import METADATA, MISSING_KEY, field_named
from hrag.values.ids import quoted

_SEARCH = method_named("Search")
_BEARER = re.compile(r"(?i)bearer +\S+ *")
# Dify's error codes.
_NO_BEARER, _REFUSED, _NO_KNOWLEDGE = 1001, 1002, 2001
_LOGIC = {"and": "allOf", "or": "anyOf"}
_BOUNDS = {">": "above", "<": "below", "≥": "atLeast", "≤": "atMost"}
_TIMES = {"after": "above", "before": "below"}
_EQUAL = ("is", "=", "in")
_UNEQUAL = ("is not", "≠", "not in")
# Operators whose value is a list. Dify may send the list as a text in which commas separate the
# elements.
_LIST_OPERATORS = ("in", "not in")
_ABSENT = ("empty", "null")
_PRESENT = ("not empty", "not null")
_OPERATORS = (*_EQUAL, *_UNEQUAL, *_ABSENT, *_PRESENT, *_BOUNDS, *_TIMES)
_REQUEST = {"knowledge_id", "query", "retrieval_setting", "metadata_condition"}
_SETTING = {"top_k", "score_threshold"}
_NO_THRESHOLD = ("score_threshold", 0)
_CONDITIONS = {"logical_operator", "conditions"}
_CONDITION = {"name", "comparison_operator", "value"}


def retrieval_route(exchange: Exchange) -> Route:
    """Returns the route of `/retrieval`."""
    return Route(partial(_serve, exchange), ("POST",), (JSON,), error_form)


async def _serve(exchange: Exchange, request: Request) -> Response:
    return await exchange.reply(request, partial(_start, exchange, request), JSON, records)


def error_form(request: Request, error: ConnectError) -> bytes:
    """Returns an error in the form that Dify expects."""
    return dumped({"error_code": _error_code(error, request), "error_msg": error.message})


async def _start(exchange: Exchange, request: Request, share: Share) -> Any:
    metadata = call_headers.metadata(request)
    raw = await exchange.body(_SEARCH, request, share, metadata)
    caller = call_headers.caller_or_address(request)
    message = await exchange.conversion.of_request(search_request, raw, caller)
    return exchange.services.call(_SEARCH, message, metadata, None)


def _error_code(error: ConnectError, request: Request) -> int:
    """Returns Dify's code for the error; if Dify has no code for it, the HTTP status."""
    if error.code is grpc.StatusCode.UNAUTHENTICATED:
        credential = request.headers.get("authorization", "")
        return _REFUSED if _BEARER.fullmatch(credential) else _NO_BEARER
    if error.code is grpc.StatusCode.PERMISSION_DENIED:
        return _REFUSED
    if error.code is grpc.StatusCode.NOT_FOUND:
        return _NO_KNOWLEDGE
    return error.http_status


def records(encoded: bytes) -> bytes:
    """Converts the encoded response of a search to the JSON document that Dify expects."""
    passages = as_json(_SEARCH.response, encoded).get("passages", ())
    return dumped({"records": [_record(passage) for passage in passages]})


def _record(passage: Mapping[str, Any]) -> dict[str, Any]:
    chunk = passage["chunk"]
    citation = {
        "document_id": chunk.get("documentId"),
        "chunk_id": chunk.get("chunkId"),
        "source": chunk.get("source"),
        "section_path": chunk.get("sectionPath"),
        "first_page": chunk.get("firstPage"),
        "last_page": chunk.get("lastPage"),
        "page_unit": chunk.get("pageUnit", "").removeprefix("PAGE_UNIT_").lower(),
        "is_recognised": bool(chunk.get("recognisedPages")),
    }
    return {
        "content": chunk.get("content", ""),
        "score": min(max(passage.get("score", 0.0), 0.0), 1.0),
        "title": chunk.get("title") or chunk.get("documentId", ""),
        "metadata": {**chunk.get("metadata", {}), **{k: v for k, v in citation.items() if v}},
    }


# The functions below read the request.


def search_request(raw: bytes) -> bytes:
    """Converts a request of Dify, in JSON, to an encoded SearchRequest; raises InvalidArgument."""
    dify_request = _object(json_reader.load(raw), "", _REQUEST)
    setting = _setting(dify_request.get("retrieval_setting"))
    tenant_id, _, collection = _text(dify_request, "knowledge_id").partition("/")
    values = {
        "tenantId": tenant_id,
        "collection": collection,
        "text": _text(dify_request, "query"),
        "limit": setting.get("top_k"),
        "minScore": setting.get("score_threshold"),
        "filter": _filter(dify_request.get("metadata_condition")),
    }
    message = _SEARCH.request()
    json_reader.fill(message, values)
    return message.SerializeToString()


def _setting(value: Any) -> dict[str, Any]:
    """Returns the fields of Dify's `retrieval_setting`; leaves out `score_threshold` if it is 0.

    Dify sends the threshold 0 if its user has set no threshold.
    """
    setting = {} if value is None else _object(value, "retrieval_setting", _SETTING)
    return {name: value for name, value in setting.items() if (name, value) != _NO_THRESHOLD}


def _filter(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    path = "metadata_condition"
    condition = _object(value, path, _CONDITIONS)
    logic = condition.get("logical_operator") or "and"
    if not isinstance(logic, str) or logic not in _LOGIC:
        raise _invalid(f"{path}.logical_operator", f"is {quoted(str(logic))}; allowed are and, or")
    conditions = condition.get("conditions") or []
    if not isinstance(conditions, list):
        raise _invalid(f"{path}.conditions", "must be an array")
    filters = [_condition(item, f"{path}.conditions[{i}]") for i, item in enumerate(conditions)]
    return {_LOGIC[logic]: {"filters": filters}} if filters else None


def _condition(value: Any, path: str) -> dict[str, Any]:
    condition = _object(value, path, _CONDITION)
    name_or_names = condition.get("name")
    names: list[Any] = name_or_names if isinstance(name_or_names, list) else [name_or_names]
    if not names or not all(isinstance(name, str) for name in names):
        raise _invalid(f"{path}.name", "must be the name of a field, or an array of names")
    if any(name.strip() in ("", METADATA) for name in names):
        raise InvalidArgument(f"{path}.name: {MISSING_KEY}", field=f"{path}.name")
    filters = [_comparison(field_named(name), condition, path) for name in names]
    return filters[0] if len(filters) == 1 else {"anyOf": {"filters": filters}}


def _comparison(field: str, condition: Mapping[str, Any], path: str) -> dict[str, Any]:
    operator, value = condition.get("comparison_operator"), condition.get("value")
    where = f"{path}.value"
    if not isinstance(operator, str) or operator not in _OPERATORS:
        raise _invalid(
            f"{path}.comparison_operator",
            f"is {quoted(str(operator))}; allowed are {', '.join(_OPERATORS)}",
        )
    if operator in _LIST_OPERATORS and isinstance(value, str):
        # The text is a list whose elements are separated by commas. Dify's internal knowledge bases
        # split such a text in the same way.
        value = [item.strip() for item in value.split(",") if item.strip()]
    if operator in _EQUAL:
        return _match(field, value, where)
    if operator in _UNEQUAL:
        return {"noneOf": {"filters": [_match(field, value, where)]}}
    if operator in _PRESENT:
        return {"exists": {"field": field}}
    if operator in _ABSENT:
        return {"noneOf": {"filters": [{"exists": {"field": field}}]}}
    if operator in _BOUNDS:
        return {"range": {"field": field, _BOUNDS[operator]: {"number": value}}}
    return {"range": {"field": field, _TIMES[operator]: _time(value)}}


def _match(field: str, value: Any, path: str) -> dict[str, Any]:
    values = value if isinstance(value, list) else [value]
    if not values:
        raise _invalid(path, "is empty; it must have at least one value")
    return {"match": {"field": field, "values": [_typed(item, path) for item in values]}}


def _typed(value: Any, path: str) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"flag": value}
    if isinstance(value, int | float):
        return {"number": value}
    if isinstance(value, str):
        return {"text": value}
    raise _invalid(path, "must be a text, a number, true or false, or an array of these")


def _time(value: Any) -> dict[str, Any]:
    """Returns the lower or upper bound of a range filter, from the value of Dify's condition.

    A text is a date or a time; a date means the beginning of the day in UTC. A number stays a
    number, because a time in Dify's metadata may be a number.
    """
    if isinstance(value, int | float):
        return {"number": value}
    is_date = isinstance(value, str) and re.fullmatch(r"\d{4}-\d{2}-\d{2}", value)
    return {"timestamp": f"{value}T00:00:00Z" if is_date else value}


def _object(value: Any, path: str, known: set[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _invalid(path or json_reader.BODY, "must be an object")
    for name in value:
        if name not in known:
            where = json_reader.shown(f"{path}.{name}" if path else name)
            raise _invalid(where, f"is not a field; allowed are {', '.join(sorted(known))}")
    return value


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value:
        raise _invalid(name, "must be a text that is not empty")
    return value


def _invalid(path: str, problem: str) -> InvalidArgument:
    return InvalidArgument(f"{path} {problem}", field=path)
