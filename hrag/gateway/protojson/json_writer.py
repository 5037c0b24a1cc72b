"""Writes protobuf messages as ProtoJSON, in UTF-8.

Field names are in camel case; fields that are unset or have their default value are left out. The
gateway does not decode messages: compiled code writes the JSON directly from the encoded message.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import orjson
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from hrag.wire.common import struct_from
from hrag_fast import JsonSchema

_Value = Callable[[Any], Any]


def write(message_class: type[Message], encoded: bytes) -> bytes:
    """Returns the JSON document of an encoded message."""
    return _schema_of(message_class.DESCRIPTOR).write(encoded)


def dumped(value: Any) -> bytes:
    """Returns a value, for example a dictionary, as a JSON document."""
    return orjson.dumps(value)


def as_json(message_class: type[Message], encoded: bytes) -> Any:
    """Converts an encoded message to JSON, and returns the parsed JSON."""
    return orjson.loads(write(message_class, encoded))


def _timestamp(value: Any) -> str:
    return str(value.ToJsonString())


_WELL_KNOWN: dict[str, _Value] = {
    "google.protobuf.Struct": struct_from,
    "google.protobuf.Timestamp": _timestamp,
}


@cache
def _schema_of(root: Descriptor) -> JsonSchema:
    schemas: dict[str, JsonSchema] = {}

    def schema_of(descriptor: Descriptor) -> JsonSchema:
        name = descriptor.full_name
        if name not in schemas:
            schemas[name] = JsonSchema()
            for field in descriptor.fields:
                schemas[name].add(
                    field.number,
                    field.json_name,
                    field.type,
                    field.is_repeated,
                    field.has_presence,
                    inner_of(field),
                )
        return schemas[name]

    def inner_of(field: FieldDescriptor) -> Any:
        if field.enum_type is not None:
            return {value.number: dumped(value.name) for value in field.enum_type.values}
        if field.message_type is None:
            return None
        known = _WELL_KNOWN.get(field.message_type.full_name)
        if known is not None:
            return partial(_convert, field.message_type, known)
        return schema_of(field.message_type)

    return schema_of(root)


def _convert(descriptor: Descriptor, convert: _Value, encoded: bytes) -> bytes:
    message = message_factory.GetMessageClass(descriptor).FromString(encoded)
    return dumped(convert(message))
