"""Scores of words: of some documents at a time, the same as at once, and no longer than wanted."""

import random
import tracemalloc
from typing import Any

import numpy as np
import pytest

from hrag.engine.common.labels import labels_of
from hrag.engine.common.records import CollectionRecord
from hrag.engine.postgres.indexes.postings import Postings
from hrag.engine.postgres.indexes.term_vectors import packed
from hrag.engine.postgres.search.sources import lexical_source
from hrag.engine.postgres.search.sources.lexical_source import LexicalQuery, Row
from hrag.engine.postgres.store.opened_collection import OpenedCollection
from hrag.errors import Cancelled, DeadlineExceeded
from hrag.text.analysis import LeafTerms, QueryTerm
from hrag.values.deadline import NEVER, Deadline
from tests.support.documents.fakes import collection_settings

LEAVES = 4  # Of each document.


def terms(count: int) -> list[QueryTerm]:
    return [QueryTerm(7 * number + 1, f"term {number}") for number in range(count)]


def collection(documents: int) -> OpenedCollection:
    record = CollectionRecord("t", "c", collection_settings())
    leaves = documents * LEAVES
    return OpenedCollection("t", 1, record, None, leaves, 30 * leaves, 1, None)


def postings(asked: list[QueryTerm], first: int, documents: int, share: float) -> list[Row]:
    """Rows of one part: of each term in a share of the leaves of all its documents."""
    draw = np.random.default_rng(first)
    labels = np.concatenate([labels_of(first + n, LEAVES) for n in range(documents)])
    lengths = draw.integers(5, 60, len(labels)).astype(np.uint32)
    rows: list[Any] = []
    for term in asked:
        chosen = draw.random(len(labels)) < share
        count = int(chosen.sum())
        frequencies = draw.integers(1, 5, count).astype(np.uint32)
        own = Postings(
            np.array([term.id], np.uint64),
            np.array([0, count]),
            labels[chosen],
            frequencies,
            lengths[chosen],
        )
        rows += [(0, term.id, first, row, None) for row in own.packed(first)]
    return rows


def vector(asked: list[QueryTerm], ordinal: int) -> Any:
    """The term vector of one document that has every term."""
    entries = np.array([term.id << 8 | 2 for term in asked], np.uint64)
    starts = np.arange(LEAVES + 1) * len(asked)
    found = LeafTerms(starts, np.tile(entries, LEAVES), np.full(LEAVES, 30, np.uint32))
    return 1, ordinal, LEAVES, packed(found), None


def query(asked: list[QueryTerm], rows: list[Row], deadline: Deadline = NEVER) -> LexicalQuery:
    shuffled = random.Random(1).sample(rows, len(rows))
    return LexicalQuery(collection(400), asked, shuffled, deadline)


def everything(found: LexicalQuery) -> Any:
    return found.weights.tobytes(), found._labels.tobytes(), found._scores.tobytes()


@pytest.mark.parametrize("deleted", [(), (2, 3, 150, 299, 305)])
def test_scores_in_slices_equal_those_at_once_to_the_bit(monkeypatch, deleted):
    asked = terms(12)
    rows = postings(asked, 1, 200, 0.3) + postings(asked, 201, 150, 0.3)
    rows += [vector(asked, ordinal) for ordinal in (352, 351)]
    rows += [(2, ordinal, 0, b"", 0.0) for ordinal in deleted]
    at_once = query(asked, rows)
    assert np.all(np.diff(at_once._labels.astype(np.int64)) > 0)
    monkeypatch.setattr(lexical_source, "_SLICE_POSTINGS", 500)
    assert everything(query(asked, rows)) == everything(at_once)
    monkeypatch.setattr(lexical_source, "_MAX_CACHED_POSTINGS", 0)
    assert everything(query(asked, rows)) == everything(at_once)


def test_the_memory_of_scores_does_not_grow_with_all_matches():
    """Some 20 bytes a match, if all were unpacked, and several times that while they are sorted."""
    asked = terms(100)
    rows = postings(asked, 1, 8000, 0.6)
    matches = int(100 * 8000 * LEAVES * 0.6)
    tracemalloc.start()
    try:
        query(asked, rows)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 * matches


def test_a_search_for_many_words_ends_with_its_caller(monkeypatch):
    asked = terms(12)
    rows = postings(asked, 1, 200, 0.3)
    with pytest.raises(DeadlineExceeded):
        query(asked, rows, Deadline.after(0))
    monkeypatch.setattr(lexical_source, "_SLICE_POSTINGS", 500)
    looks: list[bool] = []

    def leaves_at_the_third_look() -> bool:
        looks.append(True)
        return len(looks) < 3

    with pytest.raises(Cancelled):
        query(asked, rows, Deadline.after(60, leaves_at_the_third_look))
    assert len(looks) == 3
