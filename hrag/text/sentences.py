"""Finds the ends of sentences by rules, for English, Chinese and similarly punctuated languages.

Sentences partition a text: each sentence starts at the end of the previous sentence, and includes
the white space after it. The rules are conservative, because a missed boundary costs little, while
half a sentence is useless. Long text without a boundary, for example a table, is cut at the end of
a line or of a word.
"""

import re
from collections.abc import Sequence

from hrag_fast import MAX_SENTENCE_CHARS, sentence_ends

__all__ = ["MAX_SENTENCE_CHARS", "fitting", "has_word", "sentence_ends"]

_WORD = re.compile(r"\w")


def has_word(text: str) -> bool:
    """Returns True if a text has a letter or digit, not only punctuation and white space."""
    return _WORD.search(text) is not None


def fitting(sizes: Sequence[int], keep: int, budget: int) -> range | None:
    """Chooses consecutive sentences of a text whose sizes add up to at most `budget`.

    `sizes` has the size of each sentence. The result is a range of indexes of `sizes`, which
    includes the index `keep`. If the sentences from index 0 to `keep` are within the budget
    together, the range starts at 0, otherwise it starts at `keep`. It ends before the first
    sentence that would exceed the budget. Returns None if sentence `keep` alone exceeds the budget.
    """
    for first in (0, keep):
        last, left_budget = first, budget
        while last < len(sizes) and sizes[last] <= left_budget:
            left_budget -= sizes[last]
            last += 1
        if last > keep:
            return range(first, last)
    return None
