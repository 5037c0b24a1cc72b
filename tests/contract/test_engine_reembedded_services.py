"""Collections are embedded again by the services, on every engine, while they are in use."""

import threading
from dataclasses import replace

import numpy as np
import pytest

from hrag.errors import (
    CollectionExists,
    CollectionNotFound,
    CopyInProgress,
    DeadlineExceeded,
    EmbedderMismatch,
    EmbedderUnavailable,
    InvalidArgument,
    StorageQuotaExceeded,
)
from hrag.models.embedding.cache import CachedQueries
from hrag.models.embedding.embedders import Embedders
from hrag.models.embedding.hashing import HashEmbedder
from hrag.models.embedding.none import NoEmbedder
from hrag.types import (
    Document,
    IngestOutcome,
    MetadataChange,
    Retrieval,
    SearchMode,
    SearchQuery,
    SettingsRequest,
    SummaryUnit,
    TreeSettings,
)
from hrag.values.deadline import NEVER, Deadline
from hrag.values.filters import Exists
from hrag.values.quotas import Quota
from indexer_svc.commit_gate import CommitGate
from indexer_svc.ingest_pipeline import Defaults, Pipeline
from indexer_svc.reembedder import Reembedder, copy_name_of
from indexer_svc.stored_catalog import StoredCatalog
from retriever_svc.search_models import SearchModel
from retriever_svc.search_pipeline import Search
from tests.support.documents.fakes import sentences
from tests.support.engines.summary_model import ModelSummaries, summarise

TREE = TreeSettings((32, 64, 128), 0.1)
LONG_S = 60.0


class Calling(HashEmbedder):
    """An embedder that calls `before` once, before it embeds the next texts."""

    def __init__(self, dimension):
        super().__init__(dimension)
        self.before = lambda: None

    def embed(self, texts, deadline=NEVER):
        before, self.before = self.before, lambda: None
        before()
        return super().embed(texts, deadline)


class Services:
    """The parts of both services on one store. The collection `c` has the old embedder."""

    def __init__(self, case, summaries=SummaryUnit.NONE):
        self.case, self.writer = case, case.writer
        self.old, self.new, self.gate = Calling(16), Calling(8), CommitGate()
        defaults = Defaults(TREE, 100_000)
        first = Pipeline(self.writer, self.old, defaults)
        first.create_collection("t", "c", SettingsRequest(summaries=summaries))
        self.pipeline = Pipeline(self.writer, self.new, defaults, previous=self.old, gate=self.gate)
        self.catalog = StoredCatalog(self.writer)
        for number in range(6):
            self.ingest(number)

    def ingest(self, number, seed=None):
        return self.pipeline.ingest("t", "c", self.document(number, seed), NEVER)

    def document(self, number, seed=None):
        text = sentences(8 + 4 * number, number if seed is None else seed)
        return Document(text, f"d{number}", title="Title")

    def reembedder(self, step_s=LONG_S, embedders=None):
        embedders = embedders or Embedders(self.new, self.old)
        return Reembedder(self.writer, embedders, self.gate, step_s)

    def move(self):
        progress = self.reembedder().step("t", "c", NEVER)
        assert progress.is_finished
        return progress

    def search(self, *embedders):
        current, *previous = [
            SearchModel(embedder, CachedQueries(embedder, 10))
            for embedder in embedders or (self.new, self.old)
        ]
        return Search(
            self.case.readers(),
            current.embedder,
            current.queries,
            return_level=1,
            previous=previous,
        )

    def exported(self, name="c"):
        return {stored.document_id: stored for stored in self.case.readers().export("t", name)}


@pytest.fixture
def services(catalog):
    return Services(catalog)


QUERY = SearchQuery("t", "Sentence 3 4 tells a short story.", "c", limit=3)


def found(result):
    return [passage.chunk.document_id for passage in result.passages]


def test_a_collection_gets_the_vectors_that_a_new_ingest_would_give_it(catalog):
    services = Services(catalog, SummaryUnit.CHUNK)
    summarise(services.writer, ModelSummaries(catalog.model), embedder=services.old.name)
    before, settings = services.exported(), services.writer.open("t", "c").settings
    assert services.move().embedded_documents == 6
    after = services.exported()
    new = services.writer.open("t", "c").settings
    assert new == replace(settings, embedder=services.new.name, dimension=8)
    assert sorted(after) == sorted(before)
    again = Pipeline(services.writer, services.new, Defaults(TREE, 100_000))
    again.create_collection("t", "again", SettingsRequest())
    for number in range(6):
        again.ingest("t", "again", services.document(number), NEVER)
    for name, expected in services.exported("again").items():
        document, old = after[name].document, before[name].document
        assert document.tree.to_bytes() == old.tree.to_bytes()
        assert replace(document, vectors=None, tree=None) == replace(old, vectors=None, tree=None)
        np.testing.assert_allclose(document.vectors, expected.document.vectors, atol=1e-3)
        summaries = before[name].summaries.summaries
        assert after[name].summaries.summaries == summaries
        vectors = services.new.embed([f"Title\n{summary.text}".strip() for summary in summaries])
        np.testing.assert_allclose(after[name].summaries.vectors, vectors, atol=1e-3)


MODES = [SearchMode.SMALL_TO_BIG, SearchMode.SENTENCE_WINDOW, SearchMode.SUMMARY_FIRST]


@pytest.mark.parametrize("mode", MODES)
def test_a_search_may_overlap_with_the_move(catalog, mode):
    """The query is embedded before the move, and searched after it."""
    services = Services(catalog, SummaryUnit.CHUNK)
    summarise(services.writer, ModelSummaries(catalog.model), embedder=services.old.name)
    query, search = replace(QUERY, mode=mode, limit=6), services.search()
    assert len(search(query, NEVER).passages) > 3
    other = replace(query, query="Sentence 2 3 tells a short story.")
    services.old.before = services.move
    during = search(other, NEVER)
    assert services.writer.open("t", "c").settings.dimension == 8
    assert during.passages == search(other, NEVER).passages
    assert during.passages == services.search()(other, NEVER).passages
    assert during.fallback == ""


def test_searches_of_a_batch_may_have_different_embedders(services):
    services.pipeline.create_collection("t", "n", SettingsRequest())
    services.pipeline.ingest("t", "n", Document(sentences(8, 9), "x"), NEVER)
    search = services.search()
    queries = [QUERY, replace(QUERY, collection="n", query="Sentence 9 2 tells a short story.")]
    for _ in range(2):
        old, new = search.batch(queries, NEVER)
        assert (len(old.passages), len(new.passages)) == (3, 2)
        services.move()


def test_a_query_with_a_vector_of_the_client_needs_no_embedder(services):
    services.move()
    search = services.search(HashEmbedder(5))
    vector = np.ones(8, np.float32)
    assert found(search(replace(QUERY, query=vector), NEVER))
    assert found(search(replace(QUERY, retrieval=Retrieval.LEXICAL), NEVER))[0] == "d3"


@pytest.mark.parametrize("retrieval", [Retrieval.HYBRID, Retrieval.DENSE])
def test_a_retriever_without_the_embedder_of_a_collection_says_so(services, retrieval):
    query = replace(QUERY, retrieval=retrieval)
    with pytest.raises(EmbedderMismatch, match=r"hash/16.*runs hash/8; HRAG_PREVIOUS_EMBEDDER"):
        services.search(services.new)(query, NEVER)
    only_old = services.search(services.old)
    assert found(only_old(query, NEVER))
    services.move()
    with pytest.raises(EmbedderMismatch, match=r"hash/8.*runs hash/16"):
        only_old(query, NEVER)
    assert found(services.search(services.new)(query, NEVER))


def test_documents_that_were_admitted_before_the_move_are_in_the_new_collection(services):
    def begun(number):
        checked = services.pipeline.check("t", "c", Document(sentences(9, 50), f"d{number}"))
        draft = services.pipeline.cut(services.pipeline.admit(checked), NEVER)
        return services.pipeline.embed([draft], NEVER)[0]

    ready = [begun(1), begun(7)]
    services.move()
    outcomes = services.pipeline.commit(ready)
    assert [outcome.outcome for outcome in outcomes] == [
        IngestOutcome.UPDATED,
        IngestOutcome.CREATED,
    ]
    stored = services.exported()
    assert sorted(stored) == ["d0", "d1", "d2", "d3", "d4", "d5", "d7"]
    assert stored["d7"].document.vectors.shape[1] == 8
    assert stored["d1"].document.parsed.text == stored["d7"].document.parsed.text


def test_a_document_of_a_deleted_collection_is_not_stored(services):
    checked = services.pipeline.check("t", "c", Document(sentences(9, 50), "x"))
    draft = services.pipeline.cut(services.pipeline.admit(checked), NEVER)
    ready = services.pipeline.embed([draft], NEVER)
    services.writer.delete_collection("t", "c")
    (outcome,) = services.pipeline.commit(ready)
    assert isinstance(outcome, CollectionNotFound)


class OpenedEarly:
    """A writer during whose next call the collection moves: after its handle was opened."""

    def __init__(self, services):
        self._services, self._writer = services, services.writer

    def __getattr__(self, name):
        return getattr(self._writer, name)

    def open(self, tenant_id, name):
        opened = self._writer.open(tenant_id, name)
        if opened.settings.dimension == 16:
            self._services.move()
        return opened


CALLS = {
    "document": lambda catalog: catalog.document("t", "c", "d1"),
    "text": lambda catalog: catalog.document_with_text("t", "c", "d1"),
    "documents": lambda catalog: catalog.documents("t", "c", 10, ""),
    "count": lambda catalog: catalog.count("t", "c", None),
    "status": lambda catalog: catalog.status("t", "c"),
    "delete": lambda catalog: catalog.delete_document("t", "c", "d1"),
    "delete matching": lambda catalog: list(
        catalog.delete_documents("t", "c", Exists("document_id"), NEVER)
    ),
    "metadata": lambda catalog: catalog.update_metadata(
        "t", "c", "d1", MetadataChange(metadata={"k": 1}), NEVER
    ),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call_may_overlap_with_the_move(services, call):
    assert call(StoredCatalog(OpenedEarly(services)))
    assert services.writer.open("t", "c").settings.dimension == 8
    if call is CALLS["metadata"]:
        assert services.catalog.document("t", "c", "d1").metadata == {"k": 1}
    left = {CALLS["delete"]: 5, CALLS["delete matching"]: 0}.get(call, 6)
    assert services.catalog.count("t", "c", None).documents == left


def test_the_work_continues_after_an_interruption(services):
    assert not services.reembedder(step_s=1e-9).step("t", "c", NEVER).is_finished
    services.ingest(3, seed=60)
    services.catalog.delete_document("t", "c", "d5")
    services.new.before = _fails
    with pytest.raises(EmbedderUnavailable):
        services.reembedder().step("t", "c", NEVER)
    finished = services.move()
    assert finished.remaining_documents == 0
    assert finished.sequence == services.case.readers().sequence("t")
    again = services.move()
    assert (again.embedded_documents, again.sequence) == (0, 0)
    stored = services.exported()
    assert sorted(stored) == ["d0", "d1", "d2", "d3", "d4"]
    assert "Sentence 60" in stored["d3"].document.parsed.text


def _fails():
    raise EmbedderUnavailable("the endpoint is down")


def test_what_remains_is_counted(services):
    reembedder = services.reembedder(step_s=1e-9)
    counts = []
    while not (progress := reembedder.step("t", "c", NEVER)).is_finished:
        counts.append((progress.embedded_documents, progress.remaining_documents))
        assert progress.collection.settings.dimension == 16
        assert len(counts) < 10
    assert counts[-1][1] == 0
    assert sum(embedded for embedded, _ in counts) == 6
    assert progress.collection.settings.dimension == 8


def test_the_move_ends_although_documents_are_written_all_the_time(services):
    stopping, failures = threading.Event(), []

    def write():
        seed = 100
        while not stopping.is_set():
            seed += 1
            try:
                services.ingest(seed % 6, seed=seed)
            except Exception as error:
                failures.append(error)
                return

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        services.move()
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
    assert failures == []
    assert sorted(services.exported()) == [f"d{number}" for number in range(6)]


def test_commits_are_held_back_only_in_one_collection():
    gate = CommitGate()
    with gate.closed(1), gate.closed(1):
        gate.wait(2, NEVER)
        with pytest.raises(DeadlineExceeded, match="embedded again"):
            gate.wait(1, Deadline.after(0.01))
    gate.wait(1, NEVER)


def test_an_indexer_that_cannot_embed_the_collection_refuses(services):
    with pytest.raises(EmbedderMismatch, match="HRAG_PREVIOUS_EMBEDDER"):
        services.reembedder(embedders=Embedders(services.new)).step("t", "c", NEVER)
    none = Embedders(NoEmbedder(), services.old)
    with pytest.raises(InvalidArgument, match="HRAG_EMBEDDER=none"):
        services.reembedder(embedders=none).step("t", "c", NEVER)
    short = HashEmbedder(8)
    short.max_tokens = 31
    with pytest.raises(InvalidArgument, match=r"32 tokens.*at most 31"):
        services.reembedder(embedders=Embedders(short, services.old)).step("t", "c", NEVER)
    with pytest.raises(CollectionNotFound):
        services.reembedder().step("t", "missing", NEVER)
    with pytest.raises(InvalidArgument, match="name is 'bad/name'"):
        services.reembedder().step("t", "bad/name", NEVER)
    assert services.writer.collections("t", 10, "").items[0].name == "c"


def test_ingests_do_not_wait_long_for_a_slow_embedder(services, monkeypatch):
    """The last documents are then embedded without holding back ingests."""
    monkeypatch.setattr("indexer_svc.reembedder._MAX_HELD_S", 0.0)
    reembedder = services.reembedder()
    read, reads = reembedder._next_documents, []

    def next_documents(*arguments):
        """Returns no documents at first, so that all are among the last ones."""
        reads.append(len(read(*arguments)) if reads else 0)
        return read(*arguments) if reads[1:] else []

    monkeypatch.setattr(reembedder, "_next_documents", next_documents)
    progress = reembedder.step("t", "c", NEVER)
    assert progress.is_finished
    assert progress.embedded_documents == reads[1] > 0


def test_a_collection_without_vectors_gets_vectors(services):
    services.pipeline.create_collection("t", "w", SettingsRequest(embedder="none"))
    services.pipeline.ingest("t", "w", Document(sentences(9), "x"), NEVER)
    assert services.reembedder().step("t", "w", NEVER).is_finished
    assert services.exported("w")["x"].document.vectors.shape[1] == 8
    dense = SearchQuery("t", sentences(1), "w", retrieval=Retrieval.DENSE)
    assert set(found(services.search()(dense, NEVER))) == {"x"}


def test_the_copy_needs_a_name_and_a_quota(services):
    services.case.quota = Quota(max_collections=1)
    with pytest.raises(StorageQuotaExceeded):
        services.move()
    services.case.quota = Quota()
    services.pipeline.create_collection("t", "c.reembed", SettingsRequest())
    with pytest.raises(CollectionExists, match=r"c\.reembed"):
        services.move()
    services.writer.delete_collection("t", "c.reembed")
    services.reembedder(step_s=1e-9).step("t", "c", NEVER)
    with pytest.raises(CopyInProgress):
        services.pipeline.ingest("t", "c.reembed", Document("text", "x"), NEVER)
    services.move()


def test_the_name_of_a_copy_is_a_name():
    assert copy_name_of("c") == "c.reembed"
    assert len(copy_name_of("x" * 64)) == 64
