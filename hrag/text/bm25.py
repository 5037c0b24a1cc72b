"""BM25: scores how well a leaf matches the terms of a query. Both engines use this formula.

It is BM25 of Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond"
(Foundations and Trends in Information Retrieval 3(4), 2009), with the inverse document frequency
of Lucene, which is never negative. The score of a leaf is the sum over the query's terms of

    weight * f / (f + norm)

* `f` is how often the leaf has the term, at most MAX_FREQUENCY.
* `norm = K1 * (1 - B + B * length / mean_length)`. A length is a count of terms, and the mean is
  taken over all leaves of the collection that are not deleted (`length_norm`).
* `weight` is the inverse document frequency of the term, times a factor for the term's kind,
  divided by the sum of these products over all terms of the query (`term_weights`).

The weights sum to at most 1, and `f / (f + norm)` is below 1, so each score lies in 0..1 for every
query. BM25 as published multiplies by `K1 + 1`; here the division by the sum removes this constant.

The share of a term in a score is `weight * f / (f + norm)`. Shares and scores are computed in
float32, in the order that `leaf_scores` shows, and shares are added in ascending order of term ids.
The compiled `hrag_fast.Postings` does the same for leaves that are in an inverted index. So a leaf
has the same score whether it is in an inverted index or not. The compiled code knows neither K1 nor
B: its arguments are the two fields of a `LengthNorm`.
"""

from collections.abc import Sequence
from math import log1p
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hrag.text.analysis import QueryTerm

K1 = 1.2
"""How much repetitions of a term add to a score: nothing with 0, more with a larger value.

Lucene uses the same value.
"""
B = 0.75
"""How much the length of a leaf influences its score: not at all with 0, fully with 1.

Lucene uses the same value.
"""


class LengthNorm(NamedTuple):
    """The length normalisation of BM25: a leaf with n terms has the norm `base + per_term * n`."""

    base: float
    per_term: float


def length_norm(leaf_count: int, term_count: int) -> LengthNorm:
    """Returns the length normalisation for a collection.

    The collection has `leaf_count` leaves, with `term_count` terms in total.
    """
    mean_length = term_count / max(leaf_count, 1)
    return LengthNorm(K1 * (1 - B), K1 * B / max(mean_length, 1.0))


def inverse_document_frequency(frequency: int, leaf_count: int) -> float:
    """Returns the inverse document frequency of a term, by Lucene's formula.

    The term occurs in `frequency` of `leaf_count` leaves.
    """
    return log1p((leaf_count - frequency + 0.5) / (frequency + 0.5))


def term_weights(
    terms: Sequence[QueryTerm], frequencies: Sequence[int], leaf_count: int
) -> list[float]:
    """Returns the share of each term in the highest possible score.

    `frequencies[i]` is the count of leaves, out of `leaf_count`, that contain term i. The shares
    sum to 1, or to 0 if all of them are 0.

    Words that occur in no leaf also have a share. So if half of the words of a query occur in no
    leaf, all its scores are low. Bigrams and joined runs that occur in no leaf have a share of 0,
    because they may not be words at all.

    Each term has a factor that depends on its kind (`QueryTerm.factor`). The factor is needed
    because one word of a language without spaces becomes several terms, and because the words of a
    joined run are terms, in addition to the run itself. Without the factors, a code such as
    `E-4711` would count little in a Chinese question. In a test with 293 documents, the right
    document came first for 99 to 99.7 % of the questions without the factors, and for 100 % with
    them.
    """
    weights = [
        0.0
        if not frequency and _is_bigram_or_run(term)
        else term.factor * inverse_document_frequency(frequency, leaf_count)
        for term, frequency in zip(terms, frequencies, strict=True)
    ]
    total = sum(weights) or 1.0
    return [weight / total for weight in weights]


def _is_bigram_or_run(term: QueryTerm) -> bool:
    """Returns True if the term is a bigram or a joined run, not a word or a single character.

    A joined run is a string such as `E-4711` or `c++`.
    """
    return term.factor < 1 and len(term.text) > 1


def term_shares(
    weights: NDArray[np.float32], frequencies: NDArray[np.float32], norms: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Returns the shares of m terms in the scores of leaves, `float32[m]`.

    Share j is what a term with the weight `weights[j]` adds to the score of a leaf with the norm
    `norms[j]`, in which it occurs `frequencies[j]` times. The product is computed before the
    quotient, as in the compiled code, so that Python and the compiled code get equal shares.
    """
    return weights * frequencies / (frequencies + norms)


def leaf_scores(
    weights: NDArray[np.float32],
    norm: LengthNorm,
    rows: NDArray[np.uint32],
    term_indices: NDArray[np.uint32],
    frequencies: NDArray[np.uint32],
    lengths: NDArray[np.uint32],
) -> NDArray[np.float32]:
    """Returns the scores of n leaves that are in no inverted index: `float32[n]`.

    Three of the arguments describe m matches, as `hrag_fast.forward_matches` returns them: match j
    means that the term with the index `term_indices[j]` occurs `frequencies[j]` times in the leaf
    with the index `rows[j]`. A leaf without a match has the score 0.

    * `weights`: `float32[q]`, the weight of each term, which `term_weights` returns.
    * `rows`, `term_indices`, `frequencies`: `uint32[m]`; the matches of each leaf are in the order
      of their terms' ids.
    * `lengths`: `uint32[n]`, the count of terms in each leaf.

    Raises IndexError for a row that is not below n, or a term that is not below q.
    """
    norms = np.float32(norm.base) + np.float32(norm.per_term) * lengths.astype(np.float32)
    shares = term_shares(weights[term_indices], frequencies.astype(np.float32), norms[rows])
    scores = np.zeros(len(lengths), np.float32)
    # `np.add.at` adds in the order of matches, as the compiled code does. A sum over an axis would
    # add pairwise, so the result could differ in the last bits.
    np.add.at(scores, rows, shares)
    return scores
