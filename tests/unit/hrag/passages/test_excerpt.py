"""The part of a passage around its best leaf."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag import tokens
from hrag.passages.excerpt import excerpt
from hrag.types import Chunk, MatchedChild, Passage, Span

WORDS = [f" word{number}" for number in range(200)]
TEXT = "".join(WORDS)
OFFSET = 1000  # Of the passage in its document.


def _passage(content: str, leaf_start: int = 0, leaf_end: int = 0) -> Passage:
    """A passage with a leaf, in characters of its content."""

    def span(start: int, end: int) -> Span:
        first, last = len(content[:start].encode()), len(content[:end].encode())
        return Span(OFFSET + first, OFFSET + last, OFFSET + start, OFFSET + end)

    whole = span(0, len(content))
    count = len(tokens.encode(content))
    chunk = Chunk("d#2.0", "d", 2, 0, content, count, whole, (), 0, 0, "", "", {})
    leaf = MatchedChild("d#0.0", 1.0, span(leaf_start, leaf_end))
    return Passage(chunk, 1.0, (leaf,) if leaf_end else ())


def _leaf_of(first: int, last: int) -> tuple[int, int]:
    """The characters of the words from `first` to `last`."""
    return len("".join(WORDS[:first])), len("".join(WORDS[: last + 1]))


def test_what_fits_is_whole() -> None:
    assert excerpt(_passage(TEXT), 10_000) == TEXT


@pytest.mark.parametrize(
    ("leaf", "expected"),
    [((100, 110), 105), ((0, 3), None), ((196, 199), None)],
    ids=["middle", "start", "end"],
)
def test_the_leaf_is_in_the_middle_as_far_as_the_passage_reaches(
    leaf: tuple[int, int], expected: int | None
) -> None:
    part = excerpt(_passage(TEXT, *_leaf_of(*leaf)), 60)
    assert part in TEXT
    assert 58 <= len(tokens.encode(part)) <= 60
    assert "".join(WORDS[leaf[0] : leaf[1] + 1]) in part
    if expected is None:
        assert TEXT.startswith(part) or TEXT.endswith(part)
    else:
        assert f" word{expected} " in part[len(part) // 3 : 2 * len(part) // 3]


def test_a_longer_leaf_is_cut_at_its_end() -> None:
    part = excerpt(_passage(TEXT, *_leaf_of(50, 150)), 30)
    assert part.startswith(" word50")


def test_without_a_leaf_it_is_the_beginning() -> None:
    assert TEXT.startswith(excerpt(_passage(TEXT), 30))


@given(
    content=st.text("ab 漢字é🦊.\n", min_size=1, max_size=80),
    ends=st.tuples(st.integers(0, 80), st.integers(0, 80)),
    max_tokens=st.integers(1, 40),
)
def test_it_is_a_part_of_any_text(content: str, ends: tuple[int, int], max_tokens: int) -> None:
    start, end = sorted(min(each, len(content)) for each in ends)
    part = excerpt(_passage(content, start, end), max_tokens)
    assert len(part.encode()) <= len(content.encode())
    assert part in content
