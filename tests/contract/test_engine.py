"""What every storage engine promises of its collections and documents."""

import threading
from dataclasses import replace

import numpy as np
import pytest

from hrag.engine import PreparedDocument, Vector
from hrag.errors import (
    CollectionExists,
    CollectionNotFound,
    DocumentNotFound,
    InvalidArgument,
)
from hrag.ids import parse_chunk_id
from hrag.tree import PageSpan, ParsedText, Section
from hrag.types import IngestOutcome, TreeSettings
from tests.fakes import (
    collection_settings,
    matched_leaves,
    prepared,
    query_vector,
    recall,
    search_leaves,
    search_passages,
    sentences,
)

# Collections


def test_a_collection_is_found_by_tenant_and_name(catalog):
    settings = collection_settings(TreeSettings((64, 200), 0.25, 1), dimension=3)
    created, sequence = catalog.writer.create_collection("t", "c", settings)
    assert catalog.writer.collection("t", "c") == created
    assert (created.tenant_id, created.name, created.settings) == ("t", "c", settings)
    assert created.document_count == 0
    assert catalog.collection.settings == catalog.readers().settings("t", "c") == settings
    assert catalog.readers().sequence() == sequence


def test_a_second_collection_of_the_name_is_refused(catalog):
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
        found, token = [], None
        while token != "":
            page = catalog.writer.collections("t", size, token or "")
            assert 0 < len(page.items) <= size
            found += [collection.name for collection in page.items]
            token = page.next_page_token
        assert found == names
    assert catalog.writer.collections("nobody", 10, "").items == ()


def test_a_deleted_collection_is_gone_and_its_name_free(filled):
    stale = filled.collection
    before = filled.readers().sequence()
    assert filled.writer.delete_collection("t", "c") == before + 1
    for call in (
        lambda: filled.writer.collection("t", "c"),
        lambda: filled.writer.open("t", "c"),
        lambda: filled.writer.delete_collection("t", "c"),
        lambda: filled.readers().settings("t", "c"),
        lambda: filled.snapshot().__enter__(),
        lambda: filled.writer.put(stale, prepared("d", "text")),
        lambda: filled.writer.delete(stale, "d1"),
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
        found = search_leaves(snapshot, query_vector(0), 1000)
    assert recall(found, filled.model, query_vector(0), 1000) == 1.0


# Documents


def test_putting_creates_updates_or_finds_the_same(filled):
    document = prepared("new", sentences(20), seed=20)
    created = filled.writer.put(filled.collection, document)
    assert created.outcome is IngestOutcome.CREATED
    assert created.sequence == filled.readers().sequence()
    assert created.chunks_per_level == document.tree.counts
    last = document.tree.record(2, document.tree.counts[2] - 1)
    assert created.token_count == last.token_start + last.token_count

    again = filled.writer.put(filled.collection, document)
    assert again == replace(created, outcome=IngestOutcome.UNCHANGED)
    assert filled.readers().sequence() == created.sequence

    changed = filled.writer.put(filled.collection, prepared("new", sentences(3), seed=21))
    assert changed.outcome is IngestOutcome.UPDATED
    assert changed.sequence == created.sequence + 1
    assert filled.writer.collection("t", "c").document_count == 11


def test_unchanged_knows_the_stored_hash_only(filled):
    stored = filled.model.documents["d3"]
    found = filled.writer.unchanged(filled.collection, "d3", stored.content_hash)
    assert found is not None
    assert found.outcome is IngestOutcome.UNCHANGED
    assert found.chunks_per_level == stored.tree.counts
    assert filled.writer.unchanged(filled.collection, "d3", "other") is None
    assert filled.writer.unchanged(filled.collection, "nobody", stored.content_hash) is None


def test_a_document_is_kept_as_it_came(catalog):
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
    wanted = sorted(filled.model.documents)
    for size in (1, 3, 10, 11):
        found, token = [], None
        while token != "":
            page = filled.writer.documents(filled.collection, size, token or "")
            assert 0 < len(page.items) <= size
            found += [info.document_id for info in page.items]
            token = page.next_page_token
        assert found == wanted


def test_what_is_not_there_is_not_found(filled):
    for call in (filled.writer.document, filled.writer.document_with_text, filled.writer.delete):
        with pytest.raises(DocumentNotFound, match="no document 'nobody'"):
            call(filled.collection, "nobody")


def test_status_counts_what_lives(filled):
    filled.writer.delete(filled.collection, "d0")
    del filled.model.documents["d0"]
    status = filled.writer.status(filled.collection)
    documents = filled.model.documents.values()
    assert status.document_count == len(documents)
    assert status.chunk_count == sum(sum(d.tree.counts) for d in documents)
    assert status.leaf_count == filled.model.leaf_count
    assert status.vector_bytes == sum(d.vectors.nbytes for d in documents)
    assert status.text_bytes == sum(len(d.parsed.text.encode()) for d in documents)
    infos = filled.writer.documents(filled.collection, 100, "").items
    assert status.token_count == sum(info.token_count for info in infos)
    assert status.committed_sequence == filled.readers().sequence()
    assert status.sealed_sequence <= status.committed_sequence
    in_tail = {
        "tail": documents,
        "sealed": (),
        "mixed": [d for d in documents if d.document_id > "d4"],
    }
    assert status.tail_leaf_count == sum(len(d.vectors) for d in in_tail[filled.state])
    assert len(status.segments) == (filled.state != "tail")


@pytest.mark.parametrize("shape", [(4, 16), (5, 15), (0, 16), (5,)])
def test_vectors_that_do_not_fit_the_tree_and_the_collection_are_refused(catalog, shape):
    catalog.create()
    document = prepared("d", sentences(11))
    assert document.vectors.shape == (5, 16)
    wrong = replace(document, vectors=np.ones(shape, np.float32))
    with pytest.raises(InvalidArgument, match=r"vectors have shape .*; .*need \(5, 16\)"):
        catalog.writer.put(catalog.collection, wrong)
    assert catalog.writer.documents(catalog.collection, 10, "").items == ()


def test_a_tree_of_other_levels_than_the_collection_is_refused(catalog):
    catalog.create()
    other = collection_settings(TreeSettings((32,)))
    with pytest.raises(InvalidArgument, match="tree has 1 levels; the collection's have 3"):
        catalog.writer.put(catalog.collection, prepared("d", "text", other))


# Freshness


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_deleted_document_is_gone_from_the_next_snapshot(filled, level):
    query = filled.model.documents["d9"].vectors[3]
    with filled.snapshot() as snapshot:
        assert search_passages(snapshot, query, 5, level)[0].chunk.document_id == "d9"
    filled.writer.delete(filled.collection, "d9")
    del filled.model.documents["d9"]
    with filled.snapshot() as snapshot:
        found = search_leaves(snapshot, query, 5)
        passages = search_passages(snapshot, query, 1000, level)
    assert recall(found, filled.model, query, 5) == 1.0
    assert len(matched_leaves(passages)) == filled.model.leaf_count
    assert "d9" not in {p.chunk.document_id for p in passages}


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_replaced_document_is_new_in_the_next_snapshot(filled, level):
    old = filled.model.documents["d9"]
    with filled.snapshot() as snapshot:
        search_passages(snapshot, old.vectors[3], 5, level)
    new = prepared("d9", sentences(9, 99), seed=99)
    filled.writer.put(filled.collection, new)
    filled.model.put(new)
    with filled.snapshot() as snapshot:
        for query in (old.vectors[3], new.vectors[1]):
            found = search_leaves(snapshot, query, 5)
            assert recall(found, filled.model, query, 5) == 1.0
            passages = search_passages(snapshot, query, 1000, level)
            assert len(matched_leaves(passages)) == filled.model.leaf_count
            for passage in passages:
                if passage.chunk.document_id == "d9":
                    assert passage.chunk.content in new.parsed.text


def test_far_leaves_never_take_the_places_of_near_ones_behind_dead_ones(opened):
    """Of many leaves near the query most are deleted; the living ones must still be found."""
    opened.create()
    axis = np.eye(16, dtype=np.float32)[0]
    opened.fill(*(_beside(axis if n < 20 else -axis, n) for n in range(40)))
    for number in range(17):
        opened.writer.delete(opened.collection, f"d{number:02}")
        del opened.model.documents[f"d{number:02}"]
    with opened.snapshot() as snapshot:
        found = search_leaves(snapshot, axis, 12)
    assert recall(found, opened.model, axis, 12) == 1.0


def _beside(direction: Vector, number: int) -> PreparedDocument:
    document = prepared(f"d{number:02}", sentences(11, number), seed=number)
    vectors = direction + 0.3 * document.vectors
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return replace(document, vectors=vectors)


def test_a_snapshot_stays_as_it_was_while_writes_go_on(filled):
    """One thread replaces and deletes; every snapshot holds whole documents of one change."""
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
            first = search_passages(snapshot, query, 1000, 0)
            leaves = matched_leaves(first)
            for document_id in {document_id for document_id, _ in leaves}:
                held = {leaf for name, leaf in leaves if name == document_id}
                assert held == set(range(len(held)))
            for passage in first:
                assert snapshot.chunk(parse_chunk_id(passage.chunk.chunk_id)).chunk == passage.chunk
            assert search_passages(snapshot, query, 1000, 0) == first
            assert snapshot.sequence == sequence
    writer.join()
    assert failures == []
    assert {f"d{n}" for n in range(10)} <= {document_id for document_id, _ in leaves}


def test_a_reader_that_starts_anew_finds_the_same(filled):
    """What is committed does not depend on what the first reader held in memory."""
    with filled.snapshot() as snapshot:
        before = search_passages(snapshot, query_vector(8), 30, 2)
    filled.restart()
    with filled.snapshot() as snapshot:
        assert search_passages(snapshot, query_vector(8), 30, 2) == before
