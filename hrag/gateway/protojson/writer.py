"""Writes messages as ProtoJSON, in UTF-8: camel case, unset and default fields left out.

For each type of message a function is compiled that reads the type's fields by name. Asking the
descriptors at each message, as protobuf's `json_format` does, takes several times as long.
"""

import base64
import math
import struct
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import orjson
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from hrag.wire.common import struct_from

_KIND = FieldDescriptor
_FLOAT = struct.Struct("f")
_Convert = Callable[[Any], Any]


def write(message: Message) -> bytes:
    """Returns the JSON document of a message."""
    return dumped(as_json(message))


def dumped(value: Any) -> bytes:
    """Returns values as a JSON document."""
    return orjson.dumps(value)


def as_json(message: Message) -> dict[str, Any]:
    """Returns the values of a message, as `dumped` takes them."""
    found: dict[str, Any] = _converter(message.DESCRIPTOR)(message)
    return found


def short_float(value: float) -> float | str:
    """Returns a number of 32 bits with eight digits, or with nine where it takes them."""
    if not math.isfinite(value):
        return _double(value)
    short = float(f"{value:.8g}")
    return short if _FLOAT.unpack(_FLOAT.pack(short))[0] == value else float(f"{value:.9g}")


def _double(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _bytes(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _timestamp(value: Any) -> str:
    return str(value.ToJsonString())


def _enum(descriptor: EnumDescriptor) -> Callable[[int], str | int]:
    names = {each.number: each.name for each in descriptor.values}
    return lambda number: names.get(number, number)


_SCALARS = {
    _KIND.TYPE_BYTES: _bytes.__name__,
    _KIND.TYPE_FLOAT: short_float.__name__,
    _KIND.TYPE_DOUBLE: _double.__name__,
    _KIND.TYPE_INT64: str.__name__,  # Numbers of JavaScript would round it.
    _KIND.TYPE_UINT64: str.__name__,
}
_KNOWN: dict[str, _Convert] = {
    **{each.__name__: each for each in (_bytes, _double, short_float)},
    "google_protobuf_Struct": struct_from,
    "google_protobuf_Timestamp": _timestamp,
}


@cache
def _converter(root: Descriptor) -> _Convert:
    """Returns the function for a type of message, compiled with those for all types inside it."""
    converters: dict[str, Any] = dict(_KNOWN)
    source: list[str] = []
    waiting: list[Any] = [root]
    while waiting:
        descriptor = waiting.pop()
        name = _name_of(descriptor)
        if name in converters:
            continue
        if isinstance(descriptor, EnumDescriptor):
            converters[name] = _enum(descriptor)
        else:
            converters[name] = None  # It is compiled below.
            source += _source(name, descriptor.fields)
            waiting += filter(None, map(_type_of, descriptor.fields))
    exec("\n".join(source), converters)
    found: _Convert = converters[_name_of(root)]
    return found


def _name_of(descriptor: Any) -> str:
    return str(descriptor.full_name).replace(".", "_")


def _type_of(field: FieldDescriptor) -> Any:
    """Returns the descriptor of a message or an enum, None for scalars."""
    return field.message_type or field.enum_type


def _source(name: str, fields: Iterable[FieldDescriptor]) -> list[str]:
    lines = [f"def {name}(message):", " found = {}"]
    for field in fields:
        lines.append(f" if {_condition(field)}: found[{field.json_name!r}] = {_value(field)}")
    return [*lines, " return found"]


def _condition(field: FieldDescriptor) -> str:
    if field.has_presence:
        return f"message.HasField({field.name!r})"
    return f"(value := message.{field.name})"


def _value(field: FieldDescriptor) -> str:
    kind = _type_of(field)
    convert = _name_of(kind) if kind else _SCALARS.get(field.type, "")
    if field.is_repeated:
        return f"[{convert}(each) for each in value]" if convert else "list(value)"
    value = f"message.{field.name}" if field.has_presence else "value"
    return f"{convert}({value})"  # Without a converter these are parentheses.
