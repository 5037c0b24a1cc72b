"""Every storage engine keeps these promises about changing a document's metadata and source."""

from dataclasses import replace

import pytest

from hrag.errors import (
    CollectionNotFound,
    DocumentChanged,
    DocumentNotFound,
    StorageQuotaExceeded,
)
from hrag.filters import AllOf, Exists, Match
from hrag.types import IngestOutcome, SearchMode, SummaryUnit
from hrag.values import canonical_json
from hrag.values.ids import parse_chunk_id
from hrag.values.quotas import Quota
from tests.support.documents.fakes import (
    collection_settings,
    find,
    matched_leaves,
    prepared,
    query_vector,
    search_leaves,
    search_passages,
    sentences,
)
from tests.support.engines.summary_model import ModelSummaries, summarise

NEW = {"team": "search", "tags": ["x"], "seed": -1}
SOURCE = "file:moved"


def change(case, document_id="d3", metadata=NEW, source=SOURCE):
    """Changes metadata and source of a stored document; returns its new DocumentInfo."""
    sequence = case.writer.document(case.collection, document_id).sequence
    return case.writer.put_metadata(case.collection, document_id, sequence, metadata, source)


def passages_of(snapshot, document_id="d3"):
    """Returns the passages of a document that a search by vector finds."""
    filter = Match("document_id", (document_id,))
    return find(snapshot, query_vector(3), 1000, filter=filter).passages


def described(snapshot, document_id="d3"):
    """Returns a document's metadata, as JSON, and its source.

    Fails unless passages, chunks and hierarchies have the same metadata and source.
    """
    chunk_id = parse_chunk_id(f"{document_id}#0.0")
    chunks = [passage.chunk for passage in passages_of(snapshot, document_id)]
    chunks.append(snapshot.chunk(chunk_id).chunk)
    chunks.append(snapshot.hierarchy(chunk_id, 1, content=True).node.chunk)
    ((metadata, source),) = {
        (canonical_json.encode(chunk.metadata), chunk.source) for chunk in chunks
    }
    return metadata, source


def test_changed_metadata_is_visible_in_documents_searches_and_filters(filled):
    before = filled.writer.document(filled.collection, "d3")
    with filled.snapshot() as snapshot:
        described(snapshot)  # This fills the caches, which must not return these values later.
        assert find(snapshot, query_vector(0), 9, filter=Exists("metadata.team")).passages == ()
    info = change(filled)
    sequence = before.sequence + 10 - 3  # Six other documents were stored after `d3`.
    assert info == replace(before, metadata=NEW, source=SOURCE, sequence=sequence)
    assert filled.writer.document(filled.collection, "d3") == info
    assert filled.readers().sequence("t") == info.sequence
    with filled.snapshot() as snapshot:
        assert snapshot.sequence == info.sequence
        assert described(snapshot) == (canonical_json.encode(NEW), SOURCE)
        for filter in (
            Exists("metadata.team"),
            Match("source", (SOURCE,)),
            AllOf((Match("metadata.seed", (-1,)), Match("metadata.tags", ("x",)))),
        ):
            passages = find(snapshot, query_vector(0), 100, filter=filter).passages
            assert {passage.chunk.document_id for passage in passages} == {"d3"}
        for old_filter in (Match("metadata.seed", (3,)), Match("source", (before.source,))):
            assert find(snapshot, query_vector(0), 100, filter=old_filter).passages == ()


def test_changed_metadata_is_visible_after_changes_of_other_documents(filled):
    """Metadata is cached. It must stay valid until the document itself changes."""
    with filled.snapshot() as snapshot:
        old = described(snapshot)
    for other in ("e", "f"):
        filled.writer.put(filled.collection, prepared(other, "Another story."))
        with filled.snapshot() as snapshot:
            assert described(snapshot) == old
    change(filled)
    with filled.snapshot() as snapshot:
        assert described(snapshot) == (canonical_json.encode(NEW), SOURCE)


def test_a_snapshot_keeps_the_metadata_of_the_moment_when_it_was_opened(filled):
    with filled.snapshot() as earlier:
        old = described(earlier)
        change(filled)
        with filled.snapshot() as later:
            assert described(later) == (canonical_json.encode(NEW), SOURCE)
        assert described(earlier) == old
        assert find(earlier, query_vector(0), 9, filter=Exists("metadata.team")).passages == ()


def exported(case, document_id):
    """Returns what an export yields for a document."""
    documents = case.readers().export("t", "c")
    return [stored for stored in documents if stored.document.document_id == document_id]


def test_a_change_of_metadata_changes_nothing_else(filled):
    (stored,) = exported(filled, "d3")
    status = filled.writer.status(filled.collection)
    with filled.snapshot() as snapshot:
        leaves = search_leaves(snapshot, query_vector(0), 1000)
    for number in range(5):
        change(filled, metadata={"round": number})
    (now,) = exported(filled, "d3")
    assert now.document.vectors.tobytes() == stored.document.vectors.tobytes()
    assert now.document.parsed == stored.document.parsed
    with filled.snapshot() as snapshot:
        assert search_leaves(snapshot, query_vector(0), 1000) == leaves
    after = filled.writer.status(filled.collection)
    assert (
        replace(after, committed_sequence=status.committed_sequence, tenant=status.tenant) == status
    )
    assert after.committed_sequence == status.committed_sequence + 5


def test_putting_the_original_document_restores_its_metadata(filled):
    original = filled.model.documents["d3"]
    change(filled)
    assert filled.writer.admit("t", "c", "d3", original.content_hash).unchanged is None
    restored = filled.writer.put(filled.collection, original)
    assert restored.outcome is IngestOutcome.UPDATED
    info = filled.writer.document(filled.collection, "d3")
    assert (info.metadata, info.source) == (original.metadata, original.source)
    assert filled.writer.put(filled.collection, original).outcome is IngestOutcome.UNCHANGED
    with filled.snapshot() as snapshot:
        assert described(snapshot) == (original.metadata_json, original.source)
        assert find(snapshot, query_vector(0), 9, filter=Exists("metadata.team")).passages == ()


def test_a_changed_document_can_be_deleted(filled):
    change(filled)
    filled.delete("d3")
    with filled.snapshot() as snapshot:
        leaves = search_leaves(snapshot, query_vector(0), 1000)
        assert "d3" not in {document_id for document_id, _ in leaves}
        assert find(snapshot, query_vector(0), 9, filter=Exists("metadata.team")).passages == ()


def test_a_change_that_expects_an_older_version_is_refused(filled):
    first = filled.writer.document(filled.collection, "d3").sequence
    change(filled)
    with pytest.raises(DocumentChanged, match=f"'d3'.*sequence number {first}") as caught:
        filled.writer.put_metadata(filled.collection, "d3", first, {}, "")
    assert caught.value.field == "expected_sequence"
    assert filled.writer.document(filled.collection, "d3").metadata == NEW


def test_a_document_that_does_not_exist_cannot_be_changed(filled):
    stale = filled.collection
    with pytest.raises(DocumentNotFound, match="'missing'"):
        filled.writer.put_metadata(stale, "missing", 1, {}, "")
    filled.writer.delete_collection("t", "c")
    with pytest.raises(CollectionNotFound):
        filled.writer.put_metadata(stale, "d3", 1, {}, "")


def test_the_quota_counts_the_bytes_of_changed_metadata(filled):
    used = filled.writer.status(filled.collection).tenant.stored_bytes
    long = {"text": "x" * 10_000}
    filled.quota = Quota(max_bytes=used + 5_000)
    with pytest.raises(StorageQuotaExceeded, match="bytes"):
        change(filled, metadata=long)
    filled.quota = Quota(max_bytes=used + 50_000)
    change(filled, metadata=long)
    assert filled.writer.status(filled.collection).tenant.stored_bytes >= used + 9_000
    filled.quota = Quota(max_bytes=1)
    change(filled, metadata={}, source="")
    assert filled.writer.status(filled.collection).tenant.stored_bytes <= used


def test_summaries_have_the_metadata_of_their_document(opened):
    settings = collection_settings(summaries=SummaryUnit.CHUNK)
    opened.model.settings = settings
    opened.create()
    for number in range(3):
        document = prepared(f"d{number}", sentences(20, number), settings, number)
        opened.writer.put(opened.collection, document)
        opened.model.put(document)
    change(opened, "d2")  # This document is not summarised yet.
    summarise(opened.writer, ModelSummaries(opened.model), 3)
    change(opened, "d1")  # This document is summarised.
    with opened.snapshot(summaries=True) as snapshot:
        result = find(
            snapshot,
            query_vector(0),
            1000,
            mode=SearchMode.SUMMARY_FIRST,
            top_sections=100,
            filter=Exists("metadata.team"),
        )
        assert {document_id for document_id, _ in matched_leaves(result.passages)} == {"d1", "d2"}
        assert {passage.chunk.source for passage in result.passages} == {SOURCE}
        passages = search_passages(snapshot, query_vector(0), 1000, 0)
    assert {passage.chunk.document_id for passage in passages} == {"d0", "d1", "d2"}
