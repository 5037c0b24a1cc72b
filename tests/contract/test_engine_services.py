"""The pipelines of both services work with every storage engine.

They also work with an engine that cannot encode passages. The retriever then encodes them.
"""

from dataclasses import replace
from typing import Any

import pytest

from hrag.engine.protocols import Reader
from hrag.errors import CollectionNotFound, DocumentNotFound, SequenceNotReached
from hrag.filters import Match
from hrag.models.embedding.cache import CachedQueries
from hrag.models.embedding.hashing import HashEmbedder
from hrag.server.admission.suspension import Suspended
from hrag.types import (
    Document,
    IngestOutcome,
    SearchMode,
    SearchQuery,
    SearchResult,
    SettingsRequest,
    SummaryUnit,
    TreeSettings,
)
from hrag.v1 import retriever_pb2
from hrag.values.deadline import NEVER
from hrag.wire.passages import encoded_passage
from indexer_svc.ingest_pipeline import Defaults, Pipeline
from retriever_svc.browse import Browse
from retriever_svc.search_pipeline import Search
from tests.support.documents.fakes import sentences
from tests.support.engines.summary_model import ModelSummaries, summarise

EMBEDDER = HashEmbedder(16)
TREE = TreeSettings((32, 64, 128), 0.1)
QUERY = SearchQuery("t", "Sentence 3 4 tells a short story.", "c", limit=3)
# These modes always return leaves; the other modes return passages of level 1.
LEVELS = {SearchMode.STANDARD: 0, SearchMode.SENTENCE_WINDOW: 0, SearchMode.CONTEXT: 0}


@pytest.fixture
def ingested(catalog):
    """An engine with six documents with summaries, which the indexer's pipeline has ingested."""
    pipeline = Pipeline(catalog.writer, EMBEDDER, Defaults(TREE, 100_000))
    pipeline.create_collection("t", "c", SettingsRequest(summaries=SummaryUnit.CHUNK))
    for number in range(6):
        body = sentences(8 + 4 * number, number)
        document = Document(body, f"d{number}", metadata={"n": number})
        for outcome in (IngestOutcome.CREATED, IngestOutcome.UNCHANGED):
            assert pipeline.ingest("t", "c", document, NEVER).outcome is outcome
    summarise(catalog.writer, ModelSummaries(catalog.model), embedder=EMBEDDER.name)
    return catalog


def search_over(reader: Reader) -> Search:
    return Search(reader, EMBEDDER, CachedQueries(EMBEDDER, 10), return_level=1)


@pytest.mark.parametrize("mode", list(SearchMode))
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"merge_adjacent": True, "token_budget": 60, "cut_last": True},
        {"filter": Match("metadata.n", (2.0, 3.0))},
    ],
    ids=["plain", "budget", "filter"],
)
def test_every_mode_returns_the_same_passages_as_values_and_as_messages(ingested, mode, options):
    search = search_over(ingested.readers())
    result = search(replace(QUERY, mode=mode, **options), NEVER)
    assert result.passages
    assert (result.mode, result.sequence) == (mode, ingested.readers().sequence("t"))
    assert result.returned_at_level == LEVELS.get(mode, 1)
    encoded = search.encoded(replace(QUERY, mode=mode, **options), NEVER)
    assert _messages(encoded.passages) == _messages(map(encoded_passage, result.passages))
    without_passages = replace(encoded, passages=(), timings=result.timings)
    assert without_passages == replace(result, passages=())


def _messages(passages: Any) -> list[Any]:
    return [retriever_pb2.SearchResponse.FromString(passage) for passage in passages]


def test_each_search_of_a_batch_has_a_result_or_an_error(ingested):
    search = search_over(ingested.readers())
    queries = [QUERY, replace(QUERY, collection="other"), replace(QUERY, mode=SearchMode.STANDARD)]
    first, missing, last = search.batch(queries, NEVER)
    assert isinstance(missing, CollectionNotFound)
    for query, result in ((queries[0], first), (queries[2], last)):
        assert result.passages == search.encoded(query, NEVER).passages


def test_a_search_waits_for_the_sequence_number_that_it_requires(ingested):
    search, last = search_over(ingested.readers()), ingested.readers().sequence("t")
    assert search(replace(QUERY, min_sequence=last), NEVER).sequence == last
    later = replace(QUERY, min_sequence=last + 1)
    with pytest.raises(Suspended) as caught:
        search(later, NEVER)
    assert not caught.value.is_past
    assert not caught.value.is_ready()
    with pytest.raises(SequenceNotReached):
        search(later, NEVER.within(0.005))


def test_a_chunk_and_its_hierarchy_can_be_read_by_its_id(ingested):
    browse, result = Browse(ingested.readers()), _best(ingested)
    chunk = result.passages[0].chunk
    hierarchy = browse.hierarchy("t", "c", chunk.chunk_id, 1, content=True)
    assert hierarchy.node.chunk == browse.chunk("t", "c", chunk.chunk_id).chunk == chunk
    with pytest.raises(DocumentNotFound):
        browse.chunk("t", "c", "nobody#0.0")


def _best(case: Any) -> SearchResult:
    return search_over(case.readers())(QUERY, NEVER)
