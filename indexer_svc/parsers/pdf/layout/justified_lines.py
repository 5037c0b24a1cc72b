"""Recognises lines of justified text by the spaces between their words.

A typesetter who justifies a line widens all its spaces by the same amount. In a narrow column they
become as wide as the gaps between the cells of a table, but they stay equal. The gaps in a row of a
table are not equal, because its cells have texts of different widths. So equal spaces are a sign of
prose, however wide they are.

TeX widens the spaces after punctuation more than others, and words in another font have spaces of
their own. These spaces may differ a little from the others of their line. They may not differ much,
because one of them may be the space between two columns of text.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from operator import attrgetter

from indexer_svc.parsers.pdf.layout.words import WORD_GAP, Word

# Two spaces are equal if they differ by at most this many font sizes. Kerning and rounding change
# them by a third of it.
_SAME_SPACE = 0.06
# Spaces beside another font or after punctuation differ by at most so many font sizes. TeX doubles
# spaces after sentences in a line whose spaces are wide.
_OTHER_SPACE = 0.35
_AFTER_SENTENCE = 2.0
_PUNCTUATION = frozenset(",;")
_SENTENCE_ENDS = frozenset(".:?!")
_size = attrgetter("size")


def even_space(words: Sequence[Word]) -> float:
    """Returns the width of the spaces between words if they are equal, or 0.

    At least three words are needed to say that. A row of numbers has no letters, and is no line.
    Nor is a row in a font whose characters all have the same width: a table of names has such rows.
    """
    if all(word.font.is_fixed for word in words):
        return 0.0
    size = max(map(_size, words))
    limit = _SAME_SPACE * size
    narrowest, widest = math.inf, 0.0
    spaces: list[float] = []
    others: list[tuple[float, bool]] = []
    for word, after in pairwise(words):
        space = after.left - word.right
        if space <= WORD_GAP * after.size:
            continue
        ends_sentence = word.text[-1] in _SENTENCE_ENDS
        if ends_sentence or word.text[-1] in _PUNCTUATION or word.font != after.font:
            others.append((space, ends_sentence))
        else:
            spaces.append(space)
            narrowest, widest = min(narrowest, space), max(widest, space)
            if widest - narrowest > limit:
                return 0.0
    if len(spaces) < 2:
        spaces += [space for space, _ in others]
        others = []
    if len(spaces) < 2 or not any(letter.isalpha() for word in words for letter in word.text):
        return 0.0
    narrowest = min(spaces)
    is_even = max(spaces) - narrowest <= limit and all(
        abs(space - narrowest) <= _OTHER_SPACE * size
        or (ends_sentence and narrowest <= space <= _AFTER_SENTENCE * narrowest)
        for space, ends_sentence in others
    )
    return narrowest if is_even else 0.0
