"""SENTENCE_WINDOW searches one collection in several rounds, and caches vectors by tenant."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hrag.engine import FindRequest, FindResult
from hrag.passages.outline import Outline
from hrag.passages.surrounded_leaf import SurroundedLeaf
from hrag.types import Chunk, SearchMode, Span
from hrag.values.deadline import NEVER
from tests.support.engines.rankings import (
    QUERY,
    STAGES,
    Embedder,
    FakeReader,
    FakeSnapshot,
    search_of,
)


class ThreeRounds(FakeSnapshot):
    """A snapshot that finds no passages. Its third search says that there are no more."""

    def find(self, request: FindRequest, form: Any) -> FindResult[Any]:
        self.requests.append(request)
        is_last = len(self.requests) == 3
        return FindResult((), 0, 0, exact=True, exhausted=is_last, stages=STAGES)


def test_all_rounds_search_the_collection_that_the_alias_named_in_the_first_round() -> None:
    snapshot = ThreeRounds([], name="docs-1")
    reader = FakeReader(snapshot)
    query = replace(QUERY, query=[1, 0, 0, 0], collection="docs", mode=SearchMode.SENTENCE_WINDOW)
    result = search_of(snapshot, reader=reader)(query, NEVER)
    assert (result.exhausted, result.passages) == (True, ())
    # There are three rounds. Before the first query of a collection, one more snapshot is opened
    # to read the collection's settings.
    assert [name for _, name in reader.opened] == ["docs", "docs", "docs-1", "docs-1"]


class SingleLeaf(FakeSnapshot):
    """A snapshot whose only leaf is one sentence."""

    def leaves(self, names: Sequence[str], chars: int) -> tuple[SurroundedLeaf, ...]:
        span = Span(0, 10, 0, 10)
        chunk = Chunk("d#0.0", "d", 0, 0, "Dogs bark.", 3, span, (), 0, 0, "", "", {})
        return (SurroundedLeaf(chunk, 0.5, "", "", Outline.of("d", "", "", {}, (), ())),)


def test_a_sentence_is_embedded_again_for_another_tenant() -> None:
    """If tenants shared cached vectors, a fast search would reveal another tenant's sentence."""
    snapshot = SingleLeaf(["d"])
    embedder = Embedder(snapshot)
    search = search_of(snapshot, embedder=embedder)
    for tenant_id in ("t", "u", "t", "u"):
        query = replace(QUERY, tenant_id=tenant_id, mode=SearchMode.SENTENCE_WINDOW)
        assert search(query, NEVER).passages
    assert embedder.texts == [QUERY.query, "Dogs bark."] * 2
