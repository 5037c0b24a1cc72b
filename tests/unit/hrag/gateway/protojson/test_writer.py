"""Encoded messages are written as JSON, which protobuf's own code reads as equal messages."""

import json
import math
import struct
from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from hrag.gateway.protojson.json_writer import as_json, dumped, write
from hrag.gateway.services.methods import METHODS, ServiceMethod
from hrag.v1 import filter_pb2 as fpb
from hrag.v1 import retriever_pb2 as rpb
from hrag.v1 import types_pb2 as tpb

_KIND = FieldDescriptor
# Messages may contain messages of their own type, so generated messages have at most this depth.
_DEPTH = 4
_NOT_FINITE = st.sampled_from([math.nan, math.inf, -math.inf])
_SCALARS: dict[int, st.SearchStrategy[Any]] = {
    _KIND.TYPE_STRING: st.text(max_size=5),
    _KIND.TYPE_BYTES: st.binary(max_size=5),
    _KIND.TYPE_BOOL: st.booleans(),
    # `json_format` reads the largest 32-bit floats only if all their digits are written.
    _KIND.TYPE_FLOAT: st.floats(-(2.0**127), 2.0**127, width=32) | _NOT_FINITE,
    _KIND.TYPE_DOUBLE: st.floats(allow_nan=False) | _NOT_FINITE,
    _KIND.TYPE_INT32: st.integers(-(1 << 31), (1 << 31) - 1),
    _KIND.TYPE_UINT32: st.integers(0, (1 << 32) - 1),
    _KIND.TYPE_INT64: st.integers(-(1 << 63), (1 << 63) - 1),
    _KIND.TYPE_UINT64: st.integers(0, (1 << 64) - 1),
}


def _fill(message: Any, data: st.DataObject, depth: int = 1) -> None:
    """Sets some fields of a message to random values."""
    if message.DESCRIPTOR.full_name == "google.protobuf.Struct":
        message.update(data.draw(st.dictionaries(st.text(max_size=3), st.booleans(), max_size=2)))
        return
    fields = list(message.DESCRIPTOR.fields)
    for field in data.draw(st.lists(st.sampled_from(fields), unique=True)) if fields else ():
        if field.message_type is None:
            _set(message, field, data)
        elif depth < _DEPTH and field.is_repeated:
            _fill(getattr(message, field.name).add(), data, depth + 1)
        elif depth < _DEPTH:
            getattr(message, field.name).SetInParent()
            _fill(getattr(message, field.name), data, depth + 1)


def _set(message: Any, field: FieldDescriptor, data: st.DataObject) -> None:
    if field.enum_type is not None:
        value = data.draw(st.sampled_from(list(field.enum_type.values))).number
    elif message.DESCRIPTOR.full_name == "google.protobuf.Timestamp":
        value = data.draw(st.integers(0, 999_999_999))
    else:
        value = data.draw(_SCALARS[field.type])
    if field.is_repeated:
        getattr(message, field.name).extend([value] * data.draw(st.integers(1, 2)))
    else:
        setattr(message, field.name, value)


def _bytes(message: Message) -> bytes:
    """Returns bytes that are equal for equal messages, also if they contain NaN."""
    return message.SerializeToString(deterministic=True)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@settings(max_examples=15)
@given(data=st.data(), is_request=st.booleans())
def test_every_message_is_the_same_after_writing_and_reading(
    method: ServiceMethod, data: st.DataObject, is_request: bool
) -> None:
    kind = method.request if is_request else method.response
    message = kind()
    _fill(message, data)
    encoded = message.SerializeToString()
    for written in (write(kind, encoded), dumped(as_json(kind, encoded))):
        assert _bytes(json_format.Parse(written, kind())) == _bytes(message)


def test_names_enums_and_64_bit_integers_are_written_as_by_protobuf() -> None:
    response = rpb.SearchResponse(mode=rpb.SEARCH_MODE_CONTEXT, sequence=1 << 60)
    passage = response.passages.add(score=0.5, lexical_score=0.0)
    passage.chunk.document_id = "a"
    passage.chunk.metadata.update({"n": 5, "list": [1.5, None]})
    passage.term_spans.add(char_end=4)
    passage.merged_chunk_ids.extend(["b", "c"])
    _assert_written_as_by_protobuf(response)


def test_times_and_bytes_are_written_as_by_protobuf() -> None:
    value = fpb.FilterValue()
    value.timestamp.FromJsonString("2026-01-02T03:04:05Z")
    for message in (value, tpb.Document(content=b"\xff\x00")):
        _assert_written_as_by_protobuf(message)


def _assert_written_as_by_protobuf(message: Message) -> None:
    expected = json_format.MessageToDict(message)
    assert as_json(type(message), message.SerializeToString()) == expected
    assert json.loads(write(type(message), message.SerializeToString())) == expected


def test_enum_values_without_a_name_are_written_as_integers() -> None:
    encoded = b"\x10\x63"
    assert as_json(rpb.SearchResponse, encoded) == {"mode": 99}
    assert write(rpb.SearchResponse, encoded) == b'{"mode":99}'


@pytest.mark.parametrize(
    ("value", "written"),
    [
        *((0.1, b"0.1"), (1e30, b"1e+30"), (-2.5, b"-2.5"), (-0.0, b"-0.0")),
        *((float("inf"), b'"Infinity"'), (float("-inf"), b'"-Infinity"'), (float("nan"), b'"NaN"')),
    ],
)
def test_32_bit_floats_are_written_with_the_fewest_digits(value: float, written: bytes) -> None:
    message = rpb.Passage(score=struct.unpack("f", struct.pack("f", value))[0])
    assert dumped(as_json(rpb.Passage, message.SerializeToString())) == b'{"score":%b}' % written
    assert write(rpb.Passage, message.SerializeToString()) == b'{"score":%b}' % written


@pytest.mark.parametrize(
    "text", ['"', "\\", "\0\b\t\n\f\r\x1f\x7f", "é漢\U0001f600", "</script>\u2028"]
)
def test_texts_are_escaped_where_json_requires_it(text: str) -> None:
    document = tpb.Document(text=text, title=f"a{text}b")
    encoded = document.SerializeToString()
    assert write(tpb.Document, encoded) == dumped(as_json(tpb.Document, encoded))
