"""Strategies of hypothesis for documents and tree settings.

A document has a few blocks. Each block has a kind, and its text is computed from a seed. So
hypothesis shrinks the count of blocks and their sizes, which decide how a tree fails.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

from hypothesis import strategies as st

from hrag.types import MAX_LEVELS, MIN_CHUNK_TOKENS, TreeSettings
from hrag.values.tree import PageSpan, ParsedText, Section

_ENGLISH = "the small chunk of an old river finds its larger context before winter"
_WORDS = _ENGLISH.split()
_CHINESE = "检索先找小块再返回更大的上下文因为语言模型需要完整的信息来回答问题"
_CLUSTERS = ["👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "e\u0301", "ก็", "a\u0323\u0307", "𝔘", "🙂", "ｱ", "\u200d"]
_BLANKS = [" ", "  ", "\n", "\n\n", "\t", "\r\n", "\u3000", "\f", "\n \n"]


def _english(draw: random.Random, words: int) -> str:
    ends = [" ", " ", " ", " ", ", ", ". ", "! ", '." ', "\n", ".\n\n"]
    return "".join(draw.choice(_WORDS) + draw.choice(ends) for _ in range(words))


def _chinese(draw: random.Random, words: int) -> str:
    ends = ["", "", "", "", "，", "。", "！", "？”", "\n\n"]
    return "".join(draw.choice(_CHINESE) + draw.choice(ends) for _ in range(words))


def _mixed(draw: random.Random, words: int) -> str:
    return "".join(draw.choice([_english, _chinese])(draw, 3) for _ in range(words // 3 + 1))


def _emoji(draw: random.Random, words: int) -> str:
    ends = ["", "", "", " ", ". "]
    return "".join(draw.choice(_CLUSTERS) + draw.choice(ends) for _ in range(words))


def _unbroken(draw: random.Random, words: int) -> str:
    return "".join(draw.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=4 * words))


def _one_line(draw: random.Random, words: int) -> str:
    return " ".join(draw.choices(_WORDS, k=words))


def _blank(draw: random.Random, words: int) -> str:
    return "x" + "".join(draw.choices(_BLANKS, k=words))


def _crlf(draw: random.Random, words: int) -> str:
    ends = [" ", ".\r\n", "\r\n\r\n", "\r", "\r\r\n", "\r\n"]
    return "".join(draw.choice(_WORDS) + draw.choice(ends) for _ in range(words))


def _one_token(draw: random.Random, words: int) -> str:
    return "x"


KINDS: dict[str, Callable[[random.Random, int], str]] = {
    "english": _english,
    "chinese": _chinese,
    "mixed": _mixed,
    "emoji": _emoji,
    "unbroken": _unbroken,
    "one line": _one_line,
    "blank": _blank,
    "crlf": _crlf,
    "one token": _one_token,
}


def text_of(kind: str, words: int, seed: int = 0) -> str:
    """Returns a random text of a kind of KINDS. The arguments determine the text.

    `words` is about the count of its words.
    """
    return KINDS[kind](random.Random(f"{kind} {seed}"), words)


@dataclass(frozen=True)
class _Block:
    """A part of a document: documents are made of consecutive blocks.

    `depth` is the depth of the heading at the beginning of the block; 0 if there is none. `page` is
    True if a page begins with the block.
    """

    text: str
    depth: int
    page: bool


_BLOCKS = st.builds(
    _Block,
    st.builds(text_of, st.sampled_from(list(KINDS)), st.integers(1, 400), st.integers(0, 9)),
    st.integers(0, 3),
    st.booleans(),
)


def _parsed(blocks: list[_Block]) -> ParsedText:
    text = "".join(block.text for block in blocks)
    starts = [0, *accumulate(len(block.text) for block in blocks)]
    blocks_with_starts = list(zip(blocks, starts, strict=False))
    page_starts = [start for block, start in blocks_with_starts if block.page]
    return ParsedText(
        text,
        tuple(
            Section(f"heading {start}", block.depth, start)
            for block, start in blocks_with_starts
            if block.depth
        ),
        tuple(
            PageSpan(number, start, end)
            for number, (start, end) in enumerate(
                zip(page_starts, [*page_starts[1:], len(text)], strict=False), start=1
            )
        ),
    )


documents = st.lists(_BLOCKS, min_size=1, max_size=5).map(_parsed)

_DOUBLINGS = st.integers(MIN_CHUNK_TOKENS, 64).flatmap(
    lambda size: st.integers(1, 4).map(lambda levels: [size << level for level in range(levels)])
)
_ANY_SIZES = st.lists(
    st.integers(MIN_CHUNK_TOKENS, 500), min_size=1, max_size=MAX_LEVELS, unique=True
)
_CLOSE_SIZES = st.tuples(st.integers(MIN_CHUNK_TOKENS, 70), st.integers(1, MAX_LEVELS)).map(
    lambda drawn: list(range(drawn[0], drawn[0] + drawn[1]))
)


@st.composite
def tree_settings(draw: st.DrawFn) -> TreeSettings:
    """Draws any tree settings whose chunks are so small that a document has many chunks."""
    sizes = sorted(draw(_DOUBLINGS | _ANY_SIZES | _CLOSE_SIZES))
    overlap = draw(st.sampled_from([0.0, 0.1, 0.5]) | st.floats(0.0, 0.5))
    return TreeSettings(tuple(sizes), overlap, draw(st.integers(0, len(sizes) - 1)))
