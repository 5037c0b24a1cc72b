"""Tests of repair: it computes derived data again and reports the damage that remains."""

from contextlib import closing
from pathlib import Path

import pytest

from hrag.config import EngineSettings
from hrag.engine import open_engine
from hrag.engine.embedded.search.reader import EmbeddedReader
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import open_for_writing
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.errors import DataLoss, StoreUnavailable
from hrag.filters import Exists
from tests.support.documents.fakes import (
    collection_settings,
    find,
    prepared,
    seal,
    sentences,
    unit_vectors,
)
from tests.support.engines.damage import entries_of, flip_first, overwrite
from tests.unit.hrag.engine.embedded.store.bits import flip


@pytest.fixture
def folder(tmp_path):
    """The folder of a store with three documents: `a` in a segment, `b` and `c` in the tail.

    The segment also has an older, deleted version of `b`.
    """
    folder = tmp_path / "store"
    with closing(open_for_writing(folder)) as store:
        writer = EmbeddedWriter(store)
        writer.create_collection("t", "c", collection_settings())
        for number, name in enumerate("ab"):
            writer.put(writer.open("t", "c"), prepared(name, sentences(30, number), seed=number))
        seal(store, 1)
        writer.put(writer.open("t", "c"), prepared("c", sentences(30, 3), seed=3))
        writer.put(writer.open("t", "c"), prepared("b", sentences(20, 4), seed=4))
    return folder


def administration(folder: Path):
    settings = EngineSettings().model_copy(update={"data_dir": folder})
    return open_engine(settings).administration()


@pytest.mark.parametrize("name", schema.REPAIRED)
def test_damaged_derived_data_is_repaired(folder, tmp_path, name):
    """After the repair, searches find the same chunks, and writes and backups succeed."""
    before = found_chunk_ids(folder)
    flip_first(folder, name)
    assert administration(folder).check().problems != ()
    assert administration(folder).repair().problems == ()
    assert administration(folder).check().problems == ()
    assert found_chunk_ids(folder) == before
    with closing(open_for_writing(folder)) as store:
        writer = EmbeddedWriter(store)
        writer.delete(writer.open("t", "c"), "a")
        writer.put(writer.open("t", "c"), prepared("c", sentences(30, 5), seed=5))
        seal(store, 1)
    assert administration(folder).check().problems == ()
    assert administration(folder).backup(tmp_path / "backup", lambda _: None).documents == 2


def found_chunk_ids(folder: Path) -> list[str]:
    """Returns the ids of the chunks that a search of the store finds, best first."""
    with (
        closing(open_for_writing(folder)) as store,
        closing(EmbeddedReader(store)) as reader,
        reader.snapshot("t", "c") as snapshot,
    ):
        passages = find(snapshot, unit_vectors(1, 7)[0], 50).passages
        return [passage.chunk.chunk_id for passage in passages]


@pytest.mark.parametrize("database", ["segments", "tombstones"])
def test_without_a_usable_segment_all_documents_are_in_the_tail_until_sealing(folder, database):
    """Repair computes tombstones from the segment's file of rows. Here this file is damaged."""
    before = found_chunk_ids(folder)
    flip_first(folder, database)
    for rows in folder.glob("segments/*/rows.npz"):
        rows.write_bytes(bytes(rows.stat().st_size))
    assert administration(folder).repair().problems == ()
    assert found_chunk_ids(folder) == before
    with closing(open_for_writing(folder)) as store:
        status = (writer := EmbeddedWriter(store)).status(writer.open("t", "c"))
        assert (status.embedded.segments, status.embedded.sealed_sequence) == ((), 0)
        assert status.embedded.tail_leaf_count == status.leaf_count > 0
        seal(store, 1)
        assert writer.status(writer.open("t", "c")).embedded.tail_leaf_count == 0
    assert administration(folder).check().problems == ()


def test_a_tombstone_with_the_key_of_a_living_document_does_not_hide_it(folder):
    before = found_chunk_ids(folder)
    with closing(open_for_writing(folder)) as store, store.write() as txn:
        _, value = entries_of(txn, "tombstones")[0]
        txn.tombstones.delete(next(txn.tombstones.keys()))
        living, _ = entries_of(txn, "ordinals")[0]
        overwrite(txn, "tombstones", living, value)
    assert administration(folder).repair().problems == ()
    assert found_chunk_ids(folder) == before


def test_damaged_counters_and_a_damaged_segment_record_are_repaired_together(folder):
    flip_first(folder, "segments")
    flip_first(folder, "counters")
    assert administration(folder).repair().problems == ()


@pytest.mark.parametrize("together", [True, False])
def test_the_last_sequence_number_survives_the_loss_of_the_change_log(folder, together):
    """The counters contain this number, too.

    They are damaged at the same time as the log, or after the log has been repaired.
    """
    before = last_sequence(folder)
    with closing(open_for_writing(folder)) as store:
        with store.read() as txn:
            last, _ = entries_of(txn, "changes")[-1]
        flip(store, "changes", last)
    if not together:
        assert administration(folder).repair().problems == ()
    flip_first(folder, "counters")
    assert administration(folder).repair().problems == ()
    assert last_sequence(folder) == before


def last_sequence(folder: Path) -> int:
    """Returns the sequence number of the collection's last change."""
    with closing(open_for_writing(folder)) as store:
        writer = EmbeddedWriter(store)
        return writer.status(writer.open("t", "c")).committed_sequence


def test_a_lost_sequence_number_is_replaced_by_a_number_above_all_used_ones(tmp_path):
    """Neither the count of commits nor the last ordinal is an upper bound of the lost number.

    One transaction can make many changes, and a change of an alias uses no ordinal.
    """
    with closing(open_for_writing(tmp_path)) as store:
        writer = EmbeddedWriter(store)
        writer.create_collection("t", "c", collection_settings())
        collection = writer.open("t", "c")
        writer.put_many([(collection, prepared(f"d{n}", sentences(1, n))) for n in range(20)])
        list(writer.delete_matching(collection, Exists("document_id")))
        for _ in range(20):
            writer.set_alias("t", "a", "c")
            used = writer.delete_alias("t", "a")
    flip_first(tmp_path, "tenants")
    assert administration(tmp_path).repair().problems == ()
    with closing(open_for_writing(tmp_path)) as store:
        assert EmbeddedWriter(store).set_alias("t", "a", "c").sequence > used


@pytest.mark.parametrize("name", ["documents", "texts", "trees", "vectors"])
def test_a_damaged_document_is_reported_until_it_is_ingested_again(folder, name):
    flip_first(folder, name)
    problems = administration(folder).repair().problems
    assert problems
    assert all(problem.startswith("collection t/c: document a ") for problem in problems)
    with closing(open_for_writing(folder)) as store:
        writer = EmbeddedWriter(store)
        writer.put(writer.open("t", "c"), prepared("a", sentences(30, 0), seed=0))
    assert administration(folder).check().problems == ()


@pytest.mark.parametrize("name", ["documents", "ordinals", "document_ids"])
def test_a_damaged_document_can_be_deleted(folder, name):
    flip_first(folder, name)
    with closing(open_for_writing(folder)) as store:
        writer = EmbeddedWriter(store)
        with pytest.raises(DataLoss, match="document 'a' of collection 't/c' is damaged"):
            writer.document(writer.open("t", "c"), "a")
        writer.delete(writer.open("t", "c"), "a")
    assert administration(folder).check().problems == ()


def test_a_store_in_use_is_not_repaired(folder):
    with closing(open_for_writing(folder)), pytest.raises(StoreUnavailable, match="in use"):
        administration(folder).repair()


def test_a_repair_that_is_impossible_changes_nothing_and_names_the_remedy(folder):
    flip_first(folder, "meta")
    flip_first(folder, "tenants")
    before = (folder / "data.mdb").read_bytes()
    with pytest.raises(DataLoss, match=r"nothing was repaired.*hrag restore"):
        administration(folder).repair()
    assert (folder / "data.mdb").read_bytes() == before
