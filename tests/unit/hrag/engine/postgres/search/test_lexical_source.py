"""A lexical query computes exact BM25 scores in slices, in bounded memory, until its deadline."""

import random
import tracemalloc
from typing import Any

import numpy as np
import pytest

from hrag.engine.common.labels import labels_of
from hrag.engine.common.records import CollectionRecord
from hrag.engine.postgres.indexes.postings import PostingArrays
from hrag.engine.postgres.indexes.term_vectors import packed
from hrag.engine.postgres.search.eligible_leaves import EligibleLeaves
from hrag.engine.postgres.search.sources.lexical_source import LexicalQuery, Row
from hrag.engine.postgres.store.opened_collection import OpenedCollection
from hrag.errors import Cancelled, DeadlineExceeded
from hrag.text.analysis import LeafTerms, QueryTerm
from hrag.values.deadline import NEVER, Deadline
from tests.support.documents.fakes import collection_settings

# Each document of these tests has this many leaves.
LEAVES = 4


def terms(count: int) -> list[QueryTerm]:
    return [QueryTerm(7 * number + 1, f"term {number}") for number in range(count)]


def collection(documents: int) -> OpenedCollection:
    record = CollectionRecord("t", "c", collection_settings())
    leaves = documents * LEAVES
    return OpenedCollection("t", 1, record, None, leaves, 30 * leaves, 1)


def postings(terms: list[QueryTerm], first: int, documents: int, share: float) -> list[Row]:
    """Returns the rows of a part of the lexical index.

    The part has the documents from ordinal `first` on. Each term occurs in about the fraction
    `share` of their leaves.
    """
    draw = np.random.default_rng(first)
    labels = np.concatenate([labels_of(first + n, LEAVES) for n in range(documents)])
    lengths = draw.integers(5, 60, len(labels)).astype(np.uint32)
    rows: list[Any] = []
    for term in terms:
        chosen = draw.random(len(labels)) < share
        count = int(chosen.sum())
        frequencies = draw.integers(1, 5, count).astype(np.uint32)
        term_postings = PostingArrays(
            np.array([term.id], np.uint64),
            np.array([0, count]),
            labels[chosen],
            frequencies,
            lengths[chosen],
        )
        rows += [(0, term.id, first, row, None) for row in term_postings.packed(first)]
    return rows


def term_vector_row(terms: list[QueryTerm], ordinal: int) -> Any:
    """Returns the row with the term vector of a document; each of its leaves has every term."""
    entries = np.array([term.id << 8 | 2 for term in terms], np.uint64)
    starts = np.arange(LEAVES + 1) * len(terms)
    leaf_terms = LeafTerms(starts, np.tile(entries, LEAVES), np.full(LEAVES, 30, np.uint32))
    return 1, ordinal, LEAVES, packed(leaf_terms), None


def query(
    terms: list[QueryTerm], rows: list[Row], deadline: Deadline = NEVER, **sizes: int
) -> LexicalQuery:
    """Returns a query whose rows are in random order, as from a statement without ORDER BY."""
    shuffled = random.Random(1).sample(rows, len(rows))
    return LexicalQuery(collection(400), terms, shuffled, deadline, **sizes)


def best_leaves(query: LexicalQuery) -> tuple[Any, Any]:
    """Returns the labels and scores of all leaves that contain a term of the query."""
    labels, scores, is_complete = query.best(EligibleLeaves.all_of(collection(400)), 10_000)
    assert is_complete
    return labels, scores


def exact_results(query: LexicalQuery) -> tuple[bytes, ...]:
    """Returns the weights of the terms, and the labels and scores of the leaves, as bytes."""
    labels, scores = best_leaves(query)
    return query.weights.tobytes(), labels.tobytes(), scores.tobytes()


@pytest.mark.parametrize("deleted", [(), (2, 3, 150, 299, 305)])
def test_scores_computed_in_slices_equal_scores_computed_at_once_to_the_bit(deleted):
    query_terms = terms(12)
    rows = postings(query_terms, 1, 200, 0.3) + postings(query_terms, 201, 150, 0.3)
    rows += [term_vector_row(query_terms, ordinal) for ordinal in (352, 351)]
    rows += [(2, ordinal, 0, b"", 0.0) for ordinal in deleted]
    at_once = query(query_terms, rows)
    labels, _ = best_leaves(at_once)
    assert np.all(np.diff(labels.astype(np.int64)) > 0)
    in_slices = query(query_terms, rows, slice_postings=500)
    assert exact_results(in_slices) == exact_results(at_once)
    unpacked_twice = query(query_terms, rows, slice_postings=500, max_cached_postings=0)
    assert exact_results(unpacked_twice) == exact_results(at_once)


def test_the_memory_of_scores_does_not_grow_with_all_matches():
    """All matches at once would take 20 bytes per match, and several times as much while sorted."""
    query_terms = terms(100)
    rows = postings(query_terms, 1, 8000, 0.6)
    matches = int(100 * 8000 * LEAVES * 0.6)
    tracemalloc.start()
    try:
        query(query_terms, rows)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 * matches


def test_a_search_for_many_words_ends_at_its_deadline_or_when_its_caller_leaves():
    query_terms = terms(12)
    rows = postings(query_terms, 1, 200, 0.3)
    with pytest.raises(DeadlineExceeded):
        query(query_terms, rows, Deadline.after(0))
    checks: list[bool] = []

    def is_waiting() -> bool:
        """Returns False from the third call on, as if the caller had left."""
        checks.append(True)
        return len(checks) < 3

    with pytest.raises(Cancelled):
        query(query_terms, rows, Deadline.after(60, is_waiting), slice_postings=500)
    assert len(checks) == 3
