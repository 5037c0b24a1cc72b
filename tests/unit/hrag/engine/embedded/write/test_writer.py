"""Tests of the writer: one transaction per document, and a change log that readers can rely on."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import lmdb
import numpy as np
import pytest

from hrag.engine.common import validation
from hrag.engine.embedded.admin.check import check
from hrag.engine.embedded.maintenance import reclaim
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.store.lmdb_records import Change, Counters
from hrag.engine.embedded.store.tables import Database
from hrag.engine.embedded.store.transactions import Txn
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.errors import CollectionNotFound, DataLoss, StorageFull, TooLarge
from hrag.types import IngestOutcome
from hrag.values import canonical_json
from hrag.values.deadline import Deadline
from tests.support.documents.fakes import collection_settings, prepared, sentences
from tests.support.engines.damage import entries_of


@pytest.fixture
def writer(store):
    writer = EmbeddedWriter(store)
    writer.create_collection("t", "c", collection_settings())
    return writer


def entry_counts(store: Store) -> dict[str, int]:
    """Returns the count of entries of each LMDB database."""
    with store.read() as txn:
        return txn.entry_counts()


def counters_of(store: Store, collection_id: int) -> Counters:
    with store.read() as txn:
        return txn.counters.require(collection_id)


def log_of(store: Store, collection_id: int) -> list[tuple[int, Change]]:
    """Returns the changes of a collection, each after its sequence number."""
    with store.read() as txn:
        return [(sequence, change) for (_, sequence), change in txn.changes.entries(collection_id)]


def test_a_deleted_document_leaves_only_log_entries_and_a_free_slot(store, writer):
    opened = writer.open("t", "c")
    before = entry_counts(store)
    writer.put(opened, prepared("d", sentences(30)))
    writer.put(opened, prepared("d", sentences(20), seed=1))
    stored = entry_counts(store)
    for name in ("document_ids", "ordinals", "documents"):
        assert stored[name] == before[name] + 1
    assert stored["texts"] > before["texts"]
    writer.delete(opened, "d")
    left = {"changes": 3, "commits": before["commits"] + 3, "free_slots": 1, "meta": stored["meta"]}
    assert entry_counts(store) == {**before, **left}


def test_every_version_has_an_ordinal_of_its_own(store, writer):
    opened = writer.open("t", "c")
    for seed in range(3):
        writer.put(opened, prepared("d", sentences(5), seed=seed))
    writer.delete(opened, "d")
    writer.put(opened, prepared("d", sentences(5), seed=0))
    assert [change for _, change in log_of(store, opened.collection_id)] == [
        Change(1, 0),
        Change(2, 1),
        Change(3, 2),
        Change(0, 3),
        Change(4, 0),
    ]


def test_log_and_counters_have_the_sequence_number_of_the_reply(store, writer):
    opened = writer.open("t", "c")
    result = writer.put(opened, prepared("d", sentences(5)))
    assert log_of(store, opened.collection_id)[-1][0] == result.sequence
    assert counters_of(store, opened.collection_id).sequence == result.sequence
    deleted = writer.delete(opened, "d")
    assert log_of(store, opened.collection_id)[-1][0] == deleted
    assert counters_of(store, opened.collection_id).sequence == deleted


def test_ingesting_the_same_document_again_writes_nothing(store, writer):
    opened, document = writer.open("t", "c"), prepared("d", sentences(200))
    first = writer.put(opened, document)
    size = (store.directory / "data.mdb").stat().st_blocks
    content = _checksum(store)
    transaction = store.env.info()["last_txnid"]
    assert writer.admit("t", "c", "d", document.content_hash).unchanged is not None
    again = writer.put(opened, document)
    assert again == replace(first, outcome=IngestOutcome.UNCHANGED)
    assert store.env.info()["last_txnid"] == transaction
    assert (store.directory / "data.mdb").stat().st_blocks == size
    assert _checksum(store) == content


def _checksum(store: Store) -> int:
    return hash((store.directory / "data.mdb").read_bytes())


def test_the_change_log_keeps_only_its_last_entries(store):
    writer = EmbeddedWriter(store, max_log_entries=4)
    _, created = writer.create_collection("t", "c", collection_settings())
    opened = writer.open("t", "c")
    assert counters_of(store, opened.collection_id).log_start == created
    for seed in range(10):
        writer.put(opened, prepared("d", sentences(3), seed=seed))
    kept = [sequence for sequence, _ in log_of(store, opened.collection_id)]
    assert kept == [created + 7, created + 8, created + 9, created + 10]
    counters = counters_of(store, opened.collection_id)
    assert (counters.log_entries, counters.log_start) == (4, created + 6)


@dataclass
class FakeMaintenance:
    """A fake maintenance that records the ids of the collections that changed."""

    collections: list[int]

    def changed(self, collection: int) -> None:
        self.collections.append(collection)

    def wait_for_capacity(self, collection: int, deadline: Deadline) -> None:
        deadline.check(f"waiting for {collection}")


def test_maintenance_is_notified_of_every_commit(store):
    changed: list[int] = []
    writer = EmbeddedWriter(store, FakeMaintenance(changed))
    writer.create_collection("t", "c", collection_settings())
    opened, document = writer.open("t", "c"), prepared("d", sentences(3))
    changed.clear()
    writer.put(opened, document)
    writer.put(opened, document)
    assert changed == [opened.collection_id]
    writer.delete(opened, "d")
    writer.delete_collection("t", "c")
    assert changed == [opened.collection_id] * 3


def test_a_document_has_at_most_as_many_leaves_as_a_label_can_count(store, writer, monkeypatch):
    document = prepared("d", sentences(30))
    leaves = document.tree.counts[0]
    monkeypatch.setattr(validation, "MAX_LEAVES", leaves - 1)
    with pytest.raises(TooLarge, match=f"has {leaves} leaves; at most {leaves - 1} are allowed"):
        writer.put(writer.open("t", "c"), document)
    monkeypatch.setattr(validation, "MAX_LEAVES", leaves)
    assert writer.put(writer.open("t", "c"), document).outcome is IngestOutcome.CREATED


@pytest.mark.parametrize("layout", ["F", "view", "big-endian"])
def test_vectors_are_stored_row_by_row_whatever_their_layout(store, writer, layout):
    document = prepared("d", sentences(30))
    vectors = document.vectors
    changed = {
        "F": np.asfortranarray(vectors),
        "view": np.repeat(vectors, 2, axis=1)[:, ::2],
        "big-endian": vectors.astype(">f4"),
    }[layout]
    writer.put(writer.open("t", "c"), replace(document, vectors=changed))
    with store.read() as txn:
        stored = bytes(txn.contents.vectors(schema.address(schema.u64(1), 1, 1)))
    assert stored == vectors.tobytes()


@pytest.mark.parametrize("database", ["document_ids", "texts", "changes", "counters"])
def test_a_put_that_fails_midway_changes_nothing(store, writer, monkeypatch, database):
    opened = writer.open("t", "c")
    writer.put(opened, prepared("d", sentences(30)))
    before, size = _all_entries(store), entry_counts(store)
    with pytest.raises(StorageFull), _failing_at(store, monkeypatch, database):
        writer.put(opened, prepared("d", sentences(40), seed=1))
    assert _all_entries(store) == before
    assert entry_counts(store) == size
    assert writer.put(opened, prepared("d", sentences(40), seed=1)).sequence == 3


def _all_entries(store: Store) -> dict[str, list[tuple[bytes, bytes]]]:
    """Returns the keys and values of each LMDB database."""
    with store.read() as txn:
        return {name: entries_of(txn, name) for name in schema.DATABASES}


class _FullAt:
    """An LMDB write transaction that raises the error of a full disk at a write to one database."""

    def __init__(self, raw: Any, database: Database) -> None:
        self._raw = raw
        self._handle = database.handle

    def __getattr__(self, name: str) -> object:
        return getattr(self._raw, name)

    def put(self, *args: object, db: object, **options: object) -> None:
        if db is self._handle:
            raise lmdb.DiskError("mdb_put: No space left on device")
        self._raw.put(*args, db=db, **options)


@contextmanager
def _failing_at(store: Store, monkeypatch: pytest.MonkeyPatch, database: str) -> Iterator[None]:
    """Makes every write to `database` fail as on a full disk."""
    write = store.write

    @contextmanager
    def failing() -> Iterator[Txn]:
        with write() as txn:
            txn.raw = _FullAt(txn.raw, store.databases[database])
            yield txn

    with monkeypatch.context() as patch:
        patch.setattr(store, "write", failing)
        yield


# Tests of deleted collections.


def test_a_deleted_collection_is_reclaimed_step_by_step(store, writer):
    reclaim_two_documents = partial(reclaim.reclaim_part, max_documents=2)
    before = entry_counts(store)
    opened = writer.open("t", "c")
    for number in range(5):
        writer.put(opened, prepared(f"d{number}", sentences(3)))
    writer.delete_collection("t", "c")
    assert check(store).problems == ()
    rounds = 0
    while reclaim.reclaim_some(store, reclaim_two_documents):
        rounds += 1
        assert check(store).problems == ()
    assert rounds == 4  # Two, two and one document were reclaimed, then the collection itself.
    after = entry_counts(store)
    assert after["meta"] == before["meta"] + 2  # The entries LAST_ORDINAL and LAST_SLOT are new.
    left = ("meta", "commits", "free_slots", "tenants")
    assert sum(after.values()) == sum(after[name] for name in left)
    assert after["free_slots"] == 5


def test_a_slot_is_used_again_and_an_ordinal_never_is(store, writer):
    opened = writer.open("t", "c")
    for number in range(3):
        writer.put(opened, prepared(f"d{number}", sentences(5)))
    writer.delete(opened, "d1")
    writer.put(opened, prepared("d0", sentences(6), seed=1))
    writer.put(opened, prepared("new", sentences(7), seed=2))
    with store.read() as txn:
        assert txn.number(schema.LAST_SLOT) == 3
        assert txn.number(schema.LAST_ORDINAL) == 5
    for name, size in (("d0", 6), ("d2", 5), ("new", 7)):
        assert writer.document_with_text(opened, name)[1].count("tells") == size


def test_reclaiming_a_collection_does_not_change_others(store, writer):
    writer.create_collection("t", "other", collection_settings())
    for name in ("c", "other"):
        writer.put(writer.open("t", name), prepared("d", sentences(30)))
    writer.delete_collection("t", "c")
    while reclaim.reclaim_some(store):
        pass
    assert writer.document_with_text(writer.open("t", "other"), "d")[1] == sentences(30)
    assert entry_counts(store)["documents"] == 1


def test_without_deleted_collections_there_is_nothing_to_reclaim(store, writer):
    assert not reclaim.reclaim_some(store)


def test_a_missing_entry_is_reported_as_damage(store, writer):
    opened = writer.open("t", "c")
    with store.write() as txn:
        counters = txn.counters.require(opened.collection_id)
        txn.counters.delete(opened.collection_id)
    with pytest.raises(DataLoss, match=r"the store is damaged: .* `hrag check` names the entry"):
        writer.status(opened)
    with store.write() as txn:
        txn.counters.put(opened.collection_id, counters)


# Tests of admission.


def test_admission_finds_collection_and_stored_version_in_one_transaction(
    store, writer, monkeypatch
):
    opened, document = writer.open("t", "c"), prepared("d", sentences(9))
    stored = writer.put(opened, document)
    reads = []
    read = store.read
    monkeypatch.setattr(store, "read", lambda: reads.append(1) or read())
    admission = writer.admit("t", "c", "d", document.content_hash)
    assert admission.collection == opened
    assert admission.unchanged == replace(stored, outcome=IngestOutcome.UNCHANGED)
    assert len(reads) == 1


@pytest.mark.parametrize(("document_id", "content_hash"), [("d", "x"), ("d", ""), ("new", "x")])
def test_another_version_is_admitted(writer, document_id, content_hash):
    writer.put(writer.open("t", "c"), prepared("d", sentences(9)))
    admission = writer.admit("t", "c", document_id, content_hash)
    assert (admission.collection, admission.unchanged) == (writer.open("t", "c"), None)


def test_nothing_is_admitted_to_a_missing_collection(writer):
    with pytest.raises(CollectionNotFound):
        writer.admit("t2", "c", "d", "x")


def test_a_document_without_a_content_hash_is_never_unchanged(writer):
    document = replace(prepared("d", sentences(9)), content_hash="")
    writer.put(writer.open("t", "c"), document)
    assert writer.admit("t", "c", "d", "").unchanged is None
    assert writer.put(writer.open("t", "c"), document).outcome is IngestOutcome.UPDATED


def test_metadata_is_stored_as_the_json_that_the_prepared_document_has(store, writer, monkeypatch):
    document = prepared("d", "text", metadata={"b": [1, "ü"], "a": {"z": None, "c": True}})
    assert document.metadata_json == b'{"a":{"c":true,"z":null},"b":[1,"\xc3\xbc"]}'
    monkeypatch.setattr(canonical_json, "encode", None)
    writer.put(writer.open("t", "c"), document)
    with store.read() as txn:
        value = bytes(txn.documents.get_data(schema.address(schema.u64(1), 1, 1)))
    assert value.endswith(b"," + document.metadata_json + b"]")
    assert writer.document(writer.open("t", "c"), "d").metadata == document.metadata
