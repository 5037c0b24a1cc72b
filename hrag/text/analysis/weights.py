"""What each term of a query counts for, the same in every engine: idf times a factor of its kind.

One word of a language without spaces gives several terms, and a joined run repeats the words
that it is made of. Without the factors a code such as `E-4711` counts for little in a Chinese
question: of 293 documents the right one came first for 99 to 99.7 of 100, with them for 100.
"""

from collections.abc import Sequence
from math import log1p

from hrag.text.analysis.analyzer import QueryTerm


def term_weights(
    terms: Sequence[QueryTerm], frequencies: Sequence[int], leaf_count: int
) -> list[float]:
    """Returns the share of each term in the largest possible score; their sum is 1.

    `frequencies` says how many of a collection's `leaf_count` leaves have the term. The inverse
    document frequency is that of Lucene's BM25. Words that occur nowhere have their share: a
    query that is half unknown scores low. Pairs of characters and joined runs that occur
    nowhere have none, because they may not be words at all.
    """
    weights = [
        0.0 if not frequency and _is_made_up(term) else term.factor * _idf(frequency, leaf_count)
        for term, frequency in zip(terms, frequencies, strict=True)
    ]
    total = sum(weights) or 1.0
    return [weight / total for weight in weights]


def _is_made_up(term: QueryTerm) -> bool:
    return term.factor < 1 and len(term.text) > 1


def _idf(frequency: int, leaf_count: int) -> float:
    return log1p((leaf_count - frequency + 0.5) / (frequency + 0.5))
