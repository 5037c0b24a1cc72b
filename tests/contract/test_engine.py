"""Every storage engine keeps these promises about collections, documents and their changes."""

import threading
from dataclasses import replace

import numpy as np
import pytest

from hrag.engine.engine_documents import PreparedDocument, StoredDocument
from hrag.engine.find import Vector
from hrag.errors import (
    CollectionExists,
    CollectionNotFound,
    DocumentNotFound,
    InvalidArgument,
)
from hrag.types import IngestOutcome, TreeSettings
from hrag.values.ids import parse_chunk_id
from hrag.values.tree import PageSpan, ParsedText, Section
from tests.support.documents.fakes import (
    as_half_precision,
    collection_settings,
    matched_leaves,
    prepared,
    query_vector,
    recall,
    search_leaves,
    search_passages,
    sentences,
)

# Tests of collections.


def test_a_collection_is_found_by_tenant_and_name(catalog):
    settings = collection_settings(TreeSettings((64, 200), 0.25, 1), dimension=3)
    created, sequence = catalog.writer.create_collection("t", "c", settings)
    assert catalog.writer.collection("t", "c") == created
    assert (created.tenant_id, created.name, created.settings) == ("t", "c", settings)
    assert created.document_count == 0
    assert catalog.collection.settings == settings
    with catalog.snapshot() as snapshot:
        assert snapshot.settings == settings
        assert snapshot.sequence == sequence
    assert catalog.readers().sequence("t") == sequence
    assert list(catalog.readers().collections()) == [created]


def test_names_may_be_any_words(catalog):
    """Tenants and collections may have names that an engine uses internally."""
    words = ("collection", "counters", "document", "tree", "usage")
    sequences = {}
    for tenant in words:
        for name in words:
            created = catalog.writer.create_collection(tenant, name, collection_settings())
            sequences[tenant] = created[1]
    for _ in range(2):
        for tenant in words:
            for name in words:
                with catalog.readers().snapshot(tenant, name) as snapshot:
                    assert (snapshot.name, snapshot.sequence) == (name, sequences[tenant])


def test_a_handle_identifies_its_collection(catalog):
    """The id of a collection is never used twice, not even for the same name."""
    catalog.create()
    first = catalog.collection
    assert (first.tenant_id, first.name, first.settings) == ("t", "c", catalog.model.settings)
    assert first == catalog.collection
    catalog.writer.delete_collection("t", "c")
    catalog.create()
    assert catalog.collection.collection_id != first.collection_id


def test_a_second_collection_with_the_same_name_is_refused(catalog):
    catalog.create()
    with pytest.raises(CollectionExists, match="'t' has a collection 'c'"):
        catalog.create()


def test_collections_are_listed_by_name_in_pages(catalog):
    names = ["a", "a-1", "a.b", "a0", "aa", "b"]
    for name in reversed(names):
        catalog.writer.create_collection("t", name, collection_settings())
    catalog.writer.create_collection("t2", "other", collection_settings())
    catalog.writer.create_collection("s", "other", collection_settings())
    for size in (1, 2, 5, 6, 7):
        listed, token = [], None
        while token != "":
            page = catalog.writer.collections("t", size, token or "")
            assert 0 < len(page.items) <= size
            listed += [collection.name for collection in page.items]
            token = page.next_page_token
        assert listed == names
    assert catalog.writer.collections("nobody", 10, "").items == ()


def test_a_deleted_collection_does_not_exist_and_its_name_is_free(filled):
    stale = filled.collection
    before = filled.readers().sequence("t")
    assert filled.writer.delete_collection("t", "c") == before + 1
    for call in (
        lambda: filled.writer.collection("t", "c"),
        lambda: filled.writer.open("t", "c"),
        lambda: filled.writer.delete_collection("t", "c"),
        lambda: filled.writer.admit("t", "c", "d1", ""),
        lambda: filled.snapshot().__enter__(),
        lambda: list(filled.readers().export("t", "c")),
        lambda: filled.writer.put(stale, prepared("d", "text")),
        lambda: filled.writer.put_stored(stale, StoredDocument(prepared("d", "text"))),
        lambda: filled.writer.delete(stale, "d1"),
        lambda: filled.writer.document(stale, "d1"),
        lambda: filled.writer.document_with_text(stale, "d1"),
        lambda: filled.writer.documents(stale, 10, ""),
        lambda: filled.writer.status(stale),
    ):
        with pytest.raises(CollectionNotFound, match="'c'"):
            call()

    filled.create(TreeSettings((40, 50)))
    filled.model.documents.clear()
    filled.fill(prepared("d1", sentences(30), filled.model.settings, seed=7))
    with pytest.raises(CollectionNotFound):
        filled.writer.put(stale, prepared("d", "text"))
    with filled.snapshot() as snapshot:
        leaves = search_leaves(snapshot, query_vector(0), 1000)
    assert recall(leaves, filled.model, query_vector(0), 1000) == 1.0


# Tests of documents.


def test_putting_creates_or_updates_a_document_or_leaves_it_unchanged(filled):
    document = prepared("new", sentences(20), seed=20)
    created = filled.writer.put(filled.collection, document)
    assert created.outcome is IngestOutcome.CREATED
    assert created.sequence == filled.readers().sequence("t")
    assert created.chunks_per_level == document.tree.counts
    last = document.tree.record(2, document.tree.counts[2] - 1)
    assert created.token_count == last.token_start + last.token_count

    again = filled.writer.put(filled.collection, document)
    assert again == replace(created, outcome=IngestOutcome.UNCHANGED)
    assert filled.readers().sequence("t") == created.sequence

    changed = filled.writer.put(filled.collection, prepared("new", sentences(3), seed=21))
    assert changed.outcome is IngestOutcome.UPDATED
    assert changed.sequence == created.sequence + 1
    assert filled.writer.collection("t", "c").document_count == 11


def test_admission_recognises_an_unchanged_document(filled):
    stored = filled.model.documents["d3"]
    known = filled.writer.admit("t", "c", "d3", stored.content_hash)
    assert known.collection == filled.collection
    assert known.unchanged.outcome is IngestOutcome.UNCHANGED
    assert known.unchanged.chunks_per_level == stored.tree.counts
    assert known.unchanged == filled.writer.put(filled.collection, stored)
    for document_id, content_hash in (
        ("d3", "other"),
        ("d3", ""),
        ("nobody", stored.content_hash),
        ("nobody", ""),
    ):
        admission = filled.writer.admit("t", "c", document_id, content_hash)
        assert admission.unchanged is None
        assert admission.collection == filled.collection


def test_an_error_of_one_document_does_not_fail_the_others_of_its_commit(filled):
    """Each document of the commit has a result or an error, in order.

    If the commit has two versions of a document, the later one replaces the earlier one.
    """
    handle, settings = filled.collection, filled.model.settings
    good, same = prepared("new", sentences(9), settings, seed=1), filled.model.documents["d2"]
    bad = replace(good, document_id="bad", vectors=good.vectors[:1])
    newer = prepared("new", sentences(5), settings, seed=2)
    results = filled.writer.put_many([(handle, document) for document in (good, bad, same, newer)])
    assert isinstance(results[1], InvalidArgument)
    outcomes = [results[index].outcome for index in (0, 2, 3)]
    assert outcomes == [IngestOutcome.CREATED, IngestOutcome.UNCHANGED, IngestOutcome.UPDATED]
    assert results[3].sequence == results[0].sequence + 1
    text = filled.writer.document_with_text(handle, "new")[1]
    assert text == newer.parsed.text
    assert filled.writer.put_many([]) == []


def test_a_document_is_stored_unchanged(catalog):
    catalog.create()
    text = "# One\n\nFirst. 中文\r\n" + "\f# Two\n\nSecond 🙂 e\u0301"
    parsed = ParsedText(
        text,
        (Section("One", 1, 0), Section("Two", 1, text.index("# Two"))),
        (PageSpan(7, 0, text.index("\f")), PageSpan(8, text.index("\f"), len(text))),
    )
    document = prepared("d", parsed)
    result = catalog.writer.put(catalog.collection, document)
    info = catalog.writer.document(catalog.collection, "d")
    for name in ("document_id", "title", "source", "mime_type", "metadata"):
        assert getattr(info, name) == getattr(document, name)
    assert (info.page_count, info.section_count) == (2, 2)
    assert (info.chunks_per_level, info.sequence) == (document.tree.counts, result.sequence)
    assert info.token_count == result.token_count
    assert info.text_bytes == len(text.encode())
    assert catalog.writer.document_with_text(catalog.collection, "d")[1] == text


def test_documents_are_listed_by_id_in_pages(filled):
    expected = sorted(filled.model.documents)
    for size in (1, 3, 10, 11):
        listed, token = [], None
        while token != "":
            page = filled.writer.documents(filled.collection, size, token or "")
            assert 0 < len(page.items) <= size
            listed += [info.document_id for info in page.items]
            token = page.next_page_token
        assert listed == expected


def test_a_document_that_does_not_exist_is_not_found(filled):
    for call in (filled.writer.document, filled.writer.document_with_text, filled.writer.delete):
        with pytest.raises(DocumentNotFound, match="no document 'nobody'"):
            call(filled.collection, "nobody")


def test_the_status_counts_the_stored_documents(filled):
    filled.delete("d0")
    status = filled.writer.status(filled.collection)
    documents = filled.model.documents.values()
    assert status.document_count == len(documents)
    assert status.chunk_count == sum(sum(d.tree.counts) for d in documents)
    assert status.leaf_count == filled.model.leaf_count
    assert status.vector_bytes == sum(d.vectors.nbytes for d in documents)
    assert status.text_bytes == sum(len(d.parsed.text.encode()) for d in documents)
    infos = filled.writer.documents(filled.collection, 100, "").items
    assert status.token_count == sum(info.token_count for info in infos)
    assert status.committed_sequence == filled.readers().sequence("t")
    assert (status.tenant.collections, status.tenant.documents) == (1, len(documents))
    assert status.tenant.stored_bytes > status.text_bytes + status.vector_bytes


def test_totals_are_sums_over_tenants(filled):
    other = collection_settings(TreeSettings((32,)))
    filled.writer.create_collection("t2", "c", other)
    filled.writer.put(filled.writer.open("t2", "c"), prepared("d", sentences(9), other))
    handles = (filled.collection, filled.writer.open("t2", "c"))
    statuses = [filled.writer.status(handle) for handle in handles]
    totals = filled.writer.totals()
    assert totals.collections == 2
    assert totals.documents == sum(status.document_count for status in statuses) == 11
    assert totals.leaves == sum(status.leaf_count for status in statuses)
    assert totals.text_bytes == sum(status.text_bytes for status in statuses)
    assert totals.vector_bytes == sum(status.vector_bytes for status in statuses)
    assert (totals.summaries, totals.unsummarised_documents) == (0, 0)


def test_only_the_embedded_engine_reports_the_status_of_its_index(filled):
    """Other engines have no tail and no segments, so they report no such status."""
    status, embedded = filled.writer.status(filled.collection), filled.engine.name == "embedded"
    assert (status.embedded is not None) == embedded
    assert (filled.writer.totals().embedded is not None) == embedded
    assert (filled.readers().status().embedded is not None) == embedded
    assert filled.readers().status().lag_s >= 0
    if status.embedded is not None:
        in_tail = {"tail": range(10), "sealed": range(0), "mixed": range(5, 10)}[filled.state]
        vectors = [filled.model.documents[f"d{number}"].vectors for number in in_tail]
        assert status.embedded.tail_leaf_count == sum(map(len, vectors))
        assert len(status.embedded.segments) == (filled.state != "tail")
        assert status.embedded.sealed_sequence <= status.committed_sequence


@pytest.mark.parametrize("shape", [(4, 16), (5, 15), (0, 16), (5,)])
def test_vectors_with_the_wrong_shape_are_refused(catalog, shape):
    catalog.create()
    document = prepared("d", sentences(11))
    assert document.vectors.shape == (5, 16)
    wrong = replace(document, vectors=np.ones(shape, np.float32))
    with pytest.raises(InvalidArgument, match=r"vectors have shape .*; .*need \(5, 16\)"):
        catalog.writer.put(catalog.collection, wrong)
    assert catalog.writer.documents(catalog.collection, 10, "").items == ()


def test_a_tree_with_another_number_of_levels_than_the_collection_is_refused(catalog):
    catalog.create()
    other = collection_settings(TreeSettings((32,)))
    with pytest.raises(InvalidArgument, match="tree has 1 levels; the collection has 3"):
        catalog.writer.put(catalog.collection, prepared("d", "text", other))


# Tests of sequence numbers.


def test_each_change_of_a_tenant_has_the_next_sequence_number(catalog):
    writer, reader, settings = catalog.writer, catalog.readers(), catalog.model.settings
    assert reader.sequence("t") == 0
    _, created = writer.create_collection("t", "c", settings)
    first = writer.put(catalog.collection, prepared("d", sentences(9), settings)).sequence
    both = writer.put_many(
        [(catalog.collection, prepared(name, sentences(3), settings)) for name in ("e", "f")]
    )
    deleted = writer.delete(catalog.collection, "d")
    dropped = writer.delete_collection("t", "c")
    sequences = [created, first, *(result.sequence for result in both), deleted, dropped]
    assert sequences == [1, 2, 3, 4, 5, 6]
    assert reader.sequence("t") == 6
    assert writer.create_collection("t", "c", settings)[1] == 7


def test_a_change_of_one_tenant_does_not_change_the_sequence_number_of_another(filled):
    reader, before = filled.readers(), filled.readers().sequence("t")
    _, created = filled.writer.create_collection("t2", "c", filled.model.settings)
    theirs = filled.writer.open("t2", "c")
    result = filled.writer.put(theirs, prepared("d", sentences(9), seed=1))
    assert (created, result.sequence, reader.sequence("t2")) == (1, 2, 2)
    assert reader.sequence("t") == before
    with filled.snapshot() as snapshot:
        assert snapshot.sequence == before
    with filled.snapshot("t2") as snapshot:
        assert snapshot.sequence == 2
    assert filled.writer.delete(theirs, "d") == 3
    assert reader.sequence("t") == before
    assert reader.sequence("nobody") == 0


def test_a_snapshot_has_the_sequence_number_of_the_moment_when_it_was_opened(filled):
    """Changes of the tenant's other collections also increase the sequence number."""
    filled.writer.create_collection("t", "c2", filled.model.settings)
    with filled.snapshot() as snapshot:
        before = snapshot.sequence
        assert before == filled.readers().sequence("t")
        filled.writer.delete(filled.collection, "d1")
        assert snapshot.sequence == before
    with filled.snapshot() as snapshot:
        assert snapshot.sequence == before + 1


# Tests of what a snapshot contains after changes.


@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_next_snapshot_does_not_contain_a_deleted_document(filled, level):
    query = filled.model.documents["d9"].vectors[3]
    with filled.snapshot() as snapshot:
        assert search_passages(snapshot, query, 5, level)[0].chunk.document_id == "d9"
    filled.delete("d9")
    with filled.snapshot() as snapshot:
        leaves = search_leaves(snapshot, query, 5)
        passages = search_passages(snapshot, query, 1000, level)
    assert recall(leaves, filled.model, query, 5) == 1.0
    assert len(matched_leaves(passages)) == filled.model.leaf_count
    assert "d9" not in {p.chunk.document_id for p in passages}


@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_next_snapshot_contains_the_new_version_of_a_document(filled, level):
    old = filled.model.documents["d9"]
    with filled.snapshot() as snapshot:
        search_passages(snapshot, old.vectors[3], 5, level)
    new = prepared("d9", sentences(9, 99), seed=99)
    filled.writer.put(filled.collection, new)
    filled.model.put(new)
    with filled.snapshot() as snapshot:
        for query in (old.vectors[3], new.vectors[1]):
            leaves = search_leaves(snapshot, query, 5)
            assert recall(leaves, filled.model, query, 5) == 1.0
            passages = search_passages(snapshot, query, 1000, level)
            assert len(matched_leaves(passages)) == filled.model.leaf_count
            for passage in passages:
                if passage.chunk.document_id == "d9":
                    assert passage.chunk.content in new.parsed.text


def test_near_leaves_are_found_although_many_near_leaves_are_deleted(opened):
    """Most leaves near the query are deleted. The remaining ones are found, not farther leaves."""
    opened.create()
    axis = np.eye(16, dtype=np.float32)[0]
    opened.fill(*(_near(axis if n < 20 else -axis, n) for n in range(40)))
    for number in range(17):
        opened.delete(f"d{number:02}")
    with opened.snapshot() as snapshot:
        leaves = search_leaves(snapshot, axis, 12)
    assert recall(leaves, opened.model, axis, 12) == 1.0


def _near(direction: Vector, number: int) -> PreparedDocument:
    """Returns the document `d<number>`, whose vectors are near to `direction`."""
    document = prepared(f"d{number:02}", sentences(11, number), seed=number)
    vectors = direction + 0.3 * document.vectors
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return replace(document, vectors=as_half_precision(vectors))


def test_a_snapshot_does_not_change_while_documents_are_written(filled):
    """While a thread replaces and deletes documents, snapshots contain only whole documents."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def write() -> None:
        try:
            for number in range(60):
                document = prepared(f"w{number % 3}", sentences(9, number), seed=100 + number)
                filled.writer.put(filled.collection, document)
                if number % 5 == 4:
                    filled.writer.delete(filled.collection, f"w{number % 3}")
        except BaseException as error:
            failures.append(error)
        finally:
            stop.set()

    writer = threading.Thread(target=write)
    writer.start()
    rounds = 0
    while not stop.is_set() or rounds < 3:
        rounds += 1
        query = query_vector(rounds)
        with filled.snapshot() as snapshot:
            sequence = snapshot.sequence
            first = search_passages(snapshot, query, 1000, 0, keep_overlap=True)
            leaves = matched_leaves(first)
            for document_id in {document_id for document_id, _ in leaves}:
                indexes = {leaf for name, leaf in leaves if name == document_id}
                assert indexes == set(range(len(indexes)))
            for passage in first:
                assert snapshot.chunk(parse_chunk_id(passage.chunk.chunk_id)).chunk == passage.chunk
            assert search_passages(snapshot, query, 1000, 0, keep_overlap=True) == first
            assert snapshot.sequence == sequence
    writer.join()
    assert failures == []
    assert {f"d{n}" for n in range(10)} <= {document_id for document_id, _ in leaves}


def test_a_new_reader_finds_the_same_passages(filled):
    """The results do not depend on what the first reader has cached."""
    with filled.snapshot() as snapshot:
        before = search_passages(snapshot, query_vector(8), 30, 2)
    filled.restart()
    with filled.snapshot() as snapshot:
        assert search_passages(snapshot, query_vector(8), 30, 2) == before
