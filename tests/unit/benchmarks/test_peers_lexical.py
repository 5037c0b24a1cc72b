"""The comparison of lexical search with other engines makes a corpus, scores and a table."""

import numpy as np
import pytest

from benchmarks.peers.lexical.comparison import Figures, common, difference, table
from benchmarks.peers.lexical.hrag_itself import Hrag, make_corpus
from benchmarks.peers.lexical.terms import Leaves, load_queries
from benchmarks.report import Measured


@pytest.mark.slow
def test_hrag_scores_leaves_by_bm25_of_the_terms_that_other_engines_get(tmp_path):
    """The test computes the expected BM25 scores in float64 from the terms of the leaves."""
    leaves = make_corpus(tmp_path, 300)
    assert [len(terms) for terms in Leaves.load(tmp_path)] == [len(terms) for terms in leaves]
    lengths = np.array([len(terms) for terms in leaves])
    rows = np.repeat(np.arange(len(leaves)), np.diff(leaves.starts))
    engine = Hrag(tmp_path)
    assert engine.index(tmp_path) > 0
    for query in load_queries(tmp_path)[:20]:
        expected = np.zeros(len(leaves))
        for term in query.terms:
            is_term = leaves.numbers == term
            term_rows, frequencies = rows[is_term], leaves.frequencies[is_term]
            idf = np.log1p((len(leaves) - len(term_rows) + 0.5) / (len(term_rows) + 0.5))
            norm = 1.2 * (0.25 + 0.75 * lengths[term_rows] / lengths.mean())
            expected[term_rows] += idf * frequencies / (frequencies + norm)
        ranked = engine.ranked_leaves(query)
        assert ranked
        for leaf, score in ranked:
            assert score == pytest.approx(expected[leaf], abs=1e-4)
    engine.close()


def test_scores_are_compared_by_leaf_and_by_rank():
    ours = [(1, 3.0), (2, 2.0), (3, 1.0)]
    assert difference(ours, [(1, 3.0), (4, 2.25)]) == 1.0
    assert difference(ours, [(3, 3.0), (2, 2.0), (1, 1.0)]) == 2.0
    assert common(ours, [(2, 3.0), (1, 2.25)]) == pytest.approx(2 / 3)
    assert (difference([], []), common([], ours)) == (0, 1)


def test_the_table_has_the_verdicts():
    figures = {
        name: Figures(
            2_000_000,
            Measured(0.5, 0.1),
            Measured(2, 0.1),
            Measured(ratio, 0.01),
            difference_of_scores,
            1,
        )
        for name, ratio, difference_of_scores in (
            ("hrag", 1, 0),
            ("tantivy", 1.2, 0.5),
            ("bm25s", 0.3, 1e-5),
        )
    }
    *_, tantivy, bm25s = text = list(table(figures))
    assert "| tantivy | 2 MB | 0.500 ms | 2.000 ms | 1.20 ± 0.01 x | 100.00% | 5.0e-01 |" in text
    assert tantivy.endswith("MISSED")
    assert bm25s.endswith(": met")
