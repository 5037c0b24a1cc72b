"""The excerpt of a passage around its best leaf."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.passages.excerpt import cut_excerpt
from hrag.types import Chunk, MatchedChild, Passage, Span

TEXT = "".join(f"{number:04}" for number in range(100))  # "0000", "0001", and so on.
OFFSET = 1000  # The start of the passage in its document.


def _passage(content: str, start: int = 0, end: int = 0, chars_a_token: int = 4) -> Passage:
    """A passage with a leaf from `start` to `end`, in characters of the content."""
    whole = Span(0, 0, OFFSET, OFFSET + len(content))
    count = len(content) // chars_a_token
    chunk = Chunk("d#2.0", "d", 2, 0, content, count, whole, (), 0, 0, "", "", {})
    leaf = MatchedChild("d#0.0", 1.0, Span(0, 0, OFFSET + start, OFFSET + end))
    return Passage(chunk, 1.0, (leaf,) if end else ())


def test_a_content_that_fits_is_returned_whole() -> None:
    assert cut_excerpt(_passage(TEXT), 100) == TEXT


@pytest.mark.parametrize(
    ("leaf", "expected"),
    [
        ((200, 240), TEXT[180:260]),
        ((0, 40), TEXT[:80]),
        ((380, 400), TEXT[320:]),
        ((200, 300), TEXT[200:280]),
        ((0, 0), TEXT[:80]),
    ],
    ids=["middle", "start", "end", "longer leaf", "no leaf"],
)
def test_the_leaf_is_in_the_middle_as_far_as_the_passage_reaches(
    leaf: tuple[int, int], expected: str
) -> None:
    assert cut_excerpt(_passage(TEXT, *leaf), 20) == expected


@given(
    ends=st.tuples(st.integers(0, 400), st.integers(0, 400)),
    max_tokens=st.integers(1, 150),
    chars_a_token=st.integers(1, 8),
)
def test_the_beginning_of_the_leaf_is_in_the_excerpt(
    ends: tuple[int, int], max_tokens: int, chars_a_token: int
) -> None:
    start, end = sorted(ends)
    passage = _passage(TEXT, start, end, chars_a_token)
    part = cut_excerpt(passage, max_tokens)
    assert part in TEXT
    size = len(TEXT) * max_tokens // passage.chunk.token_count
    assert len(part) == min(size, len(TEXT))
    assert TEXT[start:end][:size] in part
