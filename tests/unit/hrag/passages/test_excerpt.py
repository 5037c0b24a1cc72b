"""The excerpt of a passage is the text around its best leaf."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.passages.excerpt import cut_excerpt
from hrag.types import Chunk, MatchedChild, Passage, Span

TEXT = "".join(f"{number:04}" for number in range(100))  # "0000", "0001", and so on.
OFFSET = 1000  # The passage begins at this character of its document.


def _passage(content: str, start: int = 0, end: int = 0, chars_per_token: int = 4) -> Passage:
    """Returns a passage with a matched leaf from character `start` to `end` of its content.

    If `end` is 0, the passage has no matched leaf.
    """
    whole = Span(0, 0, OFFSET, OFFSET + len(content))
    count = len(content) // chars_per_token
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
def test_the_best_leaf_is_in_the_middle_unless_it_is_near_an_end(
    leaf: tuple[int, int], expected: str
) -> None:
    assert cut_excerpt(_passage(TEXT, *leaf), 20) == expected


@given(
    ends=st.tuples(st.integers(0, 400), st.integers(0, 400)),
    max_tokens=st.integers(1, 150),
    chars_per_token=st.integers(1, 8),
)
def test_the_excerpt_contains_the_beginning_of_the_best_leaf(
    ends: tuple[int, int], max_tokens: int, chars_per_token: int
) -> None:
    start, end = sorted(ends)
    passage = _passage(TEXT, start, end, chars_per_token)
    part = cut_excerpt(passage, max_tokens)
    assert part in TEXT
    size = len(TEXT) * max_tokens // passage.chunk.token_count
    assert len(part) == min(size, len(TEXT))
    assert TEXT[start:end][:size] in part
