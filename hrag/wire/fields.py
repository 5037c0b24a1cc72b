"""Helpers that convert parts of messages: optional fields, enums, and whole dataclasses.

`nested_field` encodes a message as a field of another encoded message.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.message import Message

from hrag.values.errors import InvalidArgument

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_WITH_LENGTH = 2  # Protobuf's wire type of strings, bytes and messages.

Known = TypeVar("Known")
Value = TypeVar("Value", bound="DataclassInstance")


def optional_field(message: Message, name: str) -> Any:
    """Returns the value of a field of the message; None if the field is optional and not set."""
    unset = message.DESCRIPTOR.fields_by_name[name].has_presence and not message.HasField(name)
    return None if unset else getattr(message, name)


def dataclass_from(value_type: type[Value], message: Message) -> Value:
    """Returns an instance of the dataclass `value_type`, with the values of the message's fields.

    Each field of the dataclass has the value of the message's field of the same name. An optional
    field of the message that is not set becomes None.
    """
    return value_type(
        **{field.name: optional_field(message, field.name) for field in fields(value_type)}
    )


def enum_value(names: Mapping[Any, Known], number: int, field: str) -> Known:
    """Returns the enum value with this protobuf number.

    `names` maps each number to its value. Raises InvalidArgument for a number that is not in
    `names`.
    """
    if number not in names:
        raise InvalidArgument(f"{field} is {number}, which is no known value", field=field)
    return names[number]


def enum_number(numbers: Mapping[Any, Known], value: object, field: str) -> Known:
    """Returns the protobuf number of an enum value.

    `numbers` maps each value to its number. Raises InvalidArgument for a value that is not in
    `numbers`.
    """
    if value not in numbers:
        allowed = ", ".join(numbers)
        raise InvalidArgument(f"{field} is {value!r}; allowed are {allowed}", field=field)
    return numbers[value]


def optional_enum_number(numbers: Mapping[Any, Known], value: object, field: str) -> Known | None:
    """Returns the protobuf number of an enum value, or None if `value` is None.

    None means the default. Raises InvalidArgument for another value that is not in `numbers`.
    """
    return None if value is None else enum_number(numbers, value, field)


def nested_field(field: int, message: bytes) -> tuple[bytes, bytes]:
    """Returns the two parts of an encoded field that contains an encoded message.

    The first part is the tag and the length, and the second part is the message itself. `field` is
    the field number, which must be less than 16. See
    https://protobuf.dev/programming-guides/encoding.
    """
    head = bytearray([field << 3 | _WITH_LENGTH])
    length = len(message)
    while length >= 0x80:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head), message
