"""Fields of messages as fields of values: optional ones, enums, messages of plain numbers.

And encoded messages as fields of encoded messages.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.message import Message

from hrag.values.errors import InvalidArgument

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_WITH_LENGTH = 2  # The wire type of strings, bytes and messages.

Known = TypeVar("Known")
Value = TypeVar("Value", bound="DataclassInstance")


def given(message: Message, name: str) -> Any:
    """Returns a field of the message; None if it is optional and unset."""
    unset = message.DESCRIPTOR.fields_by_name[name].has_presence and not message.HasField(name)
    return None if unset else getattr(message, name)


def alike(value_type: type[Value], message: Message) -> Value:
    """Returns the dataclass whose fields have the names of the message's, read by `given`."""
    return value_type(**{each.name: given(message, each.name) for each in fields(value_type)})


def known(names: Mapping[Any, Known], number: int, field: str) -> Known:
    """Returns what an enum's number means; raises InvalidArgument for an unknown one."""
    if number not in names:
        raise InvalidArgument(f"{field} is {number}, which this server does not know", field=field)
    return names[number]


def number(numbers: Mapping[Any, Known], value: object, field: str) -> Known:
    """Returns an enum's number; raises InvalidArgument for a value that is none of `numbers`."""
    if value not in numbers:
        allowed = ", ".join(numbers)
        raise InvalidArgument(f"{field} is {value!r}; allowed are {allowed}", field=field)
    return numbers[value]


def number_or_none(numbers: Mapping[Any, Known], value: object, field: str) -> Known | None:
    """The same; None, the default, stays None."""
    return None if value is None else number(numbers, value, field)


def nested(field: int, message: bytes) -> tuple[bytes, bytes]:
    """Returns the parts of an encoded field that holds an encoded message.

    `field` is its number, less than 16. See https://protobuf.dev/programming-guides/encoding.
    """
    head = bytearray([field << 3 | _WITH_LENGTH])
    length = len(message)
    while length >= 0x80:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head), message
