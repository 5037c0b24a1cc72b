"""Tests of a damaged store and of a full disk: errors explain them, and no document is lost."""

import os
from contextlib import closing
from pathlib import Path

import pytest

from hrag.engine.embedded.admin.check import check
from hrag.engine.embedded.segments import segment_files
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import open_alone, open_for_reading, open_for_writing
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.errors import StorageFull, StoreMissing, StoreUnavailable
from tests.crash.disks import MIB, Ballast, small_disk
from tests.support.documents.fakes import collection_settings, prepared, sentences
from tests.support.servers.forked import ran

# Tests of damage.


@pytest.mark.parametrize("open_store", [open_for_writing, open_for_reading, open_alone])
@pytest.mark.parametrize("content", [b"no store" * 4096, b"x", bytes(8192), b"\xde\xc0" * 9999])
def test_a_file_that_is_no_store_is_refused(tmp_path, open_store, content):
    (tmp_path / "data.mdb").write_bytes(content)
    with pytest.raises(StoreUnavailable, match=r"data\.mdb is damaged or no LMDB file .*backup"):
        open_store(tmp_path)
    assert (tmp_path / "data.mdb").read_bytes() == content


@pytest.mark.parametrize("open_store", [open_for_writing, open_for_reading, open_alone])
@pytest.mark.parametrize("kept", [5_000, 8_192, 50_000, 400_000])
def test_a_data_file_whose_end_is_missing_is_refused(tmp_path, open_store, kept):
    """Reading the missing pages would kill the process."""
    with closing(open_for_writing(tmp_path)) as store:
        for number in range(10):
            with store.write() as txn:
                txn.meta.put(schema.u64(number), bytes(50_000))
    os.truncate(tmp_path / "data.mdb", kept)
    with pytest.raises(StoreUnavailable, match=f"is damaged: it has {kept:,} of [0-9,]+ bytes"):
        open_store(tmp_path)


@pytest.mark.parametrize("open_store", [open_for_writing, open_for_reading, open_alone])
def test_a_short_data_file_that_lacks_only_unused_pages_is_opened(tmp_path, open_store):
    """LMDB does not write a page that a transaction allocates at the end of the file and frees."""
    with closing(open_for_writing(tmp_path)) as store:
        # After several commits, LMDB knows free pages. It then frees the pages of the deleted value
        # before the transaction ends.
        for _ in range(3):
            with store.write() as txn:
                txn.meta.put(b"kept", bytes(20_000))
        with store.write() as txn:
            txn.meta.put(b"more", bytes(500_000))
            txn.meta.delete(b"more")
        needed = (store.env.info()["last_pgno"] + 1) * store.env.stat()["psize"]
    assert (tmp_path / "data.mdb").stat().st_size < needed
    with closing(open_store(tmp_path)) as store, store.read() as txn:
        assert len(txn.meta.require(b"kept")) == 20_000


@pytest.mark.parametrize("lose", [Path.unlink, lambda path: os.truncate(path, 0)])
def test_no_new_store_is_created_if_the_data_file_is_lost(tmp_path, lose):
    open_for_writing(tmp_path).close()
    segment_files.path_of(tmp_path / "segments", 1).mkdir()
    lose(tmp_path / "data.mdb")
    with pytest.raises(StoreUnavailable, match=r"has segments but no data\.mdb.*hrag restore"):
        open_for_writing(tmp_path)
    with pytest.raises(StoreMissing):
        open_for_reading(tmp_path)


def test_a_data_file_that_is_just_being_created_is_no_store_yet(tmp_path):
    (tmp_path / "data.mdb").touch()
    for open_store in (open_for_reading, open_alone):
        with pytest.raises(StoreMissing):
            open_store(tmp_path)
    open_for_writing(tmp_path).close()
    open_for_reading(tmp_path).close()


def test_the_remains_of_a_killed_vacuum_are_removed(tmp_path):
    (tmp_path / "vacuum.tmp").mkdir()
    (tmp_path / "vacuum.tmp" / "data.mdb").write_bytes(b"half a copy")
    open_for_writing(tmp_path).close()
    assert not (tmp_path / "vacuum.tmp").exists()


# Tests of a full disk.


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path / "disk", 8 * MIB) as folder:
        yield folder


def test_a_write_needs_its_own_bytes_and_the_reserve(tmp_path, monkeypatch):
    with closing(open_for_writing(tmp_path, reserve_bytes=5_000)) as store:
        monkeypatch.setattr("hrag.engine.embedded.store.disk.free_bytes", lambda directory: 6_000)
        store.require_space()
        store.require_space(1_000)
        with pytest.raises(StorageFull) as refused:
            store.require_space(1_001)
    for part in (str(tmp_path), "6,000 bytes free", "1,001", "HRAG_DISK_RESERVE_BYTES", "5,000"):
        assert part in refused.value.message


def test_free_space_is_that_of_the_disk(disk):
    with closing(open_for_writing(disk, reserve_bytes=1 * MIB)) as store:
        store.require_space(4 * MIB)
        with pytest.raises(StorageFull):
            store.require_space(6 * MIB)
        Ballast(disk).fill(1 * MIB - 4096)
        with pytest.raises(StorageFull):
            store.require_space()


def test_no_document_is_lost_when_the_disk_becomes_full(disk):
    """The store can still be read. It can be written again once the disk has space."""
    ballast = Ballast(disk)
    ballast.fill(leave_bytes=4 * MIB)
    with closing(open_for_writing(disk / "store")) as store:
        writer = EmbeddedWriter(store)
        writer.create_collection("t", "c", collection_settings())
        stored = put_until_full(writer)
        assert stored
        opened = writer.open("t", "c")
        with pytest.raises(StorageFull, match="nothing of this write was stored"):
            writer.put(opened, prepared("more", sentences(400, 0)))
        texts = {name: writer.document_with_text(opened, name)[1] for name in stored}
        assert texts == {name: sentences(400, int(name[1:])) for name in stored}
        report = check(store)
        assert (report.documents, report.problems) == (len(stored), ())
        ballast.remove()
        writer.delete(opened, stored[0])
        writer.put(opened, prepared("again", sentences(400, 7)))
        assert writer.document_with_text(opened, "again")[1] == sentences(400, 7)
        report = check(store)
        assert (report.documents, report.problems) == (len(stored), ())


@pytest.fixture
def full_store(disk):
    """A store with documents on a disk of which other files then take all that is free."""
    with closing(open_for_writing(disk / "store", reserve_bytes=MIB)) as store:
        writer = EmbeddedWriter(store)
        writer.create_collection("t", "c", collection_settings())
        for number in range(50):
            writer.put(writer.open("t", "c"), prepared(f"d{number}", sentences(200, number)))
        Ballast(disk).fill()
        yield store
        assert check(store).problems == ()


def test_documents_are_accepted_in_the_pages_that_deletions_have_freed(full_store):
    writer = EmbeddedWriter(full_store)
    opened = writer.open("t", "c")
    with pytest.raises(StorageFull, match=r"this write needs [1-9][0-9,]+ bytes"):
        writer.put(opened, prepared("new", sentences(200, 50)))
    with pytest.raises(StorageFull, match=r"this write needs [1-9][0-9,]+ bytes"):
        writer.create_collection("t", "new", collection_settings())
    for number in range(40):
        writer.delete(opened, f"d{number}")
    writer.create_collection("t", "new", collection_settings())
    for number in range(100):
        writer.put(opened, prepared(f"new{number % 10}", sentences(200, number)))
    assert writer.document_with_text(opened, "new9")[1] == sentences(200, 99)


def test_half_of_the_reserve_is_kept_for_deletions_while_a_reader_keeps_pages(full_store):
    """LMDB cannot use the free pages, so writes make the file grow into the reserve."""
    writer = EmbeddedWriter(full_store)
    opened = writer.open("t", "c")
    for number in range(30):
        writer.delete(opened, f"d{number}")
    before = full_store.used_bytes
    with full_store.read():
        assert put_until_full(writer)
        assert full_store.used_bytes > before
        allocated = (full_store.directory / "data.mdb").stat().st_blocks * 512
        assert allocated > full_store.used_bytes + MIB // 4
        for number in range(30, 35):
            writer.delete(opened, f"d{number}")


def put_until_full(writer: EmbeddedWriter) -> list[str]:
    """Stores documents until the disk is full. Returns the ids of the stored documents."""
    opened = writer.open("t", "c")
    stored: list[str] = []
    for number in range(10_000):
        try:
            writer.put(opened, prepared(f"d{number}", sentences(400, number)))
        except StorageFull:
            return stored
        stored.append(f"d{number}")
    raise AssertionError("the disk never becomes full")


def test_a_store_opens_on_a_full_disk(disk):
    open_for_writing(disk / "store").close()
    Ballast(disk).fill()
    for open_store in (open_for_writing, open_for_reading):
        with closing(open_store(disk / "store")) as store, store.read() as txn:
            assert txn.number(schema.SCHEMA) == schema.SCHEMA_VERSION


def test_a_store_cannot_be_created_on_a_full_disk(disk):
    Ballast(disk).fill()
    with pytest.raises((StorageFull, StoreUnavailable)) as refused:
        open_for_writing(disk / "store")
    assert "full" in refused.value.message or "No space" in refused.value.message
    assert str(disk / "store") in refused.value.message


def test_many_readers_can_begin_on_a_full_disk(disk):
    """Each reader needs an entry in a table of LMDB, for which LMDB reserves no disk space."""
    open_for_writing(disk / "store").close()
    Ballast(disk).fill()
    script = (
        "import sys; from pathlib import Path; from contextlib import ExitStack\n"
        "from hrag.engine.embedded.store.environment import open_for_reading\n"
        "with ExitStack() as begun:\n"
        "    store = open_for_reading(Path(sys.argv[1]))\n"
        "    for _ in range(1000): begun.enter_context(store.read())\n"
        "    print('all')\n"
    )
    run = ran("-c", script, str(disk / "store"))
    assert (run.returncode, run.stdout.strip()) == (0, "all"), run.stderr
