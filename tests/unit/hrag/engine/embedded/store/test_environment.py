"""Tests of the LMDB environment: who may open a store, and that failed writes change nothing."""

import errno
import os
from contextlib import closing
from pathlib import Path

import lmdb
import pytest

from hrag.engine.embedded.store import location, schema, store_locks
from hrag.engine.embedded.store.environment import (
    Store,
    open_alone,
    open_for_reading,
    open_for_writing,
)
from hrag.errors import DataLoss, StorageFull, StoreMissing, StoreUnavailable, TooBusy
from tests.support.servers.forked import ran


def test_a_new_store_has_every_database_a_schema_version_and_an_id(store):
    assert set(store.databases) == set(schema.DATABASES)
    assert store.segments.is_dir()
    with store.read() as txn:
        assert txn.number(schema.SCHEMA) == schema.SCHEMA_VERSION
        assert txn.number(schema.LAST_ORDINAL) == 0
        assert len(txn.meta.require(schema.STORE_ID)) == 32


def test_a_store_keeps_its_id(tmp_path):
    found = set()
    for _ in range(2):
        store = open_for_writing(tmp_path)
        with store.read() as txn:
            found.add(txn.meta.require(schema.STORE_ID))
        store.close()
    assert len(found) == 1


def test_an_empty_store_takes_little_disk(store):
    taken = sum(path.stat().st_blocks * 512 for path in store.directory.iterdir())
    assert taken < 512 * 1024  # The map of 16 TiB is sparse.


def test_a_second_writer_is_refused(store):
    with pytest.raises(StoreUnavailable, match=r"another indexer has the store .* only one"):
        open_for_writing(store.directory)


def test_a_writer_that_closed_lets_the_next_one_in(tmp_path):
    open_for_writing(tmp_path).close()
    open_for_writing(tmp_path).close()


def test_a_writer_that_could_not_open_lets_the_next_one_in(tmp_path, monkeypatch):
    monkeypatch.setattr(lmdb, "open", _fails(lmdb.Error("no such luck")))
    with pytest.raises(StoreUnavailable, match="cannot open"):
        open_for_writing(tmp_path)
    monkeypatch.undo()
    open_for_writing(tmp_path).close()


def _fails(error: Exception):
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def test_a_reader_beside_a_writer_sees_what_is_committed(store):
    """The reader is another process, because LMDB allows a process to open a store only once."""
    with store.write() as txn:
        txn.next_number(schema.LAST_ORDINAL)
    script = (
        "import sys; from pathlib import Path\n"
        "from hrag.engine.embedded.store import environment as store\n"
        "from hrag.engine.embedded.store import schema\n"
        "opened = store.open_for_reading(Path(sys.argv[1]))\n"
        "with opened.read() as txn: print(txn.number(schema.LAST_ORDINAL))\n"
    )
    run = ran("-c", script, str(store.directory))
    assert (run.returncode, run.stdout.strip()) == (0, "1"), run.stderr


def test_a_reader_without_a_store_says_that_there_is_none_yet(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(StoreMissing, match="holds no store; an indexer creates one"):
            open_for_reading(folder)
    assert list(tmp_path.iterdir()) == []


def test_a_reader_of_a_store_that_is_still_being_created_says_so(tmp_path):
    lmdb.open(str(tmp_path), max_dbs=1, lib_version=0).close()
    with pytest.raises(StoreMissing, match="no complete store yet"):
        open_for_reading(tmp_path)


@pytest.mark.parametrize("open_store", [open_for_writing, open_for_reading, open_alone])
@pytest.mark.parametrize("name", [b"meta", b"texts"])
def test_a_store_without_one_of_its_databases_is_reported_as_damaged_and_unchanged(
    tmp_path, open_store, name
):
    open_for_writing(tmp_path).close()
    data = tmp_path / "data.mdb"
    assert data.read_bytes().count(name) == 1
    damaged = data.read_bytes().replace(name, name.upper())
    data.write_bytes(damaged)
    with pytest.raises(DataLoss, match=f"database '{name.decode()}' is missing.*restore a backup"):
        open_store(tmp_path)
    assert data.read_bytes() == damaged


def test_a_damaged_schema_version_is_reported_as_damage(tmp_path):
    with closing(open_for_writing(tmp_path)) as store, store.write() as txn:
        meta = store.databases["meta"].handle
        value = bytearray(txn.raw.get(schema.SCHEMA, db=meta))
        value[7] ^= 1
        txn.raw.put(schema.SCHEMA, bytes(value), db=meta)
    with pytest.raises(DataLoss, match="`hrag restore` of a backup replaces it"):
        open_for_reading(tmp_path)


def test_no_new_store_is_created_in_a_folder_with_segments(tmp_path):
    (tmp_path / "segments" / "1").mkdir(parents=True)
    lmdb.open(str(tmp_path), max_dbs=1, lib_version=0).close()
    with pytest.raises(DataLoss, match="the file has no database, but the store has segments"):
        open_for_writing(tmp_path)


def test_a_reader_opens_a_store_that_a_writer_has_closed(tmp_path):
    open_for_writing(tmp_path).close()
    store = open_for_reading(tmp_path)
    with store.read() as txn:
        assert txn.number(schema.SCHEMA) == schema.SCHEMA_VERSION
    assert set(store.databases) == set(schema.DATABASES)
    store.close()


@pytest.mark.parametrize("version", [7, 8, 11, 99])
@pytest.mark.parametrize("open_store", [open_for_writing, open_for_reading])
def test_a_store_of_another_schema_version_is_refused_and_unchanged(
    tmp_path, open_store, version, monkeypatch
):
    store = open_for_writing(tmp_path)
    with store.write() as txn:
        txn.put_number(schema.SCHEMA, version)
    store.close()
    if open_store is open_for_writing:
        monkeypatch.setattr(schema, "DATABASES", (*schema.DATABASES, "of_this_version"))
    before = (tmp_path / "data.mdb").read_bytes()
    for _ in range(2):
        message = f"version {version}; this version of hrag reads only schema version 10"
        with pytest.raises(StoreUnavailable, match=message):
            open_store(tmp_path)
    assert (tmp_path / "data.mdb").read_bytes() == before


def test_a_reader_of_an_older_version_is_refused_though_databases_are_missing(
    tmp_path, monkeypatch
):
    with monkeypatch.context() as older:
        older.setattr(schema, "DATABASES", schema.DATABASES[:3])
        older.setattr(schema, "SCHEMA_VERSION", 0)
        open_for_writing(tmp_path).close()
    with pytest.raises(StoreUnavailable, match="schema version 0; this") as refused:
        open_for_reading(tmp_path)
    assert not isinstance(refused.value, StoreMissing)  # A reader waits only for a missing store.


def test_a_store_that_is_open_cannot_be_locked_exclusively(tmp_path):
    for open_store in (open_for_writing, open_for_reading):
        with (
            closing(open_store(tmp_path)),
            pytest.raises(StoreUnavailable, match="stop the indexer and the retriever"),
            store_locks.exclusive(tmp_path, store_locks.Patience(tries=1)),
        ):
            pass
    with store_locks.exclusive(tmp_path):
        pass


def test_a_store_that_could_not_be_opened_is_not_locked(tmp_path):
    (tmp_path / "data.mdb").write_bytes(b"no store" * 4096)
    for open_store in (open_for_writing, open_for_reading):
        with pytest.raises(StoreUnavailable):
            open_store(tmp_path)
        with store_locks.exclusive(tmp_path):
            pass


@pytest.mark.parametrize("open_store", [open_for_writing, open_for_reading])
def test_a_network_file_system_is_refused_and_unchanged(tmp_path, open_store, monkeypatch):
    (tmp_path / "data.mdb").write_bytes(b"x")
    monkeypatch.setattr(location, "file_system", lambda mountinfo, path: "nfs4")
    with pytest.raises(StoreUnavailable, match=r"network file system .nfs4.*use a local disk"):
        open_store(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["data.mdb"]


@pytest.mark.parametrize("open_store", [open_for_writing, open_for_reading])
def test_a_data_file_that_lmdb_may_not_open_is_named(tmp_path, open_store, monkeypatch):
    open_for_writing(tmp_path).close()
    denied = lmdb.Error(str(tmp_path))
    denied.code = errno.EACCES
    monkeypatch.setattr(lmdb, "open", _fails(denied))
    monkeypatch.setattr(os, "access", lambda path, *_, **__: Path(path).name != "data.mdb")
    with pytest.raises(StoreUnavailable, match=r"cannot use .*/data\.mdb: it belongs to .*\(uid "):
        open_store(tmp_path)


def test_opening_a_store_that_nobody_changes_creates_no_files(tmp_path):
    open_for_writing(tmp_path).close()
    for name in ("lock.mdb", "users.lock", "indexer.lock"):
        (tmp_path / name).unlink()
    with closing(open_alone(tmp_path)) as alone, alone.read() as txn:
        assert txn.number(schema.SCHEMA) == schema.SCHEMA_VERSION
    assert {path.name for path in tmp_path.iterdir()} == {"data.mdb", "segments"}


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StoreUnavailable, match=r"cannot use .*file: "):
        open_for_writing(tmp_path / "file")


# Tests of transactions.


def write_and_raise(store: Store, error: Exception) -> None:
    with store.write() as txn:
        txn.next_number(schema.LAST_ORDINAL)
        txn.meta.put(b"text", b"text")
        raise error


def assert_nothing_was_written(store: Store) -> None:
    with store.read() as txn:
        assert txn.number(schema.LAST_ORDINAL) == 0
        assert txn.meta.get(b"text") is None


@pytest.mark.parametrize("error", [lmdb.DiskError, lmdb.MapFullError])
def test_a_full_disk_is_reported_and_nothing_is_written(store, error):
    with pytest.raises(StorageFull, match="is full; nothing of this write was stored"):
        write_and_raise(store, error("mdb_txn_commit: No space left on device"))
    assert_nothing_was_written(store)


def test_a_full_map_is_reported_as_a_full_disk(tmp_path, monkeypatch):
    open_lmdb = lmdb.open
    small = {"map_size": 1 << 18}
    monkeypatch.setattr(lmdb, "open", lambda *args, **options: open_lmdb(*args, **options | small))
    store = open_for_writing(tmp_path)
    with pytest.raises(StorageFull), store.write() as txn:
        txn.meta.put(b"text", bytes(1 << 20))
    with store.read() as txn:
        assert txn.meta.get(b"text") is None
    store.close()


@pytest.mark.parametrize(
    ("code", "meaning"),
    [(errno.EIO, "is full or failing"), (errno.EDQUOT, "quota"), (errno.EFBIG, "ulimit -f")],
)
def test_other_errors_of_writing_to_the_disk_are_reported_as_a_full_disk(store, code, meaning):
    error = lmdb.Error("mdb_txn_commit")
    error.code = code
    with pytest.raises(StorageFull, match=f"{meaning}.*nothing of this write was stored"):
        write_and_raise(store, error)
    assert_nothing_was_written(store)


@pytest.mark.parametrize(
    ("error", "becomes", "message"),
    [
        (lmdb.PanicError("meta"), StoreUnavailable, "restart the services"),
        (lmdb.CorruptedError("page 7"), DataLoss, r"data\.mdb is damaged .*\(page 7\)"),
        (lmdb.PageNotFoundError("page 7"), DataLoss, r"data\.mdb is damaged .*restore a backup"),
        (lmdb.ReadersFullError("full"), TooBusy, "6,144 read transactions"),
    ],
)
def test_errors_of_lmdb_are_explained(store, error, becomes, message):
    for transaction in (store.read, store.write):
        with pytest.raises(becomes, match=message), transaction():
            raise error


@pytest.mark.parametrize("error", [ValueError("mine"), lmdb.BadTxnError("LMDB's")])
def test_a_write_that_raises_changes_nothing_and_says_why(store, error):
    with pytest.raises(type(error)) as raised:
        write_and_raise(store, error)
    assert raised.value is error
    assert_nothing_was_written(store)


@pytest.mark.parametrize("opener", ["_reader", "_writer"])
def test_a_transaction_that_cannot_be_opened_ends(store, opener, monkeypatch):
    """Otherwise nobody else could write as long as the error refers to the transaction."""
    begun = []

    def fail(_store: Store, raw: lmdb.Transaction) -> None:
        begun.append(raw)
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Store, opener, fail)
        with pytest.raises(MemoryError):
            (store.read() if opener == "_reader" else store.write()).__enter__()
    (raw,) = begun
    try:
        with pytest.raises(lmdb.Error):
            raw.stat(store.databases["meta"].handle)
    finally:
        raw.abort()


def test_stored_numbers_count_up_and_change_only_with_the_commit(store):
    with store.write() as txn:
        assert [txn.next_number(schema.LAST_ORDINAL) for _ in range(3)] == [1, 2, 3]
        assert txn.number(schema.LAST_COLLECTION) == 0
    with store.read() as txn:
        assert txn.number(schema.LAST_ORDINAL) == 3


def test_a_scan_reads_only_keys_with_its_prefix_from_its_start_on(store):
    pairs = [(1, 5), (2, 1), (2, 3), (2, 300), (3, 0)]
    with store.write() as txn:
        for pair in pairs:
            txn.tombstones.put(pair, 1)

    def scanned(
        collection: int | None = None, start: tuple[int, int] | None = None
    ) -> list[tuple[int, int]]:
        with store.read() as txn:
            return [key for key, _ in txn.tombstones.entries(collection, start=start)]

    assert scanned() == pairs
    assert scanned(2) == pairs[1:4]
    assert scanned(2, (2, 2)) == pairs[2:4]
    assert scanned(2, (2, 301)) == []
    assert scanned(9) == []
    with store.write() as txn:
        for pair in pairs:
            txn.tombstones.delete(pair)
