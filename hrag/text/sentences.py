"""Sentence boundaries by rules, for English, Chinese and similarly punctuated languages.

Sentences partition a text: each starts at the end of the previous one and includes the white
space that follows it. The rules are conservative: a missed boundary costs little, while half a
sentence is useless. Long text without a boundary, such as a table, is cut at a line or a word.
"""

import re
from collections.abc import Sequence

from hrag_fast import MAX_SENTENCE_CHARS, sentence_ends

__all__ = ["MAX_SENTENCE_CHARS", "fitting", "has_word", "sentence_ends"]

_WORD = re.compile(r"\w")


def has_word(text: str) -> bool:
    """True if a text has a letter or digit, not only punctuation and white space."""
    return _WORD.search(text) is not None


def fitting(sizes: Sequence[int], keep: int, budget: int) -> range | None:
    """Returns a range of sentences with a total size of at most `budget` that contains `keep`.

    It starts at the first sentence if `keep` then fits, else at `keep`. Returns None if `keep`
    alone exceeds the budget.
    """
    for first in (0, keep):
        last, left = first, budget
        while last < len(sizes) and sizes[last] <= left:
            left -= sizes[last]
            last += 1
        if last > keep:
            return range(first, last)
    return None
