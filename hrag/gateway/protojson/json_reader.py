"""Converts ProtoJSON to protobuf messages, strictly, with errors that name the field.

This reader is stricter than protobuf's `json_format`. It refuses unknown fields, duplicate fields,
values of a wrong type, invalid base64, lone surrogates and numbers that would lose digits. The
error contains the path of the field in the document, for example `filter.allOf.filters[0].match`.
Field names may be written as in the .proto files or in camel case.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

from google.protobuf import struct_pb2, timestamp_pb2
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from hrag.values.errors import InvalidArgument, TooLarge
from hrag.values.ids import quoted
from hrag.values.limits import MAX_JSON_DEPTH, MAX_JSON_VALUES, check_metadata_values
from hrag.wire.common import struct_message
from hrag_fast import json_size

BODY = "request"
"""In an error about the whole document, this name stands in place of a field's name."""
# The maximum depth of messages inside messages. A filter may be nested 16 deep, and each level of
# the filter needs two messages, so every valid request is less deep.
MAX_DEPTH = 64

_KIND = FieldDescriptor
_SHOWN_NAMES = 40  # An error message lists at most this many allowed names.
_TYPE_NAMES = {
    dict: "an object",
    list: "an array",
    str: "a string",
    bool: "true or false",
    int: "a number",
    float: "a number",
}
_RANGES = {
    _KIND.TYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    _KIND.TYPE_UINT32: (0, (1 << 32) - 1),
    _KIND.TYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    _KIND.TYPE_UINT64: (0, (1 << 64) - 1),
}
_INTEGER = re.compile(r"-?[0-9]{1,20}")
_NUMBER = re.compile(r"-?[0-9]{1,400}(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,4})?")
_TIMESTAMP = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})"
)
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
# The largest number that a 32-bit float field accepts: the shortest decimal number that rounds to
# the largest 32-bit float. The decimal number is slightly larger than this float.
MAX_FLOAT = 3.4028235e38
_MAX_DOUBLE = 1.7976931348623157e308


def read(message_class: type[Message], raw: bytes) -> Message:
    """Returns the message that a JSON document describes; raises InvalidArgument."""
    message = message_class()
    fill(message, load(raw))
    return message


def load(raw: bytes) -> Any:
    """Returns the values of a JSON document; raises InvalidArgument if it is not valid JSON.

    Raises TooLarge, before a value is built, if the document has too many values or levels.
    """
    _check_size(raw)
    try:
        return json.loads(
            raw.decode("utf-8"), object_pairs_hook=_object, parse_constant=_no_constant
        )
    except UnicodeDecodeError as error:
        _refuse(f"the body is not UTF-8: byte {error.start} is 0x{raw[error.start]:02x}")
    except json.JSONDecodeError as error:
        _refuse(f"the body is not JSON: {error.msg} at byte {_byte_of(error)}")
    # Python raises ValueError for a whole number with more than 4,300 digits.
    except ValueError:
        _refuse("the body has a number with more than 4,300 digits")


def _check_size(raw: bytes) -> None:
    values, depth = json_size(raw)
    for name, count, limit, counted in (
        ("json_values", values, MAX_JSON_VALUES, "values in objects and arrays"),
        ("json_depth", depth, MAX_JSON_DEPTH, "levels of objects and arrays"),
    ):
        if count > limit:
            raise TooLarge(
                f"the body has {count:,} {counted}; at most {limit:,} are allowed",
                field=BODY,
                limit=name,
            )


def fill(message: Message, value: Any) -> None:
    """Sets the message's fields from a JSON object; raises InvalidArgument."""
    _fill(message, value, "", 1)


def shown(name: str) -> str:
    """Returns `name`, a field name that a client sent, changed so that an error may contain it.

    The name is cut to 64 characters, and lone surrogates, which UTF-8 cannot encode, are replaced.
    """
    return name[:64].encode("utf-8", "replace").decode()


def _byte_of(error: json.JSONDecodeError) -> int:
    return len(error.doc[: error.pos].encode("utf-8", "surrogatepass"))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names: set[str] = set()
        for name, _ in pairs:
            if name in names:
                _refuse(f"the field {quoted(name)} occurs twice in one object", shown(name))
            names.add(name)
    return members


def _no_constant(name: str) -> NoReturn:
    _refuse(f'{name} is not JSON; where a field allows a number that is not finite, send "{name}"')


def _refuse(problem: str, field: str = BODY) -> NoReturn:
    raise InvalidArgument(problem, field=field)


def _wrong_type(path: str, value: Any, expected: str) -> NoReturn:
    _refuse(f"{path or 'the body'} is {_type_name(value)}; it must be {expected}", path or BODY)


def _type_name(value: Any) -> str:
    return "null" if value is None else _TYPE_NAMES[type(value)]


_Read = Callable[[Any, str], Any]


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    is_repeated: bool
    oneof: str
    """The name of the oneof that contains the field; if there is no oneof, the field's name."""
    read: _Read | None
    """Returns the value of a field that is not a message; None for a message."""
    message: Callable[[Message, Any, str, int], None] | None
    """Fills the message of a field that is a message; None for any other field."""


@cache
def _fields_of(descriptor: Descriptor) -> dict[str, _Field]:
    fields = {}
    for field in descriptor.fields:
        fields[field.json_name] = fields[field.name] = _field(field)
    return fields


def _field(field: FieldDescriptor) -> _Field:
    oneof = field.containing_oneof.name if field.containing_oneof else field.name
    if field.message_type is not None:
        fill_message = _WELL_KNOWN.get(field.message_type.full_name, _fill)
        return _Field(field.name, field.is_repeated, oneof, None, fill_message)
    if field.enum_type is not None:
        return _Field(field.name, field.is_repeated, oneof, _enum(field.enum_type), None)
    return _Field(field.name, field.is_repeated, oneof, _SCALARS[field.type](field.type), None)


def _fill(message: Message, value: Any, path: str, depth: int) -> None:
    if type(value) is not dict:
        _wrong_type(path, value, "an object")
    if depth > MAX_DEPTH:
        _refuse(f"the body nests over {MAX_DEPTH} messages; at most {MAX_DEPTH} are allowed")
    fields = _fields_of(message.DESCRIPTOR)
    # For each oneof, the name of the field that the document sets.
    set_names: dict[str, str] = {}
    for name, member in value.items():
        field = fields.get(name)
        inner = f"{path}.{name}" if path else name
        if field is None:
            _unknown(inner, name, message.DESCRIPTOR)
        if member is None:  # In ProtoJSON, null means that the field is not set.
            continue
        if set_names.setdefault(field.oneof, name) != name:
            _refuse(f"{set_names[field.oneof]} and {name} are given; only one is allowed", inner)
        _set(message, field, member, inner, depth)


def _unknown(path: str, name: str, descriptor: Any) -> NoReturn:
    known = _listed(field.json_name for field in descriptor.fields)
    _refuse(f"{descriptor.name} has no field {quoted(name)}; it has {known}", shown(path))


def _set(message: Message, field: _Field, value: Any, path: str, depth: int) -> None:
    if field.is_repeated:
        _extend(getattr(message, field.name), field, value, path, depth)
    elif field.message is not None:
        inner = getattr(message, field.name)
        inner.SetInParent()
        field.message(inner, value, path, depth + 1)
    elif field.read is not None:
        setattr(message, field.name, field.read(value, path))


def _extend(target: Any, field: _Field, values: Any, path: str, depth: int) -> None:
    if type(values) is not list:
        _wrong_type(path, values, "an array")
    if field.message is not None:
        for index, value in enumerate(values):
            field.message(target.add(), value, f"{path}[{index}]", depth + 1)
    elif field.read is not None:
        read = field.read
        target.extend([read(value, f"{path}[{index}]") for index, value in enumerate(values)])


def _listed(names: Iterable[str]) -> str:
    known = list(names)
    more = len(known) - _SHOWN_NAMES
    return ", ".join(known[:_SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")


# Each function below returns a function that reads values of one type.


def _string(_type: int) -> _Read:
    def read(value: Any, path: str) -> str:
        if type(value) is not str:
            _wrong_type(path, value, "a string")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            _refuse(
                f"{path} has half a surrogate pair at character {error.start}, "
                "so it is not valid text",
                path,
            )
        return value

    return read


def _bytes(_type: int) -> _Read:
    def read(value: Any, path: str) -> bytes:
        if type(value) is not str:
            _wrong_type(path, value, "a string in base64")
        plain = value.translate(_URL_SAFE).rstrip("=")
        try:
            return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
        except (binascii.Error, ValueError):
            _refuse(f"{path} is not base64: {quoted(value)}", path)

    return read


_URL_SAFE = str.maketrans("-_", "+/")


def _bool(_type: int) -> _Read:
    def read(value: Any, path: str) -> bool:
        if type(value) is not bool:
            _wrong_type(path, value, "true or false")
        return value

    return read


def _whole(kind: int) -> _Read:
    lowest, highest = _RANGES[kind]

    def read(value: Any, path: str) -> int:
        if type(value) is str and _INTEGER.fullmatch(value):
            value = int(value)
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is float:
            _refuse(f"{path} is {value}; it must be a whole number", path)
        if type(value) is not int:
            _wrong_type(path, value, "a whole number")
        if not lowest <= value <= highest:
            number = quoted(str(value)).strip("'")
            _refuse(f"{path} is {number}; it must be {lowest} to {highest}", path)
        return value

    return read


def _real(kind: int) -> _Read:
    bits, largest = (32, MAX_FLOAT) if kind == _KIND.TYPE_FLOAT else (64, _MAX_DOUBLE)

    def read(value: Any, path: str) -> float:
        if type(value) is str and value in _NOT_FINITE:
            return float(value)
        if type(value) is str and _NUMBER.fullmatch(value):
            value = float(value)
        if type(value) is not float and type(value) is not int:
            _wrong_type(path, value, "a number")
        if abs(value) > largest:
            _refuse(f"{path} is outside the range of {bits}-bit numbers", path)
        return float(value)

    return read


def _enum(descriptor: EnumDescriptor) -> _Read:
    numbers = {value.name: value.number for value in descriptor.values}
    known = _listed(numbers)
    read_number = _whole(_KIND.TYPE_INT32)

    def read(value: Any, path: str) -> int:
        if type(value) is int:
            return int(read_number(value, path))
        if type(value) is not str:
            _wrong_type(path, value, f"one of {known}")
        if value not in numbers:
            _refuse(f"{path} is {quoted(value)}; allowed are {known}", path)
        return numbers[value]

    return read


def _struct(message: Message, value: Any, path: str, _depth: int) -> None:
    assert isinstance(message, struct_pb2.Struct)
    if type(value) is not dict:
        _wrong_type(path, value, "an object")
    # A Struct takes much more time and memory than the values from which it is built.
    check_metadata_values(value)
    message.CopyFrom(struct_message(value))


def _timestamp(message: Message, value: Any, path: str, _depth: int) -> None:
    assert isinstance(message, timestamp_pb2.Timestamp)
    if type(value) is not str:
        _wrong_type(path, value, "a string such as 2026-11-21T10:00:00Z")
    try:
        if not _TIMESTAMP.fullmatch(value):
            raise ValueError
        message.FromJsonString(value)
    except (ValueError, OverflowError):
        _refuse(f"{path} is {quoted(value)}; it must have the form 2026-11-21T10:00:00Z", path)


_WELL_KNOWN = {
    "google.protobuf.Struct": _struct,
    "google.protobuf.Timestamp": _timestamp,
}
_SCALARS: dict[int, Callable[[int], _Read]] = {
    _KIND.TYPE_STRING: _string,
    _KIND.TYPE_BYTES: _bytes,
    _KIND.TYPE_BOOL: _bool,
    _KIND.TYPE_FLOAT: _real,
    _KIND.TYPE_DOUBLE: _real,
    **dict.fromkeys(_RANGES, _whole),
}
