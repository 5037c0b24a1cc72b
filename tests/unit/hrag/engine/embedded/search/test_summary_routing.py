"""Test of two-stage routing by summaries: only documents that pass the filter are judged."""

import pytest

from hrag.engine import DocumentSummaries, StoredDocument, Summary
from hrag.filters import Match
from hrag.types import SearchMode, SummaryScope, SummaryUnit
from tests.conftest import Engine
from tests.support.documents.fakes import (
    collection_settings,
    find,
    prepared,
    query_vector,
    sentences,
    unit_vectors,
)


@pytest.mark.parametrize("scope", list(SummaryScope))
def test_the_filter_is_one_stage(engine: Engine, scope: SummaryScope) -> None:
    settings = collection_settings(summaries=SummaryUnit.CHUNK)
    engine.writer.create_collection("t", "c", settings)
    document = prepared("d", sentences(12), settings)
    leaves = range(len(document.vectors))
    summaries = (Summary("All of it.", leaves), Summary("The first half.", leaves[:2]))
    stored = StoredDocument(document, DocumentSummaries(summaries, unit_vectors(2, seed=1)))
    engine.writer.put_stored(engine.open(), stored)
    with engine.reader.snapshot("t", "c", summaries=True) as snapshot:
        found = find(
            snapshot,
            query_vector(1),
            10,
            mode=SearchMode.SUMMARY_FIRST,
            summary_scope=scope,
            filter=Match("document_id", ("d",)),
        )
    assert found.eligible_leaves == 2
    assert [name for name, _, _ in found.stages].count("filter") == 1
