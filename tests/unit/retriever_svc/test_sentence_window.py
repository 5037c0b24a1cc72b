"""SENTENCE_WINDOW searches in rounds, all in one collection, and embeds for one tenant."""

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


class Growing(FakeSnapshot):
    """Finds too little, until the third search says that there is no more."""

    def find(self, request: FindRequest, form: Any) -> FindResult[Any]:
        self.requests.append(request)
        is_last = len(self.requests) == 3
        return FindResult((), 0, 0, exact=True, exhausted=is_last, stages=STAGES)


def test_rounds_stay_in_the_collection_that_an_alias_named_at_first() -> None:
    snapshot = Growing([], name="docs-1")
    reader = FakeReader(snapshot)
    query = replace(QUERY, query=[1, 0, 0, 0], collection="docs", mode=SearchMode.SENTENCE_WINDOW)
    result = search_of(snapshot, reader=reader)(query, NEVER)
    assert (result.exhausted, result.passages) == (True, ())
    # The first query of a collection opens one snapshot more, to read its settings.
    assert [name for _, name in reader.opened] == ["docs", "docs", "docs-1", "docs-1"]


class Single(FakeSnapshot):
    """Its only leaf is one sentence."""

    def leaves(self, names: Sequence[str], chars: int) -> tuple[SurroundedLeaf, ...]:
        span = Span(0, 10, 0, 10)
        chunk = Chunk("d#0.0", "d", 0, 0, "Dogs bark.", 3, span, (), 0, 0, "", "", {})
        return (SurroundedLeaf(chunk, 0.5, "", "", Outline.of("d", "", "", {}, (), ())),)


def test_sentences_of_another_tenant_are_embedded_again() -> None:
    """Else the time of a search would tell that another tenant has the same sentence."""
    snapshot = Single(["d"])
    embedder = Embedder(snapshot)
    search = search_of(snapshot, embedder=embedder)
    for tenant_id in ("t", "u", "t", "u"):
        query = replace(QUERY, tenant_id=tenant_id, mode=SearchMode.SENTENCE_WINDOW)
        assert search(query, NEVER).passages
    assert embedder.texts == [QUERY.query, "Dogs bark."] * 2
