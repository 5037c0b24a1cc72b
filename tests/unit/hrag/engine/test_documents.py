"""Parts of texts and of lists that fit a reply."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.engine.engine_documents import read_part
from hrag.errors import InvalidArgument, ReplyTooLarge
from hrag.types import ByteRange
from hrag.values.reply_limit import UNLIMITED, ReplyLimit


@given(st.text("aé猫🐕", max_size=50), st.integers(4, 20))
def test_parts_of_a_text_are_the_text(text: str, most: int) -> None:
    content, parts, end = text.encode(), [], 0
    while end < len(content):
        part, end = read_part(content, ByteRange(end), ReplyLimit(most))
        assert 0 < len(part.encode()) <= most
        parts.append(part)
    assert "".join(parts) == text


def test_a_part_begins_and_ends_between_characters() -> None:
    assert read_part("猫狗".encode(), ByteRange(1, 5), UNLIMITED) == ("猫", 3)
    assert read_part(b"abc", ByteRange(3), UNLIMITED) == ("", 3)


@pytest.mark.parametrize("part", [ByteRange(4), ByteRange(2, 1), ByteRange(9, 3)])
def test_a_part_that_the_text_does_not_have_is_refused(part: ByteRange) -> None:
    with pytest.raises(InvalidArgument, match="text_range") as refused:
        read_part(b"abc", part, UNLIMITED)
    assert refused.value.field == "text_range"


def test_a_whole_text_that_is_too_long_is_refused() -> None:
    with pytest.raises(ReplyTooLarge, match="text_range"):
        read_part(b"x" * 1000, None, ReplyLimit(1000))
