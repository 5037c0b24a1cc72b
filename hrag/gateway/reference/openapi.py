"""Builds the gateway's OpenAPI document from descriptors and the comments of .proto files."""

from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from hrag.gateway.calls.ingest_call import BYTES
from hrag.gateway.calls.server_stream import EVENTS
from hrag.gateway.http.reply import JSON
from hrag.gateway.protojson.json_reader import MAX_FLOAT
from hrag.gateway.reference.examples import add_examples
from hrag.gateway.reference.field_rules import field_rules, message_rules
from hrag.gateway.reference.original_path import ORIGINAL, original_operation
from hrag.gateway.reference.rest_paths import rest_operations, rest_schemas
from hrag.gateway.services.methods import ServiceMethod
from hrag.v1 import retriever_pb2 as pb

Schema = dict[str, Any]

_KIND = FieldDescriptor
# A text in base64 of both alphabets, with or without its padding.
_BASE64 = "^([A-Za-z0-9+/_-]{4})*([A-Za-z0-9+/_-]{2,3})?=*$"
# No number of 64 bits in a request comes near to having more digits.
_UNSIGNED = {"type": "string", "pattern": "^[0-9]{1,19}$"}
_SCALARS: dict[int, Schema] = {
    _KIND.TYPE_STRING: {"type": "string"},
    _KIND.TYPE_BYTES: {
        "type": "string",
        "contentEncoding": "base64",
        "pattern": _BASE64,
    },
    _KIND.TYPE_BOOL: {"type": "boolean"},
    _KIND.TYPE_INT32: {"type": "integer", "format": "int32"},
    _KIND.TYPE_UINT32: {"type": "integer", "minimum": 0, "maximum": (1 << 32) - 1},
    _KIND.TYPE_UINT64: _UNSIGNED,
    _KIND.TYPE_FLOAT: {
        "type": "number",
        "format": "float",
        "minimum": -MAX_FLOAT,
        "maximum": MAX_FLOAT,
    },
    _KIND.TYPE_DOUBLE: {"type": "number", "format": "double"},
}
_WELL_KNOWN: dict[str, Schema] = {
    "google.protobuf.Struct": {"type": "object", "additionalProperties": True},
    "google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
}
_BINARY = {"format": "binary"}
_ERROR = "ConnectError"
_ERROR_SCHEMA: Schema = {
    "type": "object",
    "description": "Why a call failed.",
    "required": ["code", "message"],
    "properties": {
        "code": {"type": "string", "description": "The gRPC status code, in lower case."},
        "message": {"type": "string", "description": "What is wrong and what is allowed."},
        "details": {
            "type": "array",
            "description": "Messages of google.rpc: ErrorInfo with a stable reason, and others.",
            "items": {
                "type": "object",
                "required": ["type", "value"],
                "properties": {
                    "type": {"type": "string", "description": "The name of the message."},
                    "value": {"type": "string", "description": "The message, in base64."},
                    "debug": {
                        "type": "object",
                        "additionalProperties": True,
                        "description": "The message as JSON.",
                    },
                },
            },
        },
    },
}
_TIMEOUT: Schema = {
    "name": "Connect-Timeout-Ms",
    "in": "header",
    "description": "Milliseconds after which the call ends with deadline_exceeded.",
    "schema": {"type": "string", "pattern": "^0*[1-9][0-9]*$", "maxLength": 10},
}


def document(methods: Iterable[ServiceMethod], comments: dict[str, str]) -> Schema:
    """Returns the OpenAPI document of the methods.

    `comments` is the result of `read_comments`: the comments of the .proto files by full name.
    """
    methods = tuple(methods)
    schemas = _Schemas(methods, comments)
    paths = {method.path: {"post": _operation(method, schemas, comments)} for method in methods}
    search = schemas.search_properties()
    paths |= rest_operations(search, _TIMEOUT)
    paths[ORIGINAL] = {"get": original_operation(comments)}
    add_examples(paths)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "hrag",
            "version": version("hrag"),
            "summary": "Search small chunks, return their larger ancestors.",
            "description": (
                "Every method is a POST of a JSON object; only IngestDocuments takes one object a "
                "line. Fields without a value may be left out. Whole numbers of 64 bits are "
                "strings. Every error is a ConnectError. The paths below /api/v1 are short forms "
                "of three methods, with replies in envelopes. The path /original downloads a file."
            ),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}, {}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key or a JSON Web Token, if the services require one.",
                }
            },
            "schemas": {**schemas.by_name, **rest_schemas(search), _ERROR: _ERROR_SCHEMA},
        },
    }


def operation_id(method: ServiceMethod) -> str:
    """Returns the name of the request's message without "Request".

    This is the method's name, except for a method that both services have: a message belongs to
    one method, and an operation id is unique in a document.
    """
    return str(method.descriptor.input_type.name).removesuffix("Request")


def _operation(method: ServiceMethod, schemas: "_Schemas", comments: dict[str, str]) -> Schema:
    comment = comments.get(f"{method.path[1:].replace('/', '.')}", "")
    service = method.descriptor.containing_service
    request = schemas.reference(method.descriptor.input_type)
    response = schemas.reference(method.descriptor.output_type)
    request_type, reply_type = JSON, JSON
    if method.descriptor.client_streaming:
        # Generators of clients know this media type, and not that of JSON lines.
        request_type = reply_type = BYTES
        request = _stream_schema("Each line is a request", request) | _BINARY
        response = _stream_schema("Each line is an outcome", response) | _BINARY
    elif method.descriptor.server_streaming:
        reply_type = EVENTS
        response = _stream_schema("Each event is one field of a response", response)
    return {
        "operationId": operation_id(method),
        "tags": [service.name],
        "summary": comment.partition("\n")[0].partition(". ")[0].rstrip("."),
        "description": comment,
        "parameters": [_TIMEOUT],
        "requestBody": {"required": True, "content": _content(request_type, request)},
        "responses": {
            "200": {"description": "The response.", "content": _content(reply_type, response)},
            "default": {
                "description": "The error.",
                "content": _content(JSON, {"$ref": f"#/components/schemas/{_ERROR}"}),
            },
        },
    }


def _content(media_type: str, schema: Schema) -> Schema:
    return {media_type: {"schema": schema}}


def _stream_schema(content: str, schema: Schema) -> Schema:
    name = schema["$ref"].rpartition("/")[2]
    return {"type": "string", "description": f"{content}, a JSON object: {name}."}


def _reachable(roots: Iterable[Descriptor]) -> set[str]:
    """Returns the full names of the messages `roots` and of all messages inside them."""
    names: set[str] = set()
    left = list(roots)
    while left:
        message = left.pop()
        if message.full_name not in names:
            names.add(message.full_name)
            left += [field.message_type for field in message.fields if field.message_type]
    return names


class _Schemas:
    """The schemas of all messages and enums that are reachable from the methods."""

    def __init__(self, methods: Iterable[ServiceMethod], comments: dict[str, str]) -> None:
        self.by_name: dict[str, Schema] = {}
        self._comments = comments
        descriptors = [method.descriptor for method in methods]
        self._requests = _reachable(method.input_type for method in descriptors)
        # A response may have fields that a newer version of hrag adds.
        self._responses = _reachable(method.output_type for method in descriptors)

    def reference(self, descriptor: Descriptor | EnumDescriptor) -> Schema:
        """Returns the reference to the schema of a type; adds the schema if it is new."""
        name = descriptor.name
        if name not in self.by_name:
            # A message type may have a field of the same type. Because of this entry, the
            # call of `reference` for this field finds the name, and the recursion ends.
            self.by_name[name] = {}
            is_enum = isinstance(descriptor, EnumDescriptor)
            self.by_name[name] = self._enum(descriptor) if is_enum else self._message(descriptor)
        return {"$ref": f"#/components/schemas/{name}"}

    def search_properties(self) -> dict[str, Schema]:
        """Returns the schemas of the fields of SearchRequest, by their names in the .proto file."""
        return {field.name: self._property(field) for field in pb.SearchRequest.DESCRIPTOR.fields}

    def _message(self, descriptor: Any) -> Schema:
        properties = {field.json_name: self._property(field) for field in descriptor.fields}
        comment = self._comments.get(descriptor.full_name, "")
        schema = {"type": "object", "description": comment, "properties": properties}
        if descriptor.full_name in self._requests - self._responses:
            schema |= message_rules(descriptor)
        return schema

    def _enum(self, descriptor: Any) -> Schema:
        lines = [self._comments.get(descriptor.full_name, ""), ""]
        for value in descriptor.values:
            comment = self._comments.get(f"{descriptor.full_name}.{value.name}", "")
            lines.append(f"* `{value.name}`: {comment}")
        names = [value.name for value in descriptor.values]
        return {"type": "string", "description": "\n".join(lines), "enum": names}

    def _property(self, field: Any) -> Schema:
        is_request = field.containing_type.full_name in self._requests
        rules = dict(field_rules(field)) if is_request else {}
        schema = dict(self._type(field))
        if field.is_repeated:
            schema = {"type": "array", "items": {**schema, **rules.pop("items", {})}}
        return {**schema, **rules, "description": self._description(field)}

    def _type(self, field: Any) -> Schema:
        if field.message_type is not None:
            known = _WELL_KNOWN.get(field.message_type.full_name)
            return known or self._member(field.message_type, field.containing_type)
        if field.enum_type is not None:
            return self.reference(field.enum_type)
        return _SCALARS[field.type]

    def _member(self, message: Descriptor, outer: Descriptor) -> Schema:
        """Returns the reference to a message inside another one.

        A message in a request has no unknown fields. Its schema says so itself, unless responses
        have this message too.
        """
        reference = self.reference(message)
        only_requests = self._requests - self._responses
        if outer.full_name in only_requests and message.full_name not in only_requests:
            return {**reference, "unevaluatedProperties": False}
        return reference

    def _description(self, field: FieldDescriptor) -> str:
        comment = self._comments.get(field.full_name, "")
        oneof = field.containing_oneof
        if oneof is None or len(oneof.fields) == 1:
            return comment
        names = ", ".join(member.json_name for member in oneof.fields)
        return f"{comment} One of {names}. {self._comments.get(oneof.full_name, '')}".strip()
