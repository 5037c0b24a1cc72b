"""Every storage engine keeps these promises about copying a store to another engine.

`export` reads whole documents with their vectors and summaries, and `put_stored` writes them. So
nothing is embedded or summarised again.
"""

from dataclasses import replace

import numpy as np
import pytest

from hrag.engine.engine_documents import DocumentSummaries, StoredDocument, Summary
from hrag.engine.find import FindResult
from hrag.engine.protocols import Reader, Writer
from hrag.errors import CollectionNotFound, InvalidArgument
from hrag.types import IngestOutcome, Passage, SearchMode, Span, SummaryUnit, TreeSettings
from hrag.values.tree import PageSpan, ParsedText, Section
from tests.support.documents.fakes import (
    SCORE_TOLERANCE,
    collection_settings,
    find,
    prepared,
    query_vector,
    sentences,
    unit_vectors,
)
from tests.support.engines.memory_engine import MemoryEngine
from tests.support.engines.summary_model import EMBEDDER, ModelSummaries, summarise

SUMMARISED = collection_settings(summaries=SummaryUnit.CHUNK)
PLAIN = collection_settings(TreeSettings((64, 200), 0.25, 1), dimension=3)


@pytest.fixture
def store(opened):
    """A store with one collection of each of two tenants.

    The collection of `t` has summaries. One of its documents, `d3`, was summarised and got no
    summary, and the document `outline` still waits. The collection of `t2` has no summaries.
    """
    opened.writer.create_collection("t", "c", SUMMARISED)
    opened.model.settings = SUMMARISED
    text = sentences(20)
    sections = (Section("One", 1, 0), Section("Two", 2, 90))
    outline = ParsedText(text, sections, (PageSpan(3, 0, 90), PageSpan(4, 90, len(text))))
    documents = [prepared(f"d{n}", sentences(4 * n + 4, n), SUMMARISED, n) for n in range(5)]
    metadata = {"a": {"b": [1, None]}}
    opened.fill(*documents, prepared("outline", outline, SUMMARISED, 9, metadata=metadata))
    summarise(opened.writer, ModelSummaries(opened.model), max_documents=5, empty=frozenset({"d3"}))
    opened.writer.create_collection("t2", "plain", PLAIN)
    plain = opened.writer.open("t2", "plain")
    opened.writer.put_many(
        [(plain, prepared(f"p{n}", sentences(9, n), PLAIN, n)) for n in range(3)]
    )
    return opened


def copy(source: Reader, target: Writer) -> None:
    """Copies all collections and documents of a store to another engine."""
    for collection in source.collections():
        tenant_id, name = collection.tenant_id, collection.name
        target.create_collection(tenant_id, name, collection.settings)
        handle = target.open(tenant_id, name)
        for stored in source.export(tenant_id, name):
            assert target.put_stored(handle, stored).outcome is IngestOutcome.CREATED


def contents(reader: Reader) -> dict[tuple[str, str], object]:
    """Returns everything that a store contains, so that two stores can be compared."""
    return {
        (collection.tenant_id, collection.name): (
            collection,
            [
                _comparable(stored)
                for stored in reader.export(collection.tenant_id, collection.name)
            ],
        )
        for collection in reader.collections()
    }


def _comparable(stored: StoredDocument) -> tuple[object, ...]:
    document, summaries = stored.document, stored.summaries
    described = (document.document_id, document.title, document.source, document.mime_type)
    vectors = None if summaries is None else summaries.vectors.tobytes()
    return (
        *described,
        document.metadata,
        document.content_hash,
        document.parsed,
        document.tree.to_bytes(),
        document.vectors.tobytes(),
        None if summaries is None else summaries.summaries,
        vectors,
    )


def test_an_export_has_the_documents_and_summaries_that_were_stored(store):
    exported = {stored.document.document_id: stored for stored in store.readers().export("t", "c")}
    assert list(exported) == sorted(store.model.documents)
    for name, stored in exported.items():
        expected = StoredDocument(store.model.documents[name], stored.summaries)
        assert _comparable(stored) == _comparable(expected)
        assert stored.document.vectors.dtype == np.float32
    waiting = [name for name, stored in exported.items() if stored.summaries is None]
    assert len(waiting) == store.writer.status(store.collection).unsummarised_documents == 1
    written = {name: stored.summaries for name, stored in exported.items() if stored.summaries}
    assert [name for name, summaries in written.items() if not summaries.summaries] == ["d3"]
    assert all(stored.summaries is None for stored in store.readers().export("t2", "plain"))
    with pytest.raises(CollectionNotFound):
        list(store.readers().export("t", "plain"))


def test_an_export_has_each_document_as_it_is_when_it_is_read(store):
    """No transaction is open between two documents of an export.

    So a concurrent change may be visible or not, but no document is a mixture of two versions.
    """
    exported = store.readers().export("t", "c")
    first = next(exported)
    store.writer.delete(store.collection, "outline")
    others = {stored.document.document_id: stored.document for stored in exported}
    assert first.document.document_id == "d0"
    assert {"d1", "d2", "d3", "d4"} <= others.keys() <= {"d1", "d2", "d3", "d4", "outline"}
    for name, document in others.items():
        assert document.tree.to_bytes() == store.model.documents[name].tree.to_bytes()


def test_a_store_copied_to_another_engine_and_back_is_the_same(store):
    """The store is copied to the memory engine and then to a new store of the same engine."""
    between, back = MemoryEngine(), store.another_store()
    copy(store.readers(), between.writer())
    copy(between.reader(), back.writer)
    original = contents(store.readers())
    assert contents(between.reader()) == original
    assert contents(back.readers()) == original
    for writer in (between.writer(), back.writer):
        status = writer.status(writer.open("t", "c"))
        assert status.unsummarised_documents == 1
        assert status.document_count == 6
        assert writer.next_unsummarised(EMBEDDER).document_id == "outline"


@pytest.mark.parametrize("mode", list(SearchMode))
def test_searches_of_a_copied_store_return_the_same_passages(store, mode):
    between = MemoryEngine()
    copy(store.readers(), between.writer())
    for seed in range(3):
        results = []
        for reader in (store.readers(), between.reader()):
            with reader.snapshot("t", "c", summaries=True) as snapshot:
                results.append(find(snapshot, query_vector(seed), 6, 0, mode, candidates=1000))
        _assert_alike(*results)


def _assert_alike(first: FindResult[Passage], second: FindResult[Passage]) -> None:
    """Fails unless both results are equal.

    Scores may differ slightly, because engines sum float32 products in different orders.
    """
    assert _without_scores(first) == _without_scores(second)
    for field in ("passages", "sections"):
        scores = [[item.score for item in getattr(result, field)] for result in (first, second)]
        assert scores[0] == pytest.approx(scores[1], abs=SCORE_TOLERANCE)


def _without_scores(result: FindResult[Passage]) -> tuple[object, ...]:
    return (
        [_unscored(passage) for passage in result.passages],
        [replace(section, score=0.0) for section in result.sections],
        (result.eligible_leaves, result.considered, result.exhausted),
    )


def _unscored(passage: Passage) -> tuple[object, ...]:
    return passage.chunk, _children(passage)


def _children(passage: Passage) -> list[tuple[str, Span]]:
    return [(child.chunk_id, child.span) for child in passage.matched_children]


def test_a_document_is_stored_with_its_summaries_or_waits_for_them(opened):
    writer = opened.writer
    writer.create_collection("t", "c", SUMMARISED)
    document = prepared("d", sentences(9), SUMMARISED)
    count = len(document.vectors)
    texts = (Summary("The whole.", range(count)), Summary("Its beginning.", range(2)))
    summaries = DocumentSummaries(texts, unit_vectors(2, 7))
    created = writer.put_stored(opened.collection, StoredDocument(document, summaries))
    assert created.outcome is IngestOutcome.CREATED
    status = writer.status(opened.collection)
    assert (status.summary_count, status.unsummarised_documents, status.summary_tokens) == (2, 0, 0)
    (stored,) = opened.readers().export("t", "c")
    assert stored.summaries.summaries == texts
    again = writer.put_stored(opened.collection, StoredDocument(document, summaries))
    assert again.outcome is IngestOutcome.UNCHANGED
    assert writer.status(opened.collection) == status
    changed = prepared("d", sentences(8), SUMMARISED)
    writer.put_stored(opened.collection, StoredDocument(changed))
    status = writer.status(opened.collection)
    assert (status.summary_count, status.unsummarised_documents) == (0, 1)


def test_a_collection_without_summaries_refuses_summaries(catalog):
    catalog.create()
    document = prepared("d", sentences(9), catalog.model.settings)
    summaries = DocumentSummaries((), unit_vectors(0, 0))
    with pytest.raises(InvalidArgument, match="'c' was created without summaries"):
        catalog.writer.put_stored(catalog.collection, StoredDocument(document, summaries))
    assert catalog.writer.status(catalog.collection).document_count == 0
