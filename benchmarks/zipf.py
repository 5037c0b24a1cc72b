"""Random texts in which words are as frequent as in natural texts.

Each text is made from an English text, which gives it its structure: the lengths of words and
sentences, the punctuation, short words, numbers, and joined runs such as `os.path`. All other words
are replaced by random words of the same length. The frequencies of the random words follow Zipf's
law: 1 / rank for common words (with Mandelbrot's offset), and steeper for rare words (Gerlach and
Altmann, Stochastic Model for the Vocabulary Growth in Natural Languages, 2013).

So every text differs, and common and rare words occur as often as in English. All these texts have
the chunk tree of the English text, because the spans are the same. No large collection of natural
texts is needed.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray

# Matches words that are not part of a joined run such as `os.path`. A run is one term, so random
# words in a run would make nearly every run a different term.
_WORD = re.compile(r"(?<![\w.\-/@+#])[A-Za-z]{4,12}(?![\w\-/@+#]|\.\w)")
_ANY_WORD = re.compile(r"[a-z]+")
# The number of words of each length. There are nine lengths, so there are 270,000 words in all.
_VOCABULARY = 30_000
# Mandelbrot's offset of the ranks.
_OFFSET = 2.7
# Each of the nine lengths has this many common words: a ninth of Gerlach and Altmann's 7,873.
_COMMON = 875
# Gerlach and Altmann's exponent for rare words is 1.77. The formula for all words contains the
# exponent 1, so rare words have an additional exponent of 0.77.
_STEEPNESS = 0.77
_QUESTION_WORDS = (4, 13)


class Template:
    """An English text whose words can be replaced."""

    def __init__(self, text: str) -> None:
        """Finds the words that will be replaced. `text` is ASCII."""
        self._text = np.frombuffer(text.encode("ascii"), np.uint8)
        starts: dict[int, list[int]] = {}
        for word in _WORD.finditer(text):
            starts.setdefault(len(word[0]), []).append(word.start())
        self._starts = {size: np.array(offsets) for size, offsets in starts.items()}

    def filled(self, random: np.random.Generator) -> str:
        """Returns a text of the same length with random words."""
        text = self._text.copy()
        for size, starts in self._starts.items():
            ranks = np.searchsorted(_cumulated(), random.random(len(starts)))
            text[starts[:, None] + np.arange(size)] = _vocabulary(size)[ranks]
        return text.tobytes().decode("ascii")


@cache
def _cumulated() -> NDArray[np.float64]:
    """Returns `float64[ranks]`: the share of all occurrences that words up to each rank have.

    The last share is 1.
    """
    ranks = np.arange(1, _VOCABULARY + 1)
    weights = 1 / (ranks + _OFFSET) / np.maximum(ranks / _COMMON, 1) ** _STEEPNESS
    shares: NDArray[np.float64] = np.cumsum(weights) / weights.sum()
    shares[-1] = 1.0
    return shares


@cache
def _vocabulary(size: int) -> NDArray[np.uint8]:
    """Returns the words of `size` letters, most frequent first: `uint8[ranks, size]`."""
    letters = np.random.default_rng(size).integers(ord("a"), ord("z") + 1, (_VOCABULARY, size))
    return letters.astype(np.uint8)


def questions(texts: Iterable[str], random: np.random.Generator) -> Iterator[str]:
    """Yields one question for each text: some of its consecutive words, including short ones."""
    for text in texts:
        words = _ANY_WORD.findall(text.lower())
        count = int(random.integers(*_QUESTION_WORDS))
        start = int(random.integers(max(1, len(words) - count)))
        yield " ".join(words[start : start + count])
