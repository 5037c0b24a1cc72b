"""Tests of the vacuum: it makes LMDB's file smaller and keeps every entry."""

import os
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import lmdb
import pytest

from hrag.engine.embedded.admin.check import check
from hrag.engine.embedded.admin.vacuum import vacuum
from hrag.engine.embedded.store.environment import (
    Store,
    open_alone,
    open_for_reading,
    open_for_writing,
)
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.errors import StorageFull, StoreMissing, StoreUnavailable
from tests.crash.disks import MIB, Ballast, small_disk
from tests.support.documents.fakes import collection_settings, prepared, seal, sentences
from tests.support.engines.damage import entries_of
from tests.support.servers.forked import ran

NOBODY = 65534
TEXT = sentences(200)


def make_store(folder: Path, documents: int = 40) -> Path:
    """Creates a store in `folder`, stores documents, and deletes all but four. Returns `folder`.

    The first half of the documents is in a segment.
    """
    with closing(open_for_writing(folder)) as store:
        writer = EmbeddedWriter(store)
        writer.create_collection("t", "c", collection_settings())
        opened = writer.open("t", "c")
        for number in range(documents):
            writer.put(opened, prepared(f"d{number}", TEXT, seed=number))
            if number == documents // 2:
                seal(store, 1)
        for number in range(4, documents):
            writer.delete(opened, f"d{number}")
    return folder


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 16 * MIB) as folder:
        yield folder


def contents(folder: Path) -> list[tuple[str, bytes, bytes]]:
    """Returns every entry of every LMDB database in the store: database name, key, value."""
    with closing(open_alone(folder)) as store, store.read() as txn:
        return [
            (name, key, value) for name in store.databases for key, value in entries_of(txn, name)
        ]


def test_a_vacuum_shrinks_the_file_and_keeps_every_entry(directory):
    before, size = contents(directory), (directory / "data.mdb").stat().st_size
    report = vacuum(directory)
    assert report.before_bytes == size
    assert report.after_bytes == (directory / "data.mdb").stat().st_size
    assert report.after_bytes < size / 4
    assert contents(directory) == before
    assert not (directory / "vacuum.tmp").exists()


def test_a_vacuumed_store_is_read_and_written_as_before(directory):
    """A second process, which uses the same LMDB lock file, can read the store, too."""
    vacuum(directory)
    with closing(open_for_writing(directory)) as store:
        writer = EmbeddedWriter(store)
        for number in range(3, 9):
            writer.put(writer.open("t", "c"), prepared(f"d{number}", TEXT, seed=90 + number))
        script = (
            "import sys; from pathlib import Path\n"
            "from hrag.engine.embedded.store import environment as store\n"
            "from hrag.engine.embedded.admin import check\n"
            "opened = store.open_for_reading(Path(sys.argv[1]))\n"
            "print(check.check(opened).documents)\n"
        )
        run = ran("-c", script, str(directory))
        assert (run.returncode, run.stdout.strip()) == (0, "9"), run.stderr
        assert check(store).problems == ()


def test_a_second_vacuum_leaves_the_file_size_unchanged(directory):
    vacuum(directory)
    report = vacuum(directory)
    assert report.after_bytes == report.before_bytes


def test_a_vacuum_keeps_the_files_owner_and_sets_its_mode_to_0600(directory):
    data = directory / "data.mdb"
    data.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(data, NOBODY, NOBODY)
    before = data.stat()
    vacuum(directory)
    after = data.stat()
    assert after.st_ino != before.st_ino
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)
    assert stat.S_IMODE(after.st_mode) == 0o600


@pytest.mark.parametrize("open_store", [open_for_writing, open_for_reading])
def test_a_vacuum_of_a_store_in_use_is_refused(directory, open_store):
    before = (directory / "data.mdb").read_bytes()
    with (
        closing(open_store(directory)),
        pytest.raises(StoreUnavailable, match="in use by a running service; stop the indexer"),
    ):
        vacuum(directory)
    assert (directory / "data.mdb").read_bytes() == before


def test_a_vacuum_of_a_folder_without_a_store_is_refused_and_creates_nothing(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(StoreMissing, match="holds no store"):
            vacuum(folder)
    assert list(tmp_path.iterdir()) == []


def test_a_vacuum_of_a_damaged_file_is_refused_and_changes_nothing(directory):
    os.truncate(directory / "data.mdb", 50_000)
    with pytest.raises(StoreUnavailable, match="is damaged"):
        vacuum(directory)
    assert (directory / "data.mdb").stat().st_size == 50_000
    assert not (directory / "vacuum.tmp").exists()


def test_a_copy_that_lacks_entries_does_not_replace_the_store(directory, monkeypatch):
    copy_to = Store.copy_to

    def copy_without_contents(store: Store, folder: Path, *, compact: bool) -> None:
        copy_to(store, folder, compact=compact)
        with lmdb.open(str(folder), lock=False, max_dbs=1, lib_version=0) as env:
            contents = env.open_db(b"texts", create=False)
            with env.begin(write=True) as txn:
                txn.drop(contents, delete=False)

    monkeypatch.setattr(Store, "copy_to", copy_without_contents)
    before = (directory / "data.mdb").read_bytes()
    with pytest.raises(StoreUnavailable, match="lacks entries; the store is unchanged"):
        vacuum(directory)
    assert (directory / "data.mdb").read_bytes() == before
    assert not (directory / "vacuum.tmp").exists()


@pytest.mark.parametrize("free_share", [0, 0.5, 0.95])
def test_a_vacuum_that_fails_on_a_full_disk_changes_nothing(disk, free_share):
    directory = make_store(disk / "store")
    before = contents(directory)
    needed = sum(len(value) for _, _, value in before)
    ballast = Ballast(disk)
    ballast.fill(int(needed * free_share))
    with pytest.raises(StorageFull, match="is full"):
        vacuum(directory)
    assert contents(directory) == before
    assert not (directory / "vacuum.tmp").exists()
    ballast.remove()
    vacuum(directory)
    assert contents(directory) == before
