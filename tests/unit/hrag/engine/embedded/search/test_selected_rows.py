"""Tests of the cache of filter results, for whole filters and for terms of many documents."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hrag.engine.embedded.search.document_reader import CitationCache
from hrag.engine.embedded.search.selected_rows import FilterResultCache, Key
from hrag.engine.embedded.search.snapshot import SnapshotCaches
from hrag.filters import AllOf, Match
from tests.support.documents.fakes import (
    collection_settings,
    find,
    prepared,
    query_vector,
    sentences,
)


class View:
    """A fake view. The cache reads only the id of its collection."""

    collection = 1


class CountingEvaluation:
    """Returns the numbers from 0 to `count - 1` as a filter result, and counts its calls."""

    def __init__(self, count: int) -> None:
        self.calls = 0
        self._count = count

    def __call__(self) -> Any:
        self.calls += 1
        return np.arange(self._count, dtype=np.uint64)


KEY = ("term", b"lang")


def test_a_result_is_cached_for_its_view_and_its_key() -> None:
    cache, view, evaluate = FilterResultCache(), View(), CountingEvaluation(10)
    for _ in range(3):
        assert cache.get(view, KEY, evaluate).tolist() == list(range(10))
    assert evaluate.calls == 1
    cache.get(view, ("rows", KEY[1]), evaluate)
    cache.get(view, ("term", b"other"), evaluate)
    assert evaluate.calls == 3
    cache.get(View(), KEY, evaluate)
    assert evaluate.calls == 4


@pytest.mark.parametrize(("count", "calls"), [(10, 1), (1000, 1), (1001, 2)])
def test_a_result_that_is_larger_than_the_cache_is_not_cached(count: int, calls: int) -> None:
    cache, view, evaluate = (
        FilterResultCache(8 * 1000 + len(KEY[1])),
        View(),
        CountingEvaluation(count),
    )
    for _ in range(2):
        assert len(cache.get(view, KEY, evaluate)) == count
    assert evaluate.calls == calls


class CountingCache(FilterResultCache):
    """A cache that appends a term's key to `reads` whenever the documents of the term are read.

    It keeps the documents of a term only if there are at least five.
    """

    def __init__(self) -> None:
        super().__init__(min_term_bytes=8 * 5)
        self.reads: list[Key] = []

    def get(self, view: Any, key: Key, compute: Callable[[], Any]) -> Any:
        def note_and_compute() -> Any:
            if key[0] == "term":
                self.reads.append(key)
            return compute()

        return super().get(view, key, note_and_compute)


def test_the_documents_of_a_common_term_are_read_once_for_all_filters(engine):
    cache = CountingCache()
    engine.restart_reader(caches=SnapshotCaches(CitationCache(), cache))
    engine.writer.create_collection("t", "c", collection_settings())
    for number in range(6):
        put(engine, number, {"lang": "en", "number": number})
    assert found_ids(engine, 1, 2) == {"d1", "d2"}
    # Each `number` has one document, so these terms are read together and not cached.
    assert len(cache.reads) == 1
    assert found_ids(engine, 3) == {"d3"}
    assert len(cache.reads) == 1
    engine.writer.delete(engine.open(), "d2")
    put(engine, 4, {"lang": "de", "number": 4})
    put(engine, 7, {"lang": "en", "number": 4})
    assert found_ids(engine, 2, 4) == {"d7"}


def put(engine, number, metadata):
    document = prepared(f"d{number}", sentences(3, number), metadata=metadata)
    engine.writer.put(engine.open(), document)


def found_ids(engine, *numbers):
    """Returns the ids of the documents in English whose `number` is one of `numbers`."""
    condition = AllOf((Match("metadata.lang", ("en",)), Match("metadata.number", numbers)))
    with engine.reader.snapshot("t", "c") as snapshot:
        result = find(snapshot, query_vector(1), 100, filter=condition)
    return {passage.chunk.document_id for passage in result.passages}
