"""Describes the three short paths of the gateway: their addresses, parameters and replies.

The module `rest` serves these paths. The fields of a search come from the .proto files.
"""

from typing import Any

from hrag.gateway.http.reply import JSON
from hrag.gateway.reference.field_rules import CHUNK_ID, search_rules
from hrag.v1 import retriever_pb2 as pb
from hrag.values.limits import MAX_LEVELS

Schema = dict[str, Any]

RETRIEVE = "/api/v1/retrieve"
HIERARCHY = "/api/v1/chunks/{id}/hierarchy"
STATUS = "/api/v1/status"
_PLACE = ("tenant_id", "collection")
RETRIEVE_PARAMETERS = _PLACE
HIERARCHY_PARAMETERS = (*_PLACE, "depth", "include_content")
STATUS_PARAMETERS = ("tenant_id",)

MODE_PREFIX = "SEARCH_MODE_"
RETRIEVAL_MODES = tuple(
    name.removeprefix(MODE_PREFIX).lower()
    for name, number in pb.SearchMode.items()
    if number != pb.SEARCH_MODE_UNSPECIFIED
)
# The names in a body of RETRIEVE that differ from the names of a SearchRequest.
RENAMED = {"text": "query", "mode": "retrieval_mode"}
_TAG = "short paths"
_ERROR = "EnvelopedError"


def _object(description: str, **properties: Schema) -> Schema:
    return {
        "type": "object",
        "description": description,
        "properties": properties,
        "required": list(properties),
    }


def _text(description: str) -> Schema:
    return {"type": "string", "description": description}


def _number(description: str) -> Schema:
    return {"type": "integer", "minimum": 0, "description": description}


def _list(items: Schema, description: str) -> Schema:
    return {"type": "array", "items": items, "description": description}


def _reference(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _envelope(description: str, data: Schema) -> Schema:
    return _object(description, data=data, meta=_reference("ReplyMeta"))


_CHUNK = {
    "id": _text("The chunk's id, `<document_id>#<level>.<index>`."),
    "content": _text("The text of the chunk."),
    "level": _number("The level, from 0, which has the smallest chunks."),
    "token_count": _number("The number of tokens of the chunk."),
    "document_id": _text("The id of the document to which the chunk belongs."),
}
_NODES = _reference("HierarchyNode")
_SCHEMAS: dict[str, Schema] = {
    "ReplyMeta": _object(
        "Data about the reply itself.",
        requestId=_text("The id of the request, as in the header `X-Request-Id` and in logs."),
        timestamp={"type": "string", "format": "date-time", "description": "The time in UTC."},
    ),
    _ERROR: _object(
        "Why a call failed.", error=_reference("ConnectError"), meta=_reference("ReplyMeta")
    ),
    "RetrieveReply": _envelope("Reply of Retrieve.", _reference("RetrieveData")),
    "RetrieveData": _object(
        "The result of a search.",
        query=_text("The query, as it was sent."),
        results=_list(_reference("RetrieveResult"), "The passages, best first."),
        retrieval_mode={
            "type": "string",
            "enum": list(RETRIEVAL_MODES),
            "description": "The mode that was used.",
        },
        matched_at_level=_number("The level that was searched."),
        returned_at_level=_number("The level of the passages."),
    ),
    "RetrieveResult": _object(
        "A passage: a chunk that answers the query.",
        **_CHUNK,
        matched_child_ids=_list(_text("A chunk id."), "The leaves that matched, best first."),
        score={"type": "number", "description": "The score of the passage."},
    ),
    "HierarchyReply": _envelope("Reply of ReadHierarchy.", _reference("HierarchyData")),
    "HierarchyData": _object(
        "A chunk and its relatives.",
        node=_NODES,
        ancestors=_list(_NODES, "The ancestors of the chunk, parent first."),
        siblings=_list(_NODES, "The other children of its parent."),
        descendants=_list(_NODES, "The descendants, level by level downwards."),
    ),
    "HierarchyNode": _object(
        "A chunk with the ids of its parent and children.",
        **_CHUNK,
        parent_id=_text("The chunk id of its parent. Empty at the top level."),
        child_ids=_list(_text("A chunk id."), "The chunk ids of its children."),
    ),
    "StatusReply": _envelope(
        "Reply of ReadStatus.",
        {
            "type": "object",
            "additionalProperties": True,
            "description": "The fields of GetServerInfoResponse, named as in the .proto file.",
        },
    ),
}


def rest_schemas(search: dict[str, Schema]) -> dict[str, Schema]:
    """Returns the schemas of the requests and replies of the three paths, by their names.

    `search` has the schemas of the fields of a SearchRequest.
    """
    return {"RetrieveRequest": _retrieve_request(search), **_SCHEMAS}


def rest_operations(search: dict[str, Schema], timeout: Schema) -> dict[str, Schema]:
    """Returns the operations of the three paths.

    `search` has the schemas of the fields of a SearchRequest, and `timeout` the parameter of the
    deadline.
    """
    place = [_parameter(search, "tenant_id", required=True), _parameter(search, "collection")]
    chunk_id = {
        "name": "id",
        "in": "path",
        "required": True,
        "description": "The chunk id; its `#` is written `%23`.",
        "schema": {"type": "string", **CHUNK_ID},
    }
    depth = _query(
        "depth",
        f"The number of levels of descendants: at most {MAX_LEVELS}. 0 means 1.",
        {"type": "integer", "minimum": 0, "maximum": MAX_LEVELS},
    )
    content = _query(
        "include_content", "Whether the relatives have their content.", {"type": "boolean"}
    )
    tenant = _query(
        "tenant_id",
        "Has no effect: the status is the same for all tenants.",
        {"type": "string"},
    )
    return {
        RETRIEVE: {
            "post": {
                **_operation("Retrieve", "Search", "RetrieveReply", [*place, timeout]),
                "requestBody": {
                    "required": True,
                    "content": {JSON: {"schema": _reference("RetrieveRequest")}},
                },
            }
        },
        HIERARCHY: {
            "get": _operation(
                "ReadHierarchy",
                "GetHierarchy",
                "HierarchyReply",
                [chunk_id, *place, depth, content, timeout],
            )
        },
        STATUS: {
            "get": _operation("ReadStatus", "GetServerInfo", "StatusReply", [tenant, timeout])
        },
    }


def _retrieve_request(search: dict[str, Schema]) -> Schema:
    separate_fields = ("tenant_id", "collection", "text", "mode")
    mode = {"type": "string", "enum": list(RETRIEVAL_MODES), "description": "The mode."}
    return {
        "type": "object",
        "description": "The query, and other fields of a SearchRequest.",
        "properties": {
            "query": search["text"],
            "retrieval_mode": mode,
            **{name: schema for name, schema in search.items() if name not in separate_fields},
        },
        "additionalProperties": False,
        **search_rules(lambda name: RENAMED.get(name, name), str.lower),
    }


def _parameter(search: dict[str, Schema], name: str, *, required: bool = False) -> Schema:
    schema = dict(search[name])
    description = schema.pop("description")
    return {
        "name": name,
        "in": "query",
        "required": required,
        "description": description,
        "schema": schema,
    }


def _query(name: str, description: str, schema: Schema) -> Schema:
    return {"name": name, "in": "query", "description": description, "schema": schema}


def _operation(name: str, method: str, reply: str, parameters: list[Schema]) -> Schema:
    description = (
        f"A short form of the method {method}: the same rights, limits and quotas. The reply is "
        "`data` and `meta`; an error has `error` in place of `data`."
    )
    return {
        "operationId": name,
        "tags": [_TAG],
        "summary": f"A short form of {method}",
        "description": description,
        "parameters": parameters,
        "responses": {
            "200": {
                "description": "The response.",
                "content": {JSON: {"schema": _reference(reply)}},
            },
            "default": {
                "description": "The error.",
                "content": {JSON: {"schema": _reference(_ERROR)}},
            },
        },
    }
