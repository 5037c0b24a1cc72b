"""Writes messages as ProtoJSON, in UTF-8: camel case, unset and default fields left out.

Replies stay encoded on their way through the gateway: a kernel writes them (`write`). What the
gateway puts together from parts of messages goes through values (`as_json`). Both write the same.
"""

import base64
import math
import struct
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import orjson
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from hrag.wire.common import struct_from
from hrag_fast import JsonSchema

_KIND = FieldDescriptor
_Value = Callable[[Any], Any]
_FLOAT = struct.Struct("f")


def write(message_class: type[Message], encoded: bytes) -> bytes:
    """Returns the JSON document of an encoded message."""
    return _schema_of(message_class.DESCRIPTOR).write(encoded)


def dumped(value: Any) -> bytes:
    """Returns values as a JSON document."""
    return orjson.dumps(value)


def as_json(message: Message) -> dict[str, Any]:
    """Returns the values of a message, as `dumped` takes them."""
    found: dict[str, Any] = _writer_of(message.DESCRIPTOR)(message)
    return found


@cache
def _writer_of(descriptor: Descriptor) -> _Value:
    fields: dict[FieldDescriptor, tuple[str, _Value | None, bool]] = {}

    def values_of(message: Message) -> dict[str, Any]:
        if not fields:  # Only now, because messages may hold themselves.
            fields.update({each: _described(each) for each in descriptor.fields})
        found = {}
        for field, value in message.ListFields():
            name, convert, is_repeated = fields[field]
            if convert is None:
                found[name] = list(value) if is_repeated else value
            else:
                found[name] = [convert(each) for each in value] if is_repeated else convert(value)
        return found

    return values_of


def _described(field: FieldDescriptor) -> tuple[str, _Value | None, bool]:
    return field.json_name, _converter(field), field.is_repeated


def _converter(field: FieldDescriptor) -> _Value | None:
    """Returns None for values that are the same in JSON."""
    if field.message_type is not None:
        known = _WELL_KNOWN.get(field.message_type.full_name)
        return known or _writer_of(field.message_type)
    if field.enum_type is not None:
        return _enum(field.enum_type)
    scalar: _Value | None = _SCALARS.get(field.type)
    return scalar


def _enum(descriptor: EnumDescriptor) -> _Value:
    names = {each.number: each.name for each in descriptor.values}
    return lambda number: names.get(number, number)


def _bytes(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _double(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def short_float(value: float) -> float | str:
    """Returns a number of 32 bits with eight digits, or with nine where it takes them."""
    if not math.isfinite(value):
        return _double(value)
    short = float(f"{value:.8g}")
    return short if _FLOAT.unpack(_FLOAT.pack(short))[0] == value else float(f"{value:.9g}")


def _timestamp(value: Any) -> str:
    return str(value.ToJsonString())


_SCALARS: dict[int, _Value] = {
    _KIND.TYPE_BYTES: _bytes,
    _KIND.TYPE_FLOAT: short_float,
    _KIND.TYPE_DOUBLE: _double,
    _KIND.TYPE_INT64: str,  # Numbers of JavaScript would round it.
    _KIND.TYPE_UINT64: str,
}
_WELL_KNOWN: dict[str, _Value] = {
    "google.protobuf.Struct": struct_from,
    "google.protobuf.Timestamp": _timestamp,
}


# Encoded messages


@cache
def _schema_of(root: Descriptor) -> JsonSchema:
    schemas: dict[str, JsonSchema] = {}

    def schema_of(descriptor: Descriptor) -> JsonSchema:
        name = descriptor.full_name
        if name not in schemas:
            schemas[name] = JsonSchema()
            for each in descriptor.fields:
                schemas[name].add(
                    each.number,
                    each.json_name,
                    each.type,
                    each.is_repeated,
                    each.has_presence,
                    inner_of(each),
                )
        return schemas[name]

    def inner_of(field: FieldDescriptor) -> Any:
        if field.enum_type is not None:
            return {each.number: dumped(each.name) for each in field.enum_type.values}
        if field.message_type is None:
            return None
        known = _WELL_KNOWN.get(field.message_type.full_name)
        return (
            partial(_converted, field.message_type, known)
            if known
            else schema_of(field.message_type)
        )

    return schema_of(root)


def _converted(descriptor: Descriptor, convert: _Value, encoded: bytes) -> bytes:
    message = message_factory.GetMessageClass(descriptor).FromString(encoded)
    return dumped(convert(message))
