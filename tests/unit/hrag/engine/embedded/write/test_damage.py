"""Writes to a store in which something that documents share is damaged: whole or not at all.

Each test takes the damage back at its end, so that the check of the store finds what a write
may have left halfway.
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
    """A sealed collection of three documents, and an empty one of another tenant."""
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
    """The first entry from `key` on is damaged; the check finds as much before as after."""
    flip(store, database, key)
    problems = check(store).problems
    assert problems != ()
    yield
    assert check(store).problems == problems
    flip(store, database, key)


def outcomes(results: Sequence[IngestResult | HragError]) -> list[IngestOutcome | type[HragError]]:
    return [each.outcome if isinstance(each, IngestResult) else type(each) for each in results]


def text_of(writer: EmbeddedWriter, opened: CollectionHandle, document_id: str) -> str:
    return writer.document_with_text(opened, document_id)[1]


@pytest.mark.parametrize("database", ["counters", "deleted_leaves"])
def test_the_old_version_stays_where_the_new_one_cannot_be_counted(store, writer, database):
    opened = writer.open("t", "c")
    with damaged(store, database, schema.u32(opened.collection_id)):
        with pytest.raises(DataLoss, match=f"'t/c' is damaged: its entry in '{database}'"):
            writer.put(opened, prepared("d1", NEW))
        with pytest.raises(DataLoss):
            writer.delete(opened, "d1")
        assert text_of(writer, opened, "d1") == OLD


@pytest.mark.parametrize("database", ["counters", "deleted_leaves"])
def test_damage_to_a_collection_is_no_matter_of_others_in_the_group(store, writer, database):
    opened, other = writer.open("t", "c"), writer.open("other", "c")
    group = [
        (other, prepared("before", NEW)),
        (opened, prepared("d1", NEW)),
        (other, prepared("after", NEW)),
    ]
    with damaged(store, database, schema.u32(opened.collection_id)):
        results = writer.put_many(group)
        assert outcomes(results) == [IngestOutcome.CREATED, DataLoss, IngestOutcome.CREATED]
        assert text_of(writer, opened, "d1") == OLD
        assert text_of(writer, other, "after") == NEW


def test_a_document_that_no_segment_holds_needs_no_count_of_its_deleted_leaves(store, writer):
    opened = writer.open("t", "c")
    with damaged(store, "deleted_leaves", schema.u32(opened.collection_id)):
        group = [(opened, prepared("d1", NEW)), (opened, prepared("new", NEW))]
        assert outcomes(writer.put_many(group)) == [DataLoss, IngestOutcome.CREATED]


def test_without_a_slot_nothing_is_written_and_a_new_version_needs_none(store, writer):
    opened = writer.open("t", "c")
    group = [(opened, prepared("new", NEW)), (opened, prepared("d1", NEW))]
    with damaged(store, "meta", schema.LAST_SLOT):
        assert outcomes(writer.put_many(group)) == [DataLoss, IngestOutcome.UPDATED]
        with pytest.raises(DataLoss):
            writer.put(opened, prepared("new", NEW))
        with pytest.raises(DocumentNotFound):
            writer.document(opened, "new")
        assert text_of(writer, opened, "d1") == NEW


@pytest.mark.parametrize("name", [schema.LAST_ORDINAL, schema.COMMIT_CURSOR])
def test_without_the_number_of_a_change_no_document_of_a_group_is_stored(store, writer, name):
    opened = writer.open("t", "c")
    group = [(opened, prepared("new", NEW)), (opened, prepared("d1", NEW))]
    with damaged(store, "meta", name):
        assert outcomes(writer.put_many(group)) == [DataLoss, DataLoss]
        assert text_of(writer, opened, "d1") == OLD


@pytest.mark.parametrize("database", ["collections", "counters", "deleted_leaves"])
def test_a_document_stays_with_its_summaries_where_those_cannot_be_removed(store, writer, database):
    writer.create_collection("t", "summarised", SUMMARISED)
    opened = writer.open("t", "summarised")
    document = prepared("d", OLD, SUMMARISED)
    summary = Summary("All of it.", range(document.tree.counts[0]))
    summaries = DocumentSummaries((summary,), unit_vectors(1, 9))
    writer.put_stored(opened, StoredDocument(document, summaries))
    with store.read() as txn:
        number = txn.collections.require(opened.collection_id).summaries
    for each in (opened.collection_id, number):
        seal(store, each)
    other = writer.open("other", "c")
    group = [(opened, prepared("d", NEW, SUMMARISED)), (other, prepared("e", NEW))]
    with damaged(store, database, schema.u32(number)):
        assert outcomes(writer.put_many(group)) == [DataLoss, IngestOutcome.CREATED]
        assert text_of(writer, opened, "d") == OLD
    assert writer.status(opened).summary_count == 1


@pytest.mark.parametrize("missing", [True, False])
def test_ingesting_again_mends_what_says_of_what_summaries_are(store, writer, missing):
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
    """Returns how many passages are found in the collection `summarised`."""
    with (
        closing(EmbeddedReader(store)) as reader,
        reader.snapshot("t", "summarised", summaries=True) as snapshot,
    ):
        query = unit_vectors(1, 9)[0]
        return len(find(snapshot, query, 5, mode=SearchMode.SUMMARY_FIRST).passages)


def test_what_fails_halfway_is_undone_and_its_group_put_one_by_one(store, writer, monkeypatch):
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
    group = [(opened, prepared(f"d{number}", NEW, seed=number)) for number in range(3)]
    results = writer.put_many(group)
    assert outcomes(results) == [IngestOutcome.UPDATED, DataLoss, IngestOutcome.UPDATED]
    assert [text_of(writer, opened, f"d{number}") for number in range(3)] == [NEW, OLD, NEW]
    assert results[2].sequence == results[0].sequence + 1
    with pytest.raises(DataLoss, match="found late"):
        writer.put(opened, group[1][1])
    assert text_of(writer, opened, "d1") == OLD


def test_a_log_entry_that_is_damaged_is_trimmed_as_any_other(store, writer):
    opened = writer.open("t", "c")
    flip(store, "changes", schema.u32(opened.collection_id))
    trimming = EmbeddedWriter(store, max_log_entries=3)
    assert trimming.put(opened, prepared("d1", NEW)).outcome is IngestOutcome.UPDATED
