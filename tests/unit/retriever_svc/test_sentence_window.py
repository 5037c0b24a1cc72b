"""SENTENCE_WINDOW searches in rounds, all in one collection."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from hrag.deadline import NEVER
from hrag.engine import FindRequest, Found
from hrag.types import SearchMode
from retriever_svc.prepared_query import EmbeddedQuery, prepared_query
from retriever_svc.sentence_window import SentenceWindowSearch
from retriever_svc.work_limit import EmbeddingWork
from tests.rankings import DIMENSION, QUERY


def test_rounds_stay_in_the_collection_that_an_alias_named_at_first() -> None:
    opened: list[str] = []

    def find(_request: FindRequest) -> Found[Any]:
        """Too little, until the third round says that there is no more."""
        return Found((), 0, 0, exact=True, exhausted=len(opened) == 3, stages=())

    @contextmanager
    def open_snapshot(name: str) -> Iterator[Any]:
        opened.append(name)
        yield SimpleNamespace(name="docs-1", sequence=7, find=find)

    query = replace(QUERY, collection="docs", mode=SearchMode.SENTENCE_WINDOW)
    vector = np.eye(1, DIMENSION, dtype=np.float32)[0]
    request = FindRequest(vector, SearchMode.SENTENCE_WINDOW, level=0, limit=5, candidates=9)
    nobody: Any = None
    search = SentenceWindowSearch(nobody, lambda: 0.0)
    outcome, passages = search(
        EmbeddedQuery(prepared_query(query), vector),
        lambda _snapshot, _query: (request, ""),
        open_snapshot,
        NEVER,
        EmbeddingWork(),
    )
    assert (outcome.exhausted, passages) == (True, ())
    assert opened == ["docs", "docs-1", "docs-1"]
