"""The largest reply, counted before it is made.

Sizes are of encoded messages. What is counted is a lower bound: texts, ids and metadata, which
are known from offsets and records before a text is copied. So whoever asks for too much costs
no memory, and is told how much it would have been.
"""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hrag.values.errors import ReplyTooLarge

SETTING = "HRAG_MAX_REPLY_BYTES"

# What a caller may ask for instead, for errors.
TEXT_ADVICE = "read the text in parts, with text_range"
SEARCH_ADVICE = "ask for a lower limit, return_level or token_budget"
CHUNK_ADVICE = "ask for a chunk of a lower level, or read the text in parts with GetDocument"
HIERARCHY_ADVICE = (
    "ask for less depth, or without include_content, and read single chunks with GetChunk"
)

_NUMBER_BYTES = 9  # Tag and double.
_FLAG_BYTES = 2  # Tag and one byte: a boolean or null.


@dataclass(frozen=True, slots=True)
class ReplyLimit:
    """At most how many bytes a reply may have, and how many of them are taken already."""

    max_bytes: int
    taken_bytes: int = 0

    @property
    def left_bytes(self) -> int:
        """How many bytes are left; 0 or more."""
        return max(self.max_bytes - self.taken_bytes, 0)

    def after(self, size_bytes: int) -> "ReplyLimit":
        """Returns the limit of what comes after `size_bytes` more."""
        return replace(self, taken_bytes=self.taken_bytes + size_bytes)

    def check(self, size_bytes: int, advice: str) -> None:
        """Raises ReplyTooLarge if the next `size_bytes` do not fit.

        `advice` is what the caller may ask for instead, such as SEARCH_ADVICE.
        """
        if size_bytes <= self.left_bytes:
            return
        taken = f", of which {self.taken_bytes:,} are taken" if self.taken_bytes else ""
        raise ReplyTooLarge(
            f"the reply would take at least {size_bytes:,} bytes; at most {self.max_bytes:,} are "
            f"sent ({SETTING}){taken}; {advice}"
        )


UNLIMITED = ReplyLimit(sys.maxsize)


def field_bytes(size_bytes: int) -> int:
    """Returns the encoded size of a field of that length, with a tag of one byte."""
    return 1 + max(size_bytes.bit_length() + 6, 7) // 7 + size_bytes


def text_bytes(*texts: str) -> int:
    """Returns the encoded size of texts, each a field of its own; empty ones take none."""
    return sum(field_bytes(len(text.encode())) for text in texts if text)


def struct_bytes(values: Mapping[str, Any]) -> int:
    """Returns the encoded size of a `google.protobuf.Struct` with these values."""
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
    return sum(map(field_bytes, sizes))
