"""The size limit of a reply, which is checked before the reply is created.

All sizes are sizes of encoded messages. The size that is checked is a lower bound: it includes only
texts, ids and metadata, whose sizes are known from stored offsets and records before any text is
copied. So a request for too much data costs no memory, and the error reports how large the reply
would have been.
"""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hrag.values.errors import ReplyTooLarge

SETTING = "HRAG_MAX_REPLY_BYTES"

# Each of these texts is the end of an error message. It says what the caller may request instead.
TEXT_ADVICE = "read the text in parts, with text_range"
SEARCH_ADVICE = "ask for a lower limit, return_level or token_budget"
CHUNK_ADVICE = "ask for a chunk of a lower level, or read the text in parts with GetDocument"
HIERARCHY_ADVICE = (
    "ask for less depth, or without include_content, and read single chunks with GetChunk"
)

_NUMBER_BYTES = 9  # A number is encoded as a tag of one byte and a double of eight bytes.
_FLAG_BYTES = 2  # A boolean or null is encoded as a tag and one byte.


@dataclass(frozen=True, slots=True)
class ReplyLimit:
    """The maximum size of a reply, and how many bytes of the reply are already used."""

    max_bytes: int
    taken_bytes: int = 0

    @property
    def left_bytes(self) -> int:
        """How many more bytes fit into the reply; never negative."""
        return max(self.max_bytes - self.taken_bytes, 0)

    def after(self, size_bytes: int) -> "ReplyLimit":
        """Returns the limit that remains after `size_bytes` more bytes of the reply are used."""
        return replace(self, taken_bytes=self.taken_bytes + size_bytes)

    def check(self, size_bytes: int, advice: str) -> None:
        """Raises ReplyTooLarge if `size_bytes` more bytes do not fit into the reply.

        `advice` says what the caller may request instead, for example SEARCH_ADVICE.
        """
        if size_bytes <= self.left_bytes:
            return
        already = f" in addition to {self.taken_bytes:,} earlier bytes" if self.taken_bytes else ""
        raise ReplyTooLarge(
            f"the reply would take at least {size_bytes:,} bytes{already}; at most "
            f"{self.max_bytes:,} are allowed in all ({SETTING}); {advice}"
        )


UNLIMITED = ReplyLimit(sys.maxsize)


def field_bytes(size_bytes: int) -> int:
    """Returns the size in bytes of an encoded protobuf field with a content of `size_bytes` bytes.

    The field's tag has one byte, and the length of the content is a varint.
    """
    return 1 + max(size_bytes.bit_length() + 6, 7) // 7 + size_bytes


def text_bytes(*texts: str) -> int:
    """Returns the encoded size of all texts, each in a separate field; empty texts need 0 bytes."""
    return sum(field_bytes(len(text.encode())) for text in texts if text)


def struct_bytes(values: Mapping[str, Any]) -> int:
    """Returns the size in bytes of an encoded `google.protobuf.Struct` with these values."""
    entries = (
        field_bytes(len(name.encode())) + field_bytes(_value_bytes(value))
        for name, value in values.items()
    )
    return _all_fields(entries)


def _value_bytes(value: Any) -> int:
    if value is None or isinstance(value, bool):
        return _FLAG_BYTES
    if isinstance(value, str):
        return field_bytes(len(value.encode()))
    if isinstance(value, Mapping):
        return field_bytes(struct_bytes(value))
    if isinstance(value, Iterable):
        return field_bytes(_all_fields(map(_value_bytes, value)))
    return _NUMBER_BYTES


def _all_fields(sizes: Iterable[int]) -> int:
    """Returns the total encoded size, in bytes, of fields whose contents have these `sizes`."""
    return sum(map(field_bytes, sizes))
