"""The encoded size of a reply is computed before its message is created."""

import re

import pytest
from google.protobuf.struct_pb2 import Struct
from hypothesis import given
from hypothesis import strategies as st

from hrag.errors import ReplyTooLarge
from hrag.v1 import types_pb2
from hrag.values.reply_limit import UNLIMITED, ReplyLimit, struct_bytes, text_bytes
from hrag.wire.common import struct_message

VALUES = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), VALUES, max_size=5))
def test_the_computed_size_of_metadata_is_its_encoded_size(values: dict[str, object]) -> None:
    message: Struct = struct_message(values)
    assert struct_bytes(values) == message.ByteSize()


@given(st.text(), st.text(max_size=300))
def test_the_computed_size_of_texts_is_their_encoded_size(title: str, source: str) -> None:
    message = types_pb2.Chunk(title=title, source=source)
    assert text_bytes(title, source) == message.ByteSize()


def test_an_error_names_the_size_the_limit_and_the_earlier_bytes() -> None:
    limit = ReplyLimit(1000).after(400)
    limit.check(600, "ask for less")
    message = (
        "at least 601 bytes in addition to 400 earlier bytes; "
        "at most 1,000 are allowed in all (HRAG_MAX_REPLY_BYTES)"
    )
    with pytest.raises(ReplyTooLarge, match=re.escape(message)) as refused:
        limit.check(601, "ask for less")
    assert refused.value.message.endswith("; ask for less")
    assert limit.after(5000).left_bytes == 0
    UNLIMITED.check(1 << 60, "")
