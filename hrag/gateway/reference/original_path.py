"""Describes `GET /original`: its address, its parameters, its headers and its status codes.

The module `original_download` serves this path.
"""

from typing import Any

from hrag.gateway.http.reply import JSON
from hrag.gateway.services.methods import method_named

Schema = dict[str, Any]

ORIGINAL = "/original"
ORIGINAL_PARAMETERS = ("tenant_id", "collection", "document_id")
ORIGINAL_MEDIA_TYPE = "application/octet-stream"

_REQUIRED = ("tenant_id", "document_id")
_TEXT: Schema = {"type": "string"}
_FILE_HEADERS = {
    "content-disposition": "`attachment`, with the name of the file.",
    "content-length": "The count of bytes in the reply.",
    "etag": "The SHA-256 of the whole file.",
    "accept-ranges": "`bytes`.",
}
_RANGE_HEADER = {
    "content-range": "The first and the last byte of the reply, and the size of the file."
}
_SIZE_HEADER = {"content-range": "`bytes */` and the size of the file."}


def original_operation(comments: dict[str, str]) -> Schema:
    """Returns the operation of ORIGINAL. `comments` are the comments of the .proto files."""
    fields = method_named("GetOriginal").request.DESCRIPTOR.fields_by_name
    return {
        "operationId": "DownloadOriginal",
        "tags": ["downloads"],
        "summary": "Downloads the file from which a document was read",
        "description": (
            "The collection must keep originals. The bytes are those that were sent, whatever they "
            "are; so the media type says nothing, and browsers save the file and run nothing in "
            "it. The rights, limits and quotas are those of GetOriginal."
        ),
        "parameters": [
            *(_parameter(fields[name], comments) for name in ORIGINAL_PARAMETERS),
            _header(
                "Range",
                "A range of bytes, for example `bytes=1000-1999`, `bytes=1000-` or `bytes=-500`. "
                "With several ranges, or another unit, the whole file is returned.",
            ),
            _header(
                "If-Range",
                "The `etag` of an earlier reply. If the file is another one by now, the whole file "
                "is returned.",
            ),
        ],
        "responses": {
            "200": _file("The whole file."),
            "206": _file("The range of the file.", _RANGE_HEADER),
            "404": _error("The document does not exist, or its original is not stored."),
            "416": _error("The range begins after the end of the file.", _SIZE_HEADER),
            "default": _error("The error."),
        },
    }


def _parameter(field: Any, comments: dict[str, str]) -> Schema:
    return {
        "name": field.name,
        "in": "query",
        "required": field.name in _REQUIRED,
        "description": comments[field.full_name],
        "schema": _TEXT,
    }


def _header(name: str, description: str) -> Schema:
    return {"name": name, "in": "header", "description": description, "schema": _TEXT}


def _file(description: str, further_headers: dict[str, str] | None = None) -> Schema:
    headers = _FILE_HEADERS | (further_headers or {})
    return {
        "description": description,
        "headers": _described(headers),
        "content": {ORIGINAL_MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
    }


def _error(description: str, headers: dict[str, str] | None = None) -> Schema:
    return {
        "description": description,
        **({"headers": _described(headers)} if headers else {}),
        "content": {JSON: {"schema": {"$ref": "#/components/schemas/ConnectError"}}},
    }


def _described(headers: dict[str, str]) -> Schema:
    return {name: {"description": text, "schema": _TEXT} for name, text in headers.items()}
