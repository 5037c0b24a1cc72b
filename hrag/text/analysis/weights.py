"""The weights of a query's terms, equal in every engine: idf times a factor for the term's kind.

One word of a language without spaces gives several terms, and a joined run repeats the words in it.
Without the factors, a code such as `E-4711` would count little in a Chinese question. In a test
with 293 documents, the right document came first for 99 to 99.7 % of the questions without the
factors, and for 100 % with them.
"""

from collections.abc import Sequence
from math import log1p

from hrag.text.analysis.analyzer import QueryTerm


def term_weights(
    terms: Sequence[QueryTerm], frequencies: Sequence[int], leaf_count: int
) -> list[float]:
    """Returns the share of each term in the highest possible score.

    `frequencies` are the numbers of leaves, out of `leaf_count`, that contain each term. The
    inverse document frequency is the one of Lucene's BM25. The shares sum to 1, or to 0 if all of
    them are 0.

    Words that occur in no leaf have a share, so a query of which half is unknown gets low scores.
    Bigrams and joined runs that occur in no leaf have a share of 0, because they may not be words
    at all.
    """
    weights = [
        0.0
        if not frequency and _is_bigram_or_run(term)
        else term.factor * _idf(frequency, leaf_count)
        for term, frequency in zip(terms, frequencies, strict=True)
    ]
    total = sum(weights) or 1.0
    return [weight / total for weight in weights]


def _is_bigram_or_run(term: QueryTerm) -> bool:
    """Returns True if the term is a bigram or a joined run, not a word or a single character."""
    return term.factor < 1 and len(term.text) > 1


def _idf(frequency: int, leaf_count: int) -> float:
    """Returns the inverse document frequency of a term, as in Lucene's BM25."""
    return log1p((leaf_count - frequency + 0.5) / (frequency + 0.5))
