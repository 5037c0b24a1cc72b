"""Test of how many LMDB transactions a search begins after its collection was loaded."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from hrag.filters import Exists
from hrag.models.embedding.cache import CachedQueries
from hrag.models.embedding.hashing import HashEmbedder
from hrag.types import CollectionSettings, SearchMode, SearchQuery
from hrag.values.deadline import Deadline
from retriever_svc.search_pipeline import Search
from tests.conftest import Engine
from tests.support.documents.fakes import DIMENSION, SMALL_TREE, prepared, sentences

SETTINGS = CollectionSettings(SMALL_TREE, f"hash/{DIMENSION}", DIMENSION)


class CountingEnvironment:
    """An LMDB environment that counts the transactions of the thread that created this object."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self._thread = threading.current_thread()
        self.begun = 0

    def begin(self, **options: Any) -> Any:
        self.begun += threading.current_thread() is self._thread
        return self._env.begin(**options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)


@pytest.fixture
def counting(engine: Engine) -> Iterator[CountingEnvironment]:
    """Counts the transactions of a store whose only collection is loaded."""
    engine.writer.create_collection("t", "c", SETTINGS)
    for number in range(3):
        engine.writer.put(engine.open(), prepared(f"d{number}", sentences(40, number), SETTINGS))
    with engine.reader.snapshot("t", "c"):
        pass
    env = engine.store.env
    engine.store.env = CountingEnvironment(env)
    yield engine.store.env
    engine.store.env = env


@pytest.mark.parametrize(
    ("options", "transactions"),
    [
        ({}, 1),
        ({"query": [1.0] * DIMENSION}, 1),
        ({"limit": 100, "candidates": 1}, 1),
        ({"filter": Exists("title"), "mode": SearchMode.AUTO_MERGE}, 1),
        ({"mode": SearchMode.SENTENCE_WINDOW}, 1),
        ({"min_sequence": 1}, 2),
    ],
)
def test_a_search_begins_one_transaction_and_another_if_it_requires_a_sequence(
    engine, counting, options, transactions
):
    embedder = HashEmbedder(DIMENSION)
    search = Search(engine.reader, embedder, CachedQueries(embedder, 100), 1)
    search(SearchQuery("t", "the collection's first", collection="c"), Deadline.after(60))
    counting.begun = 0
    query = {"query": "a question", "limit": 2, **options}
    assert search(SearchQuery("t", collection="c", **query), Deadline.after(60)).passages
    assert counting.begun == transactions
