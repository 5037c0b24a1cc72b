"""BM25 computes the weights of a query's terms and the scores of leaves."""

import math

import numpy as np
import pytest

from hrag.text.analysis import analyzer
from hrag.text.bm25 import (
    K1,
    B,
    LengthNorm,
    inverse_document_frequency,
    leaf_scores,
    length_norm,
    term_shares,
    term_weights,
)
from hrag_fast import MAX_FREQUENCY, Postings, postings_of

ENGLISH = analyzer("english/1")


def weights(text: str, frequency: int = 3, leaves: int = 100, **known: int) -> dict[str, float]:
    """Returns the weight of each term of a query, by the text of the term.

    `frequency` is the count of leaves that contain a term; `known` overrides it for some terms.
    """
    terms = ENGLISH.query_terms(text)
    frequencies = [known.get(term.text, frequency) for term in terms]
    shares = term_weights(terms, frequencies, leaves)
    return dict(zip((term.text for term in terms), shares, strict=True))


def test_rare_words_have_larger_weights_and_the_sum_of_weights_is_one():
    shares = weights("valve pressure", valv=1, pressur=50)
    assert math.isclose(sum(shares.values()), 1)
    idf = {
        name: math.log1p((100 - n + 0.5) / (n + 0.5)) for name, n in (("valv", 1), ("pressur", 50))
    }
    assert shares == pytest.approx({name: value / sum(idf.values()) for name, value in idf.items()})


def test_words_that_occur_nowhere_have_a_weight():
    assert weights("valve zyx", zyx=0)["zyx"] > 0.5


def test_terms_with_punctuation_weigh_half_and_chinese_terms_weigh_a_quarter():
    joined = weights("E-4711")
    assert joined["e-4711"] == pytest.approx(joined["4711"] / 2)
    chinese = weights("错误E4711")
    assert chinese["错"] == chinese["错误"] == pytest.approx(chinese["e4711"] / 4)


def test_bigrams_and_terms_with_punctuation_that_occur_nowhere_have_no_weight():
    assert weights("a-b-c", **{"a-b-c": 0})["a-b-c"] == 0
    shares = weights("错误", 错误=0, 错=0)
    assert shares["错误"] == 0
    assert shares["错"] > 0
    assert shares["误"] > 0


def test_a_query_without_terms_of_the_collection_has_no_weights():
    assert term_weights((), (), 10) == []
    assert term_weights(ENGLISH.query_terms("错误")[1:2], [0], 10) == [0.0]


def test_the_inverse_document_frequency_is_never_negative():
    """In the published formula, a term that occurs in most leaves would lower the score."""
    assert inverse_document_frequency(100, 100) == pytest.approx(math.log(1 + 0.5 / 100.5))
    assert inverse_document_frequency(0, 0) == pytest.approx(math.log(2))


def test_the_norm_of_a_leaf_of_mean_length_is_k1():
    norm = length_norm(leaf_count=4, term_count=480)
    assert norm.base + norm.per_term * 120 == pytest.approx(K1)
    assert norm.base == pytest.approx(K1 * (1 - B))


@pytest.mark.parametrize(("leaf_count", "term_count"), [(0, 0), (3, 0), (10, 4)])
def test_a_mean_length_below_one_counts_as_one(leaf_count, term_count):
    """Without this rule, the norm of an empty collection would be divided by zero."""
    assert length_norm(leaf_count, term_count) == LengthNorm(K1 * (1 - B), K1 * B)


def test_a_score_is_the_float32_sum_of_the_shares_of_its_terms():
    """Each step is rounded to float32, so that every computer and engine computes the same bits."""
    weight, frequency = np.array([0.7, 0.3], np.float32), np.array([3, 1], np.uint32)
    norm = length_norm(leaf_count=7, term_count=1000)
    leaf_norm = np.float32(norm.base) + np.float32(norm.per_term) * np.float32(130)
    expected = np.float32(0)
    for w, f in zip(weight, frequency.astype(np.float32), strict=True):
        expected += (w * f) / (f + leaf_norm)
    zeros, lengths = np.zeros(2, np.uint32), np.array([130, 9], np.uint32)
    scores = leaf_scores(weight, norm, zeros, np.arange(2, dtype=np.uint32), frequency, lengths)
    assert scores.dtype == np.float32
    assert scores.tolist() == [expected, 0]
    shares = term_shares(weight, frequency.astype(np.float32), np.full(2, leaf_norm))
    assert shares.sum() == pytest.approx(expected)


def test_no_score_is_above_one():
    often = np.array([MAX_FREQUENCY], np.uint32)
    zero, one = np.zeros(1, np.uint32), np.ones(1, np.float32)
    (score,) = leaf_scores(one, length_norm(1, 1), zero, zero, often, np.ones(1, np.uint32))
    assert 0.99 < score < 1


def test_rows_and_terms_that_do_not_exist_are_refused():
    one, index = np.ones(1, np.float32), np.ones(1, np.uint32)
    norm, zero = LengthNorm(0.3, 0.01), np.zeros(1, np.uint32)
    with pytest.raises(IndexError):
        leaf_scores(one, norm, index, zero, index, index)
    with pytest.raises(IndexError):
        leaf_scores(one, norm, zero, index, index, index)


def test_the_compiled_kernel_computes_the_same_bits():
    """Compares the scores from an inverted index with the scores from arrays.

    There are 10,000 leaves. Each leaf contains 0 to 3 of the three terms of the query.
    """
    random = np.random.default_rng(3)
    count, ids = 10_000, np.array([5, 77, 1 << 50], np.uint64)
    has = random.random((count, 3)) < 0.5
    rows, term_indices = (array.astype(np.uint32) for array in np.nonzero(has))
    frequencies = random.integers(1, 256, len(rows), np.uint32)
    lengths = random.integers(1, 1000, count, np.uint32)
    norm = length_norm(count, int(lengths.sum()))
    shares = np.array(random.dirichlet([1, 1, 1]), np.float32)
    starts = np.concatenate([[0], np.cumsum(has.sum(axis=1))])
    entries = ids[term_indices] << np.uint64(8) | frequencies
    postings = Postings(postings_of(starts, entries, count))
    expected = leaf_scores(shares, norm, rows, term_indices, frequencies, lengths)
    all_rows = np.arange(count, dtype=np.uint32)
    best_rows, best_scores, scores = postings.best_and_scores(
        ids, shares, *norm, lengths, None, count, all_rows
    )
    assert scores.tobytes() == expected.tobytes()
    assert best_scores.tobytes() == expected[best_rows].tobytes()
    assert len(best_rows) == np.count_nonzero(expected)
