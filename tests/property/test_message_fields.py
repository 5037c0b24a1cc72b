"""`encode_fields` writes what protobuf writes; `split_vector` leaves what protobuf would read."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from hrag import types
from hrag.v1 import retriever_pb2 as pb
from hrag.wire import retriever
from hrag.wire.encoded_results import encoded_response
from hrag.wire.passages import encoded_passage
from hrag_fast import encode_fields, split_vector
from tests.support.documents.values import F32, TEXT, queries, search_results

_VECTOR, _TEXT = 4, 3  # Fields of SearchRequest.
_SHORT = st.binary(max_size=40)


def _split(message: bytes) -> Any:
    return split_vector(message, _VECTOR, _TEXT)


def _request(vector: list[float], **options: Any) -> bytes:
    query = types.SearchQuery("t", vector, "c", **options)
    return retriever.search_request(query).SerializeToString()


# The following tests cover encode_fields.


@given(search_results)
def test_an_encoded_result_has_the_bytes_of_its_message(result: types.SearchResult) -> None:
    result = replace(result, passages=result.passages[:1])
    encoded = replace(result, passages=tuple(map(encoded_passage, result.passages)))
    message = retriever.search_response(replace(result, passages=()))
    expected = b"".join([*encoded.passages, message.SerializeToString()])
    assert encoded_response(encoded) == expected  # type: ignore[arg-type]


@given(
    st.lists(st.integers(0, 2**64 - 1), max_size=20).map(tuple), TEXT, st.lists(_SHORT, max_size=3)
)
def test_fields_can_be_read_again(
    numbers: tuple[int, ...], text: str, messages: list[bytes]
) -> None:
    encoded = encode_fields((*numbers, text, tuple(messages), None))
    at, read = 0, []

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = encoded[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(encoded):
        tag, value = varint(), varint()
        if tag & 7 == 2:
            read.append((tag >> 3, encoded[at : at + value]))
            at += value
        else:
            read.append((tag >> 3, value))
    count = len(numbers)
    assert read == [
        *((field, number) for field, number in enumerate(numbers, 1) if number),
        *([(count + 1, text.encode())] if text else []),
        *((count + 2, message) for message in messages),
    ]


@given(search_results)
def test_values_of_numpy_in_a_result_are_encoded(result: types.SearchResult) -> None:
    plain = replace(result, passages=())
    numbers = replace(
        plain,
        exhausted=np.bool_(plain.exhausted),
        eligible_leaves=np.int64(plain.eligible_leaves % 2**63),
    )
    plain = replace(plain, eligible_leaves=plain.eligible_leaves % 2**63)
    assert encoded_response(numbers) == encoded_response(plain)  # type: ignore[arg-type]


def test_numbers_of_numpy_are_numbers() -> None:
    assert encode_fields((np.int64(3), np.uint32(0), np.uint64(2**63))) == encode_fields(
        (3, 0, 2**63)
    )


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (-1, OverflowError),
        (2**64, OverflowError),
        (1.5, TypeError),
        ([b"a"], TypeError),
        (((b"a",),), TypeError),
        ("\ud800", UnicodeEncodeError),
    ],
)
def test_a_value_that_no_field_can_have_is_refused(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        encode_fields((1, value))


# The following tests cover split_vector.


@given(queries, st.lists(F32, min_size=1, max_size=6))
def test_a_request_without_a_text_is_split(query: types.SearchQuery, vector: list[float]) -> None:
    query = replace(query, query=vector, vector=None)
    encoded = retriever.search_request(query).SerializeToString()
    rest, numbers = _split(encoded)
    assert numbers.dtype == np.float32
    assert numbers.tolist() == vector
    assert _joined(rest, numbers) == pb.SearchRequest.FromString(encoded)


def _joined(rest: bytes, vector: Any) -> pb.SearchRequest:
    message = pb.SearchRequest.FromString(rest)
    assert not message.HasField("vector")
    message.vector.values.extend(vector)
    return message


@given(st.data())
def test_damaged_requests_are_read_as_protobuf_reads_them(data: st.DataObject) -> None:
    encoded = bytearray(_request([1.0, 2.0], limit=5, min_sequence=300, min_score=0.5))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(encoded)))
        end = at + data.draw(st.integers(0, 3))
        encoded[at:end] = data.draw(st.binary(max_size=4))
    split = _split(bytes(encoded))
    if split is None:
        return
    rest, vector = split
    try:
        expected = pb.SearchRequest.FromString(bytes(encoded))
    except DecodeError:
        with pytest.raises(DecodeError):
            pb.SearchRequest.FromString(rest)
        return
    joined = _joined(rest, vector)
    assert joined.SerializeToString(deterministic=True) == expected.SerializeToString(
        deterministic=True
    )


_WHOLE = _request([1.0, 2.0])
_PACKED = pb.Vector(values=[1.0, 2.0]).SerializeToString()
_UNPACKED = b"\x0d\x00\x00\x80\x3f"


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


@pytest.mark.parametrize(
    "message",
    [
        b"",
        pb.SearchRequest(tenant_id="t").SerializeToString(),
        pb.SearchRequest(vector=pb.Vector()).SerializeToString(),
        pb.SearchRequest(text="x", vector=pb.Vector(values=[1.0])).SerializeToString(),
        _WHOLE[:-1],
        _WHOLE + _WHOLE,
        _WHOLE + b"\x0b\x0c",
        _WHOLE + b"\x80",
        _WHOLE + b"\x08" + b"\x80" * 10 + b"\x01",
        bytes([_VECTOR << 3 | 0x82, 0, len(_PACKED)]) + _PACKED,
        bytes([_VECTOR << 3 | 2, len(_PACKED) | 0x80, *[0x80] * 4, 0]) + _PACKED,
        _field(_VECTOR, _UNPACKED),
        _field(_VECTOR, _PACKED + _UNPACKED),
        _field(_VECTOR, _PACKED[:-1]),
        _field(_VECTOR, _field(1, b"\0" * 7)),
        _field(_VECTOR, _field(2, b"\0" * 8)),
        bytes([_VECTOR << 3, 1]),
    ],
)
def test_a_message_of_another_form_is_not_split(message: bytes) -> None:
    assert _split(message) is None
