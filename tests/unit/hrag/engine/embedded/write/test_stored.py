"""Tests of storing documents of another store, each with its summaries in one change."""

from dataclasses import replace

import pytest

from hrag.engine import DocumentSummaries, StoredDocument, Summary
from hrag.engine.embedded.store.content import ContentPart
from hrag.engine.embedded.store.queries import address_of, find_document
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.errors import InvalidArgument, StorageFull
from hrag.types import IngestOutcome, SummaryUnit
from hrag.values.tree import PageSpan, ParsedText, Section
from tests.support.documents.fakes import collection_settings, prepared, sentences, unit_vectors
from tests.support.engines.summarisers import ranges_of, texts_of

SETTINGS = collection_settings(summaries=SummaryUnit.CHUNK)
TEXT = sentences(40)
DOCUMENT = prepared(
    "d", ParsedText(TEXT, (Section("One", 1, 0),), (PageSpan(7, 0, len(TEXT)),)), SETTINGS, seed=3
)
LEAVES = DOCUMENT.tree.counts[0]
SUMMARIES = DocumentSummaries(
    (Summary("All of it.", range(LEAVES)), Summary("The end.", range(4, LEAVES))),
    unit_vectors(2, 9),
)


@pytest.fixture
def writer(store):
    writer = EmbeddedWriter(store)
    writer.create_collection("t", "c", SETTINGS)
    return writer


def everything_of(store, collection: int, document_id: str) -> list[bytes]:
    """Returns all that is stored of a document, except its sequence number and collection id."""
    with store.read() as txn:
        ordinal, record = find_document(txn, collection, document_id)
        address = address_of(txn, collection, ordinal)
        values = [bytes(txn.contents.get(address, part)) for part in ContentPart]
    return [replace(record, sequence=0, collection=0).to_bytes(), *values]


def test_a_document_with_its_summaries_is_stored_and_needs_no_others(store, writer):
    opened = writer.open("t", "c")
    result = writer.put_stored(opened, StoredDocument(DOCUMENT, SUMMARIES))
    assert result.outcome is IngestOutcome.CREATED
    status = writer.status(opened)
    assert (status.document_count, status.summary_count) == (1, 2)
    assert (status.unsummarised_documents, status.summary_tokens) == (0, 0)
    assert writer.next_unsummarised("fake") is None
    assert texts_of(writer) == ["All of it.", "The end."]
    assert ranges_of(store) == [(range(4, LEAVES),)]


def test_a_document_is_stored_as_if_it_had_been_put_and_then_summarised(store, writer):
    writer.create_collection("t", "other", SETTINGS)
    other = writer.open("t", "other")
    writer.put(other, DOCUMENT)
    writer.put_summaries(writer.next_unsummarised("fake"), SUMMARIES)
    opened = writer.open("t", "c")
    writer.put_stored(opened, StoredDocument(DOCUMENT, SUMMARIES))
    collection_ids = [opened.collection_id, other.collection_id]
    moved, put = (everything_of(store, collection_id, "d") for collection_id in collection_ids)
    assert moved == put
    # The summary collection of a collection has the next id.
    moved, put = (everything_of(store, collection_id + 1, "d") for collection_id in collection_ids)
    assert moved == put
    with store.read() as txn:
        records = list(txn.summarised.values())
    assert records[0].sections == records[1].sections


def test_a_document_with_an_empty_list_of_summaries_does_not_wait_for_any(store, writer):
    none = DocumentSummaries((), unit_vectors(0, 0))
    writer.put_stored(writer.open("t", "c"), StoredDocument(DOCUMENT, none))
    assert writer.status(writer.open("t", "c")).unsummarised_documents == 0
    assert ranges_of(store) == []


def test_a_document_without_a_list_of_summaries_waits_for_them(writer):
    writer.put_stored(writer.open("t", "c"), StoredDocument(DOCUMENT))
    assert writer.next_unsummarised("fake").document_id == "d"


def test_storing_an_unchanged_document_again_adds_only_missing_summaries(store, writer):
    opened = writer.open("t", "c")
    first = writer.put(opened, DOCUMENT)
    again = writer.put_stored(opened, StoredDocument(DOCUMENT, SUMMARIES))
    assert again == replace(first, outcome=IngestOutcome.UNCHANGED)
    assert writer.status(opened).summary_count == 2
    sequence = writer.status(opened).committed_sequence
    writer.put_stored(opened, StoredDocument(DOCUMENT, SUMMARIES))
    assert writer.status(opened).committed_sequence == sequence
    assert len(ranges_of(store)) == 1


def test_a_newer_version_replaces_the_document_and_its_summaries(store, writer):
    opened = writer.open("t", "c")
    writer.put_stored(opened, StoredDocument(DOCUMENT, SUMMARIES))
    newer = prepared("d", sentences(3), SETTINGS, seed=8)
    summary = DocumentSummaries((Summary("Short.", range(1)),), unit_vectors(1, 4))
    result = writer.put_stored(opened, StoredDocument(newer, summary))
    assert result.outcome is IngestOutcome.UPDATED
    assert texts_of(writer) == ["Short."]
    assert ranges_of(store) == [()]


def test_a_collection_without_summaries_refuses_them(writer):
    writer.create_collection("t", "plain", collection_settings())
    plain = writer.open("t", "plain")
    with pytest.raises(InvalidArgument, match="'plain' was created without summaries"):
        writer.put_stored(plain, StoredDocument(DOCUMENT, SUMMARIES))
    assert writer.put_stored(plain, StoredDocument(DOCUMENT)).outcome is IngestOutcome.CREATED


def test_a_document_with_wrong_summaries_is_not_stored(writer):
    opened = writer.open("t", "c")
    wrong = DocumentSummaries(SUMMARIES.summaries, unit_vectors(3, 9))
    with pytest.raises(InvalidArgument, match="vectors have shape"):
        writer.put_stored(opened, StoredDocument(DOCUMENT, wrong))
    assert writer.status(opened).document_count == 0


def test_a_document_is_refused_on_a_full_disk(store, writer, monkeypatch):
    def full(extra_bytes: int) -> None:
        raise StorageFull("the disk is full")

    monkeypatch.setattr(store, "growing_write", full)
    with pytest.raises(StorageFull):
        writer.put_stored(writer.open("t", "c"), StoredDocument(DOCUMENT, SUMMARIES))
