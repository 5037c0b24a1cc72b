"""SENTENCE_WINDOW searches in rounds, all in one collection, and embeds for one tenant."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from hrag.engine import FindRequest, Found
from hrag.passages.sentence_context import Sentence, SentenceContext
from hrag.types import Chunk, SearchMode, Span
from hrag.values.deadline import NEVER
from retriever_svc.prepared_query import EmbeddedQuery, prepared_query
from retriever_svc.sentence_window import SentenceWindowSearch
from retriever_svc.work_limit import EmbeddingWork
from tests.support.engines.rankings import DIMENSION, QUERY, Embedder, FakeSnapshot, search_of


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


class Single(FakeSnapshot):
    """Its only leaf is one sentence."""

    def contexts(self, names: Sequence[str], request: FindRequest) -> tuple[SentenceContext, ...]:
        span = Span(0, 10, 0, 10)
        chunk = Chunk("d#0.0", "d", 0, 0, "", 3, span, (), 0, 0, "", "", {})
        return (SentenceContext(chunk, 0.5, (Sentence("Dogs bark.", span, 0, 0),), range(1)),)


def test_sentences_of_another_tenant_are_embedded_again() -> None:
    """Else the time of a search would tell that another tenant has the same sentence."""
    snapshot = Single(["d"])
    embedder = Embedder(snapshot)
    search = search_of(snapshot, embedder=embedder)
    for tenant_id in ("t", "u", "t", "u"):
        query = replace(QUERY, tenant_id=tenant_id, mode=SearchMode.SENTENCE_WINDOW)
        assert search(query, NEVER).passages
    assert embedder.texts == [QUERY.query, "Dogs bark."] * 2
