"""What every storage engine promises about changing a document's metadata and source."""

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
    """Changes a document as it is now; returns what the writer answers."""
    sequence = case.writer.document(case.collection, document_id).sequence
    return case.writer.put_metadata(case.collection, document_id, sequence, metadata, source)


def passages_of(snapshot, document_id="d3"):
    """The document's passages, by vector."""
    found = find(snapshot, query_vector(3), 1000, filter=Match("document_id", (document_id,)))
    return found.passages


def described(snapshot, document_id="d3"):
    """Metadata and source as passages, chunks and hierarchies of the document give them."""
    chunk_id = parse_chunk_id(f"{document_id}#0.0")
    chunks = [passage.chunk for passage in passages_of(snapshot, document_id)]
    chunks.append(snapshot.chunk(chunk_id).chunk)
    chunks.append(snapshot.hierarchy(chunk_id, 1, content=True).node.chunk)
    ((metadata, source),) = {
        (canonical_json.encode(chunk.metadata), chunk.source) for chunk in chunks
    }
    return metadata, source


def test_the_change_is_seen_everywhere(filled):
    before = filled.writer.document(filled.collection, "d3")
    with filled.snapshot() as snapshot:
        described(snapshot)  # What is cached now must not be shown later.
        assert find(snapshot, query_vector(0), 9, filter=Exists("metadata.team")).passages == ()
    info = change(filled)
    sequence = before.sequence + 10 - 3
    assert info == replace(before, metadata=NEW, source=SOURCE, sequence=sequence)
    assert filled.writer.document(filled.collection, "d3") == info
    assert filled.readers().sequence("t") == info.sequence
    with filled.snapshot() as snapshot:
        assert snapshot.sequence == info.sequence
        assert described(snapshot) == (canonical_json.encode(NEW), SOURCE)
        for given in (
            Exists("metadata.team"),
            Match("source", (SOURCE,)),
            AllOf((Match("metadata.seed", (-1,)), Match("metadata.tags", ("x",)))),
        ):
            found = find(snapshot, query_vector(0), 100, filter=given).passages
            assert {passage.chunk.document_id for passage in found} == {"d3"}
        for gone in (Match("metadata.seed", (3,)), Match("source", (before.source,))):
            assert find(snapshot, query_vector(0), 100, filter=gone).passages == ()


def test_a_change_is_seen_after_changes_of_other_documents(filled):
    """What a reader keeps of a document stays current through these, and no longer."""
    with filled.snapshot() as snapshot:
        old = described(snapshot)
    for other in ("e", "f"):
        filled.writer.put(filled.collection, prepared(other, "Another story."))
        with filled.snapshot() as snapshot:
            assert described(snapshot) == old
    change(filled)
    with filled.snapshot() as snapshot:
        assert described(snapshot) == (canonical_json.encode(NEW), SOURCE)


def test_a_snapshot_keeps_what_it_began_with(filled):
    with filled.snapshot() as earlier:
        old = described(earlier)
        change(filled)
        with filled.snapshot() as later:
            assert described(later) == (canonical_json.encode(NEW), SOURCE)
        assert described(earlier) == old
        assert find(earlier, query_vector(0), 9, filter=Exists("metadata.team")).passages == ()


def test_nothing_but_metadata_and_source_changes(filled):
    (stored,) = [x for x in filled.readers().export("t", "c") if x.document.document_id == "d3"]
    status = filled.writer.status(filled.collection)
    with filled.snapshot() as snapshot:
        leaves = search_leaves(snapshot, query_vector(0), 1000)
    for number in range(5):
        change(filled, metadata={"round": number})
    (now,) = [x for x in filled.readers().export("t", "c") if x.document.document_id == "d3"]
    assert now.document.vectors.tobytes() == stored.document.vectors.tobytes()
    assert now.document.parsed == stored.document.parsed
    with filled.snapshot() as snapshot:
        assert search_leaves(snapshot, query_vector(0), 1000) == leaves
    after = filled.writer.status(filled.collection)
    assert (
        replace(after, committed_sequence=status.committed_sequence, tenant=status.tenant) == status
    )
    assert after.committed_sequence == status.committed_sequence + 5


def test_no_ingestion_afterwards_is_unchanged(filled):
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
        found = search_leaves(snapshot, query_vector(0), 1000)
        assert "d3" not in {document_id for document_id, _ in found}
        assert find(snapshot, query_vector(0), 9, filter=Exists("metadata.team")).passages == ()


def test_only_the_named_version_is_changed(filled):
    first = filled.writer.document(filled.collection, "d3").sequence
    change(filled)
    with pytest.raises(DocumentChanged, match=f"'d3'.*sequence {first}") as caught:
        filled.writer.put_metadata(filled.collection, "d3", first, {}, "")
    assert caught.value.field == "expected_sequence"
    assert filled.writer.document(filled.collection, "d3").metadata == NEW


def test_what_is_not_there_cannot_be_changed(filled):
    stale = filled.collection
    with pytest.raises(DocumentNotFound, match="'missing'"):
        filled.writer.put_metadata(stale, "missing", 1, {}, "")
    filled.writer.delete_collection("t", "c")
    with pytest.raises(CollectionNotFound):
        filled.writer.put_metadata(stale, "d3", 1, {}, "")


def test_the_quota_counts_what_the_change_takes(filled):
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
    change(opened, "d2")  # Before it is summarised.
    summarise(opened.writer, ModelSummaries(opened.model), 3)
    change(opened, "d1")  # Afterwards.
    with opened.snapshot(summaries=True) as snapshot:
        found = find(
            snapshot,
            query_vector(0),
            1000,
            mode=SearchMode.SUMMARY_FIRST,
            top_sections=100,
            filter=Exists("metadata.team"),
        )
        assert {document_id for document_id, _ in matched_leaves(found.passages)} == {"d1", "d2"}
        assert {passage.chunk.source for passage in found.passages} == {SOURCE}
        passages = search_passages(snapshot, query_vector(0), 1000, 0)
    assert {passage.chunk.document_id for passage in passages} == {"d0", "d1", "d2"}
