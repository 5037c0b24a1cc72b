"""Tests of writes to a damaged store: a write is done completely or not at all.

The damage is in entries that several documents use, such as counters. Each test undoes the damage
at its end. Then the check of the store finds what a write may have left incomplete.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import pytest

from hrag.engine import DocumentSummaries, StoredDocument, Summary
from hrag.engine.embedded.admin.check import check
from hrag.engine.embedded.search.reader import EmbeddedReader
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.write.document_versions import DocumentVersions
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.engine.engine_documents import CollectionHandle, PreparedDocument
from hrag.errors import DataLoss, DocumentNotFound, HragError
from hrag.types import IngestOutcome, IngestResult, SearchMode, SummaryUnit
from tests.support.documents.fakes import (
    collection_settings,
    find,
    prepared,
    seal,
    sentences,
    unit_vectors,
)
from tests.unit.hrag.engine.embedded.store.bits import flip

OLD, NEW = sentences(20), sentences(12, 1)
SUMMARISED = collection_settings(summaries=SummaryUnit.CHUNK)


@pytest.fixture
def writer(store: Store) -> EmbeddedWriter:
    """A writer. The tenant `t` has a sealed collection of three documents.

    The tenant `other` has an empty collection.
    """
    writer = EmbeddedWriter(store)
    for tenant_id in ("t", "other"):
        writer.create_collection(tenant_id, "c", collection_settings())
    opened = writer.open("t", "c")
    for number in range(3):
        writer.put(opened, prepared(f"d{number}", OLD, seed=number))
    seal(store, opened.collection_id)
    return writer


@contextmanager
def damaged(store: Store, database: str, key: bytes) -> Iterator[None]:
    """Damages the first entry of `database` from `key` on, and undoes that at the end.

    Asserts that the writes in between cause no further problems.
    """
    flip(store, database, key)
    problems = check(store).problems
    assert problems != ()
    yield
    assert check(store).problems == problems
    flip(store, database, key)


def outcomes(results: Sequence[IngestResult | HragError]) -> list[IngestOutcome | type[HragError]]:
    """Returns the outcome of each document, or the type of its error."""
    return [
        result.outcome if isinstance(result, IngestResult) else type(result) for result in results
    ]


def text_of(writer: EmbeddedWriter, opened: CollectionHandle, document_id: str) -> str:
    return writer.document_with_text(opened, document_id)[1]


@pytest.mark.parametrize("database", ["counters", "deleted_leaves"])
def test_the_old_version_stays_if_the_new_one_cannot_be_counted(store, writer, database):
    opened = writer.open("t", "c")
    with damaged(store, database, schema.u32(opened.collection_id)):
        with pytest.raises(DataLoss, match=f"'t/c' is damaged: its entry in '{database}'"):
            writer.put(opened, prepared("d1", NEW))
        with pytest.raises(DataLoss):
            writer.delete(opened, "d1")
        assert text_of(writer, opened, "d1") == OLD


@pytest.mark.parametrize("database", ["counters", "deleted_leaves"])
def test_damage_to_a_collection_does_not_affect_others_of_a_batch(store, writer, database):
    opened, other = writer.open("t", "c"), writer.open("other", "c")
    batch = [
        (other, prepared("before", NEW)),
        (opened, prepared("d1", NEW)),
        (other, prepared("after", NEW)),
    ]
    with damaged(store, database, schema.u32(opened.collection_id)):
        results = writer.put_many(batch)
        assert outcomes(results) == [IngestOutcome.CREATED, DataLoss, IngestOutcome.CREATED]
        assert text_of(writer, opened, "d1") == OLD
        assert text_of(writer, other, "after") == NEW


def test_a_document_in_no_segment_is_stored_although_deleted_leaves_cannot_be_counted(
    store, writer
):
    opened = writer.open("t", "c")
    with damaged(store, "deleted_leaves", schema.u32(opened.collection_id)):
        batch = [(opened, prepared("d1", NEW)), (opened, prepared("new", NEW))]
        assert outcomes(writer.put_many(batch)) == [DataLoss, IngestOutcome.CREATED]


def test_without_a_new_slot_new_documents_fail_and_new_versions_are_stored(store, writer):
    opened = writer.open("t", "c")
    batch = [(opened, prepared("new", NEW)), (opened, prepared("d1", NEW))]
    with damaged(store, "meta", schema.LAST_SLOT):
        assert outcomes(writer.put_many(batch)) == [DataLoss, IngestOutcome.UPDATED]
        with pytest.raises(DataLoss):
            writer.put(opened, prepared("new", NEW))
        with pytest.raises(DocumentNotFound):
            writer.document(opened, "new")
        assert text_of(writer, opened, "d1") == NEW


@pytest.mark.parametrize("name", [schema.LAST_ORDINAL, schema.COMMIT_CURSOR])
def test_without_the_next_ordinal_or_commit_no_document_of_a_batch_is_stored(store, writer, name):
    opened = writer.open("t", "c")
    batch = [(opened, prepared("new", NEW)), (opened, prepared("d1", NEW))]
    with damaged(store, "meta", name):
        assert outcomes(writer.put_many(batch)) == [DataLoss, DataLoss]
        assert text_of(writer, opened, "d1") == OLD


@pytest.mark.parametrize("database", ["collections", "counters", "deleted_leaves"])
def test_a_document_is_not_replaced_if_its_summaries_cannot_be_removed(store, writer, database):
    writer.create_collection("t", "summarised", SUMMARISED)
    opened = writer.open("t", "summarised")
    document = prepared("d", OLD, SUMMARISED)
    summary = Summary("All of it.", range(document.tree.counts[0]))
    summaries = DocumentSummaries((summary,), unit_vectors(1, 9))
    writer.put_stored(opened, StoredDocument(document, summaries))
    with store.read() as txn:
        summaries_id = txn.collections.require(opened.collection_id).summaries
    for collection_id in (opened.collection_id, summaries_id):
        seal(store, collection_id)
    other = writer.open("other", "c")
    batch = [(opened, prepared("d", NEW, SUMMARISED)), (other, prepared("e", NEW))]
    with damaged(store, database, schema.u32(summaries_id)):
        assert outcomes(writer.put_many(batch)) == [DataLoss, IngestOutcome.CREATED]
        assert text_of(writer, opened, "d") == OLD
    assert writer.status(opened).summary_count == 1


@pytest.mark.parametrize("missing", [True, False])
def test_ingesting_again_repairs_the_record_of_what_the_summaries_summarise(store, writer, missing):
    writer.create_collection("t", "summarised", SUMMARISED)
    opened = writer.open("t", "summarised")
    document = prepared("d", OLD, SUMMARISED)
    leaves = range(document.tree.counts[0])
    summaries = DocumentSummaries(
        (Summary("All of it.", leaves), Summary("The same.", leaves)), unit_vectors(2, 9)
    )
    stored = StoredDocument(document, summaries)
    writer.put_stored(opened, stored)
    if missing:
        with store.write() as txn:
            txn.summarised.delete(next(txn.summarised.keys()))
    else:
        flip(store, "summarised")
        with pytest.raises(DataLoss, match=r"'d' of the summaries.*ingesting the document again"):
            search_by_summaries(store)
    assert check(store).problems != ()
    assert writer.admit("t", "summarised", "d", document.content_hash).unchanged is None
    assert writer.put_stored(opened, stored).outcome is IngestOutcome.UPDATED
    assert check(store).problems == ()
    assert search_by_summaries(store) > 0
    assert writer.put_stored(opened, stored).outcome is IngestOutcome.UNCHANGED


def search_by_summaries(store: Store) -> int:
    """Searches the collection `summarised` by its summaries; returns the count of passages."""
    with (
        closing(EmbeddedReader(store)) as reader,
        reader.snapshot("t", "summarised", summaries=True) as snapshot,
    ):
        query = unit_vectors(1, 9)[0]
        return len(find(snapshot, query, 5, mode=SearchMode.SUMMARY_FIRST).passages)


def test_a_batch_that_fails_halfway_is_undone_and_its_documents_are_put_one_by_one(
    store, writer, monkeypatch
):
    add, opened = DocumentVersions.add, writer.open("t", "c")

    def fail(
        changes: DocumentVersions,
        ordinal: int,
        record: object,
        terms: object,
        document: PreparedDocument,
        *rest: object,
    ) -> None:
        add(changes, ordinal, record, terms, document, *rest)
        if document.document_id == "d1":
            raise DataLoss("damage that is found late")

    monkeypatch.setattr(DocumentVersions, "add", fail)
    batch = [(opened, prepared(f"d{number}", NEW, seed=number)) for number in range(3)]
    results = writer.put_many(batch)
    assert outcomes(results) == [IngestOutcome.UPDATED, DataLoss, IngestOutcome.UPDATED]
    assert [text_of(writer, opened, f"d{number}") for number in range(3)] == [NEW, OLD, NEW]
    assert results[2].sequence == results[0].sequence + 1
    with pytest.raises(DataLoss, match="found late"):
        writer.put(opened, batch[1][1])
    assert text_of(writer, opened, "d1") == OLD


def test_a_damaged_log_entry_is_trimmed_like_any_other(store, writer):
    opened = writer.open("t", "c")
    flip(store, "changes", schema.u32(opened.collection_id))
    trimming = EmbeddedWriter(store, max_log_entries=3)
    assert trimming.put(opened, prepared("d1", NEW)).outcome is IngestOutcome.UPDATED
