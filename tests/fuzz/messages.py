"""Generates unusual and invalid messages from descriptors and from valid messages.

There are four kinds: messages built field by field; valid messages with some fields changed;
messages of both kinds with damaged bytes; random bytes. All random choices come from one
`random.Random`, so a seed determines the messages. Generating a message takes a tenth of a
millisecond. hypothesis is not used, because it would need most of the time of a run.
"""

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from tests.fuzz.damage import damaged

_TEXTS = (
    "",
    " ",
    "\0",
    "a\0b",
    "\u3000\u200b\ufeff",
    "../../etc/passwd",
    "'; DROP TABLE chunks; --",
    "%s%n{0}$question",
    "ａｃｍｅ",  # This looks like the tenant id acme, but consists of full-width letters.
    "e\u0301👩‍👩‍👧‍👦🏳️‍🌈\U0010ffff",
    "\ud7ff\ue000\ufffe\uffff",
    "a. b? c! 猫睡觉。它们喜欢鱼。",
    "# Head\n\n- a\n  - b\n\n> > > c\n\n```\nd",
    "---\na: b\n---\n",
    "*/application/pdf; charset=\x7f",
    "2026-11-21",
    "9999-12-31T23:59:59+00:00",
    "1" * 400,
)
_PIECES = ("a", "猫", "# ", ". ", "\n", "[", "`", "*", "> ", "- ", "\t", "\r", "x" * 50, "👩‍👧")
_INTEGERS = (
    0, 1, 2, 3, 7, 8, 9, 20, 31, 32, 33, 64, 100, 101, 256, 999, 1000, 1001, 10_000, 10_001,
)  # fmt: skip
_EDGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), -1, (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), -1, 1 << 53, (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT32: (1 << 16, 1 << 31, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_UINT64: (1 << 32, 1 << 53, 1 << 63, (1 << 64) - 1),
    FieldDescriptor.CPPTYPE_ENUM: (-(1 << 31), -1, 77, (1 << 31) - 1),
}
_FLOATS = (
    0.0, -0.0, 1.0, -1.0, 0.1, 0.5, 1.5, 1e-45, 1e-40, 3.4e38, -3.4e38, 2.0**53,
    float("nan"), float("inf"), float("-inf"),
)  # fmt: skip
_DOUBLES = (*_FLOATS, 5e-324, 1e308, -1e308)
_BYTES = (b"", b"\0", b"\xff\xfe", b"\xef\xbb\xbftext", b"%PDF-1.7\n", b"\xed\xa0\x80")

_MAX_DEPTH = 8
# Generated fields are nested up to this many messages deep, which is more than services accept:
# metadata may be nested 30 levels deep, which is 90 messages, and filters 16 levels deep.
_DEEPEST = 96
# This is more than the 100 levels of nested messages that protobuf accepts.
_FAR_TOO_DEEP = 200
# A repeated field with many elements has up to this many.
_MANY = 300
# A long text repeats its pieces this many times.
_LONG = 20_000


@dataclass(frozen=True, slots=True)
class Messages:
    """Generates messages of one type from the valid messages in `seeds` and from `names`."""

    type: Descriptor
    seeds: Sequence[Message]
    names: Sequence[str]

    def message(self, draw: random.Random) -> bytes:
        """Returns the bytes of a message, valid or not."""
        way = draw.random()
        if way < 0.05:
            return draw.choice(self.seeds).SerializeToString()
        if way < 0.45:
            return self._changed(draw).SerializeToString()
        if way < 0.60:
            return self._from_nothing(draw).SerializeToString()
        if way < 0.97:
            source = self._changed if draw.random() < 0.8 else self._from_nothing
            return self._damaged(source(draw).SerializeToString(), draw)
        return draw.randbytes(draw.choice((0, 1, 2, 10, 1000)))

    def _from_nothing(self, draw: random.Random) -> Message:
        message = message_factory.GetMessageClass(self.type)()
        if draw.random() < 0.2:
            self._dig(message, draw, draw.randint(1, _DEEPEST))
        else:
            self._fill(message, draw, draw.choice((1, 2, 3, _MAX_DEPTH)))
        return message

    def _dig(self, message: Message, draw: random.Random, depth: int) -> None:
        """Sets a chain of nested fields `depth` levels deep, at random at each level.

        So metadata and filters may be nested more deeply than services accept.
        """
        fields = [field for field in message.DESCRIPTOR.fields if field.message_type]
        if not depth or not fields:
            self._fill(message, draw, 0)
            return
        field = draw.choice(fields)
        inner = getattr(message, field.name)
        if _is_map(field):
            inner = inner[self._text(draw)]
        elif field.is_repeated:
            inner = inner.add()
        inner.SetInParent()
        self._dig(inner, draw, depth - 1)

    def _fill(self, message: Message, draw: random.Random, depth: int) -> None:
        share = draw.random()
        for field in message.DESCRIPTOR.fields:
            if draw.random() < share:
                self._set(message, field, draw, depth)

    def _changed(self, draw: random.Random) -> Message:
        """Returns a valid message with one to three of its fields changed, cleared or repeated."""
        seed = draw.choice(self.seeds)
        message = type(seed)()
        message.CopyFrom(seed)
        for _ in range(draw.choice((1, 1, 1, 2, 3))):
            part = draw.choice(parts(message))
            if not part.DESCRIPTOR.fields:
                continue
            field = draw.choice(part.DESCRIPTOR.fields)
            if draw.random() < 0.15:
                part.ClearField(field.name)
            elif draw.random() < 0.1:
                # `deepcopy` cannot copy a message that is nested too deeply for the parser.
                with suppress(DecodeError):
                    part.MergeFrom(deepcopy(part))
            elif draw.random() < 0.1:
                self._dig(part, draw, draw.randint(1, _DEEPEST))
            else:
                self._set(part, field, draw, 2)
        return message

    def _set(
        self, message: Message, field: FieldDescriptor, draw: random.Random, depth: int
    ) -> None:
        if _is_map(field):
            self._set_map(getattr(message, field.name), field, draw, depth)
        elif field.is_repeated:
            max_elements = _MANY if draw.random() < 0.02 else 3
            for _ in range(draw.randint(0, max_elements)):
                self._add(message, field, draw, 1 if max_elements == _MANY else depth)
        elif field.message_type:
            inner = getattr(message, field.name)
            inner.SetInParent()
            if depth:
                self._fill(inner, draw, depth - 1)
        else:
            setattr(message, field.name, self._scalar(field, draw))

    def _add(
        self, message: Message, field: FieldDescriptor, draw: random.Random, depth: int
    ) -> None:
        repeated = getattr(message, field.name)
        if not field.message_type:
            repeated.append(self._scalar(field, draw))
        else:
            inner = repeated.add()
            if depth:
                self._fill(inner, draw, depth - 1)

    def _set_map(self, entries, field: FieldDescriptor, draw: random.Random, depth: int) -> None:
        """Sets entries of a map. The only maps in the protos are the fields of Struct."""
        for _ in range(draw.randint(0, 3)):
            inner = entries[self._text(draw)]
            if depth:
                self._fill(inner, draw, depth - 1)

    def _scalar(self, field: FieldDescriptor, draw: random.Random):
        kind = field.cpp_type
        if kind == FieldDescriptor.CPPTYPE_STRING:
            return (
                draw.choice(_BYTES)
                if field.type == FieldDescriptor.TYPE_BYTES
                else self._text(draw)
            )
        if kind == FieldDescriptor.CPPTYPE_BOOL:
            return draw.random() < 0.5
        if kind == FieldDescriptor.CPPTYPE_FLOAT:
            return draw.choice(_FLOATS)
        if kind == FieldDescriptor.CPPTYPE_DOUBLE:
            return draw.choice(_DOUBLES)
        if draw.random() < 0.3:
            return draw.choice(_EDGES[kind])
        return draw.choice(_INTEGERS)

    def _text(self, draw: random.Random) -> str:
        way = draw.random()
        if way < 0.6:
            return draw.choice(self.names)
        if way < 0.9:
            return draw.choice(_TEXTS)
        pieces = draw.choices(_PIECES, k=draw.choice((1, 2, 5)))
        times = _LONG if way > 0.998 else draw.choice((1, 40))
        return "".join(pieces) * times

    def _damaged(self, raw: bytes, draw: random.Random) -> bytes:
        others = [seed.SerializeToString() for seed in self.seeds]
        for change in (self._with_unknown, self._too_deep):
            if draw.random() < 0.1:
                raw = change(raw, draw)
        return damaged(raw, draw, others)

    def _with_unknown(self, raw: bytes, draw: random.Random) -> bytes:
        number = draw.choice((100, 1000, 19_000, (1 << 29) - 1))
        return raw + _field(number, draw.choice((b"", b"\xff" * 10, b"x" * 1000)))

    def _too_deep(self, raw: bytes, draw: random.Random) -> bytes:
        """Appends a field that is nested in itself more deeply than protobuf accepts."""
        deep = b""
        for _ in range(_FAR_TOO_DEEP):
            deep = _field(1, deep)
        numbers = [field.number for field in self.type.fields] or [1]
        return raw + _field(draw.choice(numbers), deep)


def parts(message: Message) -> list[Message]:
    """Returns the message and all messages in it, at every depth."""
    messages = [message]
    for field, value in message.ListFields():
        if _is_map(field):
            inner = list(value.values())
        elif field.message_type:
            inner = list(value) if field.is_repeated else [value]
        else:
            continue
        for inner_message in inner:
            messages += parts(inner_message)
    return messages


def _is_map(field: FieldDescriptor) -> bool:
    return bool(field.message_type) and field.message_type.GetOptions().map_entry


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])


def readable(kind: Descriptor, raw: bytes) -> Message | None:
    """Parses the message; returns None if it is malformed."""
    try:
        return message_factory.GetMessageClass(kind).FromString(raw)
    except DecodeError:
        return None


def shortened(kind: Descriptor, raw: bytes) -> Iterator[bytes]:
    """Yields shorter versions of a message: first without one field, then without some bytes."""
    message = readable(kind, raw)
    for number, part in enumerate(parts(message) if message else ()):
        for field, _ in part.ListFields():
            copy = deepcopy(message)
            parts(copy)[number].ClearField(field.name)
            yield copy.SerializeToString()
    size = len(raw)
    while size := size // 2:
        for start in range(0, len(raw), size):
            yield raw[:start] + raw[start + size :]
