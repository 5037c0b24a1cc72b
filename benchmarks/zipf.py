"""Texts in which words are as frequent as in natural ones, without a text of that size at hand.

An English text lends its structure: lengths of words and sentences, punctuation, short words,
numbers and joined runs. Its other words are replaced by random ones of the same length, whose
frequencies follow Zipf's law: 1 / rank for common words (with Mandelbrot's offset), and steeper
for rare ones (Gerlach and Altmann, Stochastic Model for the Vocabulary Growth in Natural
Languages, 2013). So every text differs, common and rare words occur as often as in English, and
the tree of the English text is the tree of each, since the spans are the same.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray

# Words that are no part of a joined run such as `os.path`: there, random words would make
# nearly every run a term of its own.
_WORD = re.compile(r"(?<![\w.\-/@+#])[A-Za-z]{4,12}(?![\w\-/@+#]|\.\w)")
_ANY_WORD = re.compile(r"[a-z]+")
_VOCABULARY = 30_000  # Of each of nine lengths: 270,000 in all.
_OFFSET = 2.7  # Mandelbrot's.
_COMMON = 875  # A ninth of Gerlach and Altmann's 7,873 common words.
_STEEPNESS = 0.77  # Theirs for all other words is 1.77.
_QUESTION_WORDS = (4, 13)


class Template:
    """A text whose words are replaced."""

    def __init__(self, text: str) -> None:
        """`text` is ASCII."""
        self._text = np.frombuffer(text.encode("ascii"), np.uint8)
        starts: dict[int, list[int]] = {}
        for word in _WORD.finditer(text):
            starts.setdefault(len(word[0]), []).append(word.start())
        self._starts = {size: np.array(found) for size, found in starts.items()}

    def filled(self, random: np.random.Generator) -> str:
        """Returns a text of the same length."""
        text = self._text.copy()
        for size, starts in self._starts.items():
            ranks = np.searchsorted(_cumulated(), random.random(len(starts)))
            text[starts[:, None] + np.arange(size)] = _vocabulary(size)[ranks]
        return text.tobytes().decode("ascii")


@cache
def _cumulated() -> NDArray[np.float64]:
    """The share of all occurrences that the words up to each rank have: `float64[ranks]`."""
    ranks = np.arange(1, _VOCABULARY + 1)
    weights = 1 / (ranks + _OFFSET) / np.maximum(ranks / _COMMON, 1) ** _STEEPNESS
    shares: NDArray[np.float64] = np.cumsum(weights) / weights.sum()
    shares[-1] = 1.0
    return shares


@cache
def _vocabulary(size: int) -> NDArray[np.uint8]:
    """Words of one length by rank: `uint8[ranks, size]`."""
    letters = np.random.default_rng(size).integers(ord("a"), ord("z") + 1, (_VOCABULARY, size))
    return letters.astype(np.uint8)


def questions(texts: Iterable[str], random: np.random.Generator) -> Iterator[str]:
    """Yields one question for each text: some of its consecutive words, short ones included."""
    for text in texts:
        words = _ANY_WORD.findall(text.lower())
        count = int(random.integers(*_QUESTION_WORDS))
        start = int(random.integers(max(1, len(words) - count)))
        yield " ".join(words[start : start + count])
