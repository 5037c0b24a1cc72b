"""Encoded messages that no serialiser writes are read as protobuf reads them, or are refused."""

import json
from itertools import pairwise

import pytest
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from hrag.errors import InvalidArgument
from hrag.gateway.protojson.json_writer import write
from hrag.v1 import filter_pb2 as fpb
from hrag.v1 import retriever_pb2 as rpb
from hrag.v1 import types_pb2 as tpb
from hrag_fast import JsonSchema

INT32, STRING, MESSAGE, GROUP = 5, 9, 11, 10


def _response() -> bytes:
    response = rpb.SearchResponse(mode=rpb.SEARCH_MODE_CONTEXT, sequence=300, exhausted=True)
    passage = response.passages.add(score=0.5, merged_chunk_ids=["a", "b"])
    passage.chunk.content = "Dogs bark.\n"
    passage.chunk.metadata.update({"team": "zoo"})
    passage.term_spans.add(char_start=1, char_end=4)
    return response.SerializeToString()


def test_unknown_fields_are_skipped() -> None:
    unknown = b"\xf8\x03\x05" + b"\xfa\x03\x02ab" + b"\xfd\x03abcd" + b"\xf9\x03abcdefgh"
    high_field_number = b"\x80\x80\x40\x01"
    for unknown_fields in (unknown, high_field_number):
        assert write(rpb.SearchResponse, unknown_fields + _response() + unknown_fields) == write(
            rpb.SearchResponse, _response()
        )


def test_repeated_numbers_are_read_in_the_packed_and_in_the_unpacked_encoding() -> None:
    packed = rpb.Vector(values=[1.0, 2.5]).SerializeToString()
    single = b"".join(b"\x0d" + packed[at : at + 4] for at in (2, 6))
    assert rpb.Vector.FromString(single).values == [1.0, 2.5]
    assert write(rpb.Vector, packed) == write(rpb.Vector, single) == b'{"values":[1,2.5]}'


def test_a_default_that_was_encoded_is_written_only_if_the_field_is_optional() -> None:
    assert write(tpb.Chunk, b"\x0a\x00\x18\x00") == b"{}"
    passage = rpb.Passage(lexical_score=0.0)
    assert write(rpb.Passage, passage.SerializeToString()) == b'{"lexicalScore":0}'


@pytest.mark.parametrize("encoded", [b"\x18\x01\x18\x02", b"\x18\x01\x0a\x01a\x18\x02"])
def test_a_single_value_that_occurs_twice_is_refused(encoded: bytes) -> None:
    with pytest.raises(ValueError, match="field 3 occurs again; a single value may occur once"):
        write(tpb.Chunk, encoded)


def test_wrong_wire_types_and_truncated_values_are_refused() -> None:
    for encoded, problem in (
        (b"\x1a\x01a", "wire type 2; it must be 0"),
        (b"\x0b", "wire type 3; it must be 2"),
        (b"\xfb\x03", "wire type 3, which is not known"),
        (b"\x0a\x05a", "inside a value"),
        (b"\x18\x80", "inside a number"),
        (b"\x18" + b"\xff" * 11, "over 64 bits"),
    ):
        with pytest.raises(ValueError, match=problem):
            write(tpb.Chunk, encoded)


def test_messages_nested_too_deep_are_refused() -> None:
    tags = [fpb.Filter.ALL_OF_FIELD_NUMBER << 3 | 2, fpb.FilterList.FILTERS_FIELD_NUMBER << 3 | 2]
    deep = b""
    for level in range(99):
        deep = bytes([tags[(level + 1) % 2], len(deep) & 127 | 128, len(deep) >> 7]) + deep
    assert write(fpb.FilterList, deep).count(b"{") == 100
    deeper = bytes([tags[0], len(deep) & 127 | 128, len(deep) >> 7]) + deep
    with pytest.raises(ValueError, match="messages are nested more than 100 deep"):
        write(fpb.Filter, deeper)


@given(data=st.data())
def test_damaged_messages_are_read_as_by_protobuf_or_refused(
    data: st.DataObject,
) -> None:
    encoded = bytearray(_response())
    cuts = sorted(data.draw(st.lists(st.integers(0, len(encoded)), max_size=4)))
    for start, end in pairwise(cuts):
        encoded[start:end] = data.draw(st.binary(max_size=8))
    try:
        written = write(rpb.SearchResponse, bytes(encoded))
        message = rpb.SearchResponse.FromString(bytes(encoded))
    except (ValueError, DecodeError, InvalidArgument):
        # InvalidArgument is raised for metadata that are not JSON.
        return
    assert json.loads(written).keys() == json_format.MessageToDict(message).keys()


def test_unknown_kinds_and_too_large_field_numbers_are_refused() -> None:
    schema = JsonSchema()
    with pytest.raises(ValueError, match="a has the kind 10"):
        schema.add(1, "a", GROUP, False, False)
    with pytest.raises(ValueError, match="a has the number 64; it must be 1 to 63"):
        schema.add(64, "a", STRING, False, False)
    schema.add(63, "a", INT32, False, False)
    assert schema.write(b"\xf8\x03" + b"\xff" * 9 + b"\x01") == b'{"a":-1}'
