"""Tests of backup and restore: a backup is a complete snapshot, and a restore makes it a store."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hrag.engine.embedded.admin.backup import backup, restore
from hrag.engine.embedded.admin.check import check
from hrag.engine.embedded.maintenance import segment_build
from hrag.engine.embedded.segments import damage, segment_files
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import Store, open_alone, open_for_writing
from hrag.engine.embedded.store.queries import listed_segments
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.errors import StorageFull, StoreUnavailable
from tests.crash.disks import KIB, MIB, Ballast, small_disk
from tests.support.documents.fakes import collection_settings, prepared, seal, sentences
from tests.support.engines.damage import entries_of, overwrite

Action = Callable[[], object]
Entries = list[tuple[str, bytes, bytes]]


@pytest.fixture
def writer(store: Store) -> EmbeddedWriter:
    """A writer of a collection with three documents, two of which are in a segment."""
    writer = EmbeddedWriter(store)
    writer.create_collection("t", "c", collection_settings())
    for number in range(2):
        put(writer, number)
    seal(store, 1)
    put(writer, 2)
    return writer


@pytest.fixture
def backup_folder(store: Store, writer: EmbeddedWriter, tmp_path: Path) -> Path:
    """The folder of a backup of the store."""
    backup(store, tmp_path / "made", ignore_progress)
    return tmp_path / "made"


def put(writer: EmbeddedWriter, number: int) -> None:
    document = prepared(f"d{number}", sentences(60, number), seed=number)
    writer.put(writer.open("t", "c"), document)


def ignore_progress(line: str) -> None:
    pass


def run_before(actions: dict[str, Action]) -> Callable[[str], None]:
    """Returns a progress callback that runs an action before the step that a line announces.

    `actions` maps the beginning of a line to an action.
    """

    def report_progress(line: str) -> None:
        for beginning, action in actions.items():
            if line.startswith(beginning):
                action()

    return report_progress


def one_after_another(*actions: Action) -> Action:
    """Returns an action that runs the next of `actions` at each call, and then nothing."""
    remaining = list(actions)

    def run_next() -> None:
        if remaining:
            remaining.pop(0)()

    return run_next


def replace_segment(store: Store) -> None:
    """Replaces all segments by a new one, and removes the files of the old segments at once."""
    before = segment_ids(store)
    assert segment_build.reindex(store, 1, 64, lambda: None) > 0
    for segment_id in before:
        segment_files.remove(store.segments, segment_id)


def segment_ids(store: Store) -> list[int]:
    with store.read() as txn:
        return [record.segment_id for record in listed_segments(txn, 1)]


def segment_paths(folder: Path) -> set[Path]:
    return set((folder / "segments").iterdir())


def paths_of(store: Store, folder: Path) -> set[Path]:
    """Returns the paths that the segments of the store have in a copy in `folder`."""
    return {
        segment_files.path_of(folder / "segments", segment_id) for segment_id in segment_ids(store)
    }


def contents(folder: Path) -> Entries:
    with closing(open_alone(folder)) as store:
        return contents_of(store)


def contents_of(store: Store) -> Entries:
    """Returns every entry of every LMDB database: database name, key, value."""
    with store.read() as txn:
        return [
            (name, key, value) for name in store.databases for key, value in entries_of(txn, name)
        ]


def assert_nothing_remains(parent: Path, name: str) -> None:
    """Asserts that no path in `parent` has a name that begins with `name`."""
    assert [path.name for path in parent.iterdir() if path.name.startswith(name)] == []


# Tests of backups.


def test_a_backup_contains_exactly_what_the_store_contains(store, writer, tmp_path):
    lines: list[str] = []
    report = backup(store, tmp_path / "b", lines.append)
    folder = tmp_path / "b"
    assert contents(folder) == contents_of(store)
    assert segment_paths(folder) == paths_of(store, folder)
    assert {path.name for path in folder.iterdir()} == {"data.mdb", "segments", "backup.json"}
    assert (report.documents, report.sequence) == (3, 5)
    assert report.size_bytes == sum(
        path.stat().st_size
        for path in folder.rglob("*")
        if path.name != "backup.json"
        if path.is_file()
    )
    assert [line.split("(")[0].strip() for line in lines] == [
        "copying segment 1",
        "copying the documents",
        "checking the copy",
    ]


def test_a_backup_shares_no_file_with_the_store(store, backup_folder):
    ours = {path.stat().st_ino for path in store.directory.rglob("*")}
    assert not ours & {path.stat().st_ino for path in backup_folder.rglob("*")}


def test_an_empty_store_can_be_backed_up_into_an_empty_folder(store, tmp_path):
    (tmp_path / "b").mkdir()
    assert backup(store, tmp_path / "b", ignore_progress).documents == 0
    assert (tmp_path / "b" / "backup.json").exists()


def test_a_backup_is_a_snapshot_although_documents_are_written_meanwhile(store, writer, tmp_path):
    write = one_after_another(
        *(lambda number=number: put(writer, number) for number in range(3, 9))
    )
    report = backup(store, tmp_path / "b", run_before({"copying": write, "checking": write}))
    # One document was added before the segment was copied, and one before LMDB's file was copied.
    assert report.documents == 5
    assert EmbeddedWriter(store).status(writer.open("t", "c")).document_count == 6


def test_a_segment_that_is_created_during_the_backup_is_in_it(store, writer, tmp_path):
    backup(
        store,
        tmp_path / "b",
        run_before({"copying the documents": one_after_another(lambda: seal(store, 1))}),
    )
    assert len(segment_ids(store)) == 2
    assert segment_paths(tmp_path / "b") == paths_of(store, tmp_path / "b")


@pytest.mark.parametrize("moment", ["copying segment 1", "copying the documents"])
def test_a_segment_that_is_replaced_during_the_backup_is_not_in_it(store, writer, tmp_path, moment):
    backup(
        store,
        tmp_path / "b",
        run_before({moment: one_after_another(lambda: replace_segment(store))}),
    )
    assert segment_ids(store) != [1]
    assert segment_paths(tmp_path / "b") == paths_of(store, tmp_path / "b")


def test_a_listed_segment_that_is_removed_before_it_is_copied_means_another_round(
    store, writer, tmp_path, monkeypatch
):
    """LMDB's file is copied after the segment is created, so the copied file lists the segment."""
    copy_to = Store.copy_to
    seal_once = one_after_another(lambda: seal(store, 1), lambda: None)

    def seal_copy_and_replace(self: Store, folder: Path) -> None:
        seal_once()
        before = segment_ids(store)
        copy_to(self, folder)
        if len(before) == 2:
            replace_segment(store)

    monkeypatch.setattr(Store, "copy_to", seal_copy_and_replace)
    lines: list[str] = []
    backup(store, tmp_path / "b", lines.append)
    assert lines.count("copying the documents") == 2
    assert segment_paths(tmp_path / "b") == paths_of(store, tmp_path / "b")


def test_a_backup_fails_if_segments_are_replaced_in_every_round(
    store, writer, tmp_path, monkeypatch
):
    copy_to = Store.copy_to

    def copy_between_replacements(self: Store, folder: Path) -> None:
        replace_segment(store)
        copy_to(self, folder)
        replace_segment(store)

    monkeypatch.setattr(Store, "copy_to", copy_between_replacements)
    with pytest.raises(StoreUnavailable, match="replaced before they could be copied, 5 times"):
        backup(store, tmp_path / "b", ignore_progress)
    assert_nothing_remains(tmp_path, "b")


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_bytes(b"short")])
def test_a_damaged_segment_is_named_and_reported_to_the_indexer(store, writer, tmp_path, spoil):
    file = segment_files.path_of(store.segments, 1) / "rows.npz"
    kept = file.read_bytes()
    spoil(file)
    with pytest.raises(StoreUnavailable, match=r"segment 1 is damaged: .*run `hrag reindex`"):
        backup(store, tmp_path / "b", ignore_progress)
    assert damage.reported_damage(store.segments) == {1}
    assert_nothing_remains(tmp_path, "b")
    file.write_bytes(kept)
    damage.forget_damage(store.segments, 1)


def test_a_backup_that_fails_its_check_is_removed(store, writer, tmp_path):
    with store.write() as txn:
        overwrite(txn, "texts", schema.u64(77), b"nobody's")
    with pytest.raises(StoreUnavailable, match="1 problems, the first: texts has slot 77"):
        backup(store, tmp_path / "b", ignore_progress)
    assert_nothing_remains(tmp_path, "b")
    with store.write() as txn:
        txn.contents.delete(schema.u64(77))


def test_a_target_that_exists_is_refused(store, backup_folder, tmp_path):
    (tmp_path / "file").touch()
    for target in (backup_folder, tmp_path / "file"):
        before = sorted(backup_folder.rglob("*"))
        with pytest.raises(StoreUnavailable, match="exists already; a backup needs a new folder"):
            backup(store, target, ignore_progress)
        assert sorted(backup_folder.rglob("*")) == before


def test_a_target_inside_the_store_is_refused(store, writer):
    for inside in ("b", "segments/b"):
        with pytest.raises(StoreUnavailable, match="lies inside the store"):
            backup(store, store.directory / inside, ignore_progress)


def test_a_target_where_a_disk_is_mounted_is_refused(store, writer, tmp_path):
    with (
        small_disk(tmp_path / "disk", MIB) as disk,
        pytest.raises(StoreUnavailable, match=r"a disk is mounted at .*; name a new folder"),
    ):
        backup(store, disk, ignore_progress)


@pytest.mark.parametrize("moment", ["copying the documents", "checking"])
def test_a_backup_replaces_the_remains_of_a_killed_backup(store, writer, tmp_path, moment):
    def copy_unfinished_backup() -> None:
        shutil.copytree(tmp_path / "b.partial", tmp_path / "c.partial")

    backup(store, tmp_path / "b", run_before({moment: copy_unfinished_backup}))
    assert backup(store, tmp_path / "c", ignore_progress).documents == 3
    assert not (tmp_path / "c.partial").exists()
    assert {path.name for path in (tmp_path / "c").iterdir()} == {
        *("data.mdb", "segments", "backup.json")
    }


def test_a_temporary_folder_that_no_backup_created_is_refused_and_unchanged(
    store, backup_folder, tmp_path
):
    """A finished backup is refused, too, if it is at the temporary path of the new backup."""
    backup_folder.rename(tmp_path / "b.partial")
    (tmp_path / "c.partial").mkdir()
    (tmp_path / "c.partial" / "thesis.txt").write_text("the only copy")
    (tmp_path / "d.partial").write_text("a file")
    (tmp_path / "e.partial").symlink_to(tmp_path / "c.partial")
    before = sorted(tmp_path.rglob("*"))
    for name in "bcde":
        with pytest.raises(
            StoreUnavailable, match=rf"{name}\.partial exists, but does not come from"
        ):
            backup(store, tmp_path / name, ignore_progress)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_store_at_the_temporary_path_of_the_backup_is_refused_and_unchanged(tmp_path):
    for folder in (tmp_path / "store.partial", tmp_path / "store.partial" / "inside"):
        with closing(open_for_writing(folder)) as store:
            before = contents_of(store)
            with pytest.raises(StoreUnavailable, match=r"store\.partial, .* contains the store in"):
                backup(store, tmp_path / "store", ignore_progress)
            assert contents_of(store) == before


def test_a_full_folder_for_temporary_files_is_not_reported_as_damage(store, writer, tmp_path):
    for number in range(3, 30):
        put(writer, number)
    seal(store, 1)
    with small_disk(tmp_path / "tmp", MIB) as temporary, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(temporary))
        Ballast(temporary).fill(8 * KIB)
        with pytest.raises(StorageFull, match=f"to {temporary}: No space .*; set TMPDIR to"):
            backup(store, tmp_path / "b", ignore_progress)
    assert_nothing_remains(tmp_path, "b")


def test_a_store_has_one_backup_at_a_time(store, writer, tmp_path):
    def start_another() -> None:
        with pytest.raises(StoreUnavailable, match=r"another backup of the store in .* is running"):
            backup(store, tmp_path / "c", ignore_progress)

    backup(store, tmp_path / "b", run_before({"copying": start_another, "checking": start_another}))
    backup(store, tmp_path / "c", ignore_progress)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 8 * MIB) as folder:
        yield folder


def bytes_on_disk(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("free_share", [0, 0.05, 0.3, 0.6, 0.95])
def test_a_full_disk_leaves_nothing_of_a_backup(store, backup_folder, disk, free_share):
    """The disk fills up while a segment or LMDB's file is copied, or at the end of LMDB's file."""
    Ballast(disk).fill(int(bytes_on_disk(backup_folder) * free_share))
    before = contents_of(store)
    with pytest.raises(StorageFull, match=f"the disk of {disk}/new.partial is full"):
        backup(store, disk / "new", ignore_progress)
    assert_nothing_remains(disk, "new")
    assert contents_of(store) == before


# Tests of restores.


def test_a_restored_store_equals_the_store_at_the_time_of_the_backup(
    store, backup_folder, writer, tmp_path
):
    expected = contents_of(store)
    put(writer, 9)
    lines: list[str] = []
    restored = restore(backup_folder, tmp_path / "new" / "place", lines.append)
    assert (restored.documents, restored.sequence) == (3, 5)
    assert contents(tmp_path / "new" / "place") == expected
    with closing(open_for_writing(tmp_path / "new" / "place")) as restored_store:
        assert check(restored_store).problems == ()
        put(EmbeddedWriter(restored_store), 10)
        assert check(restored_store).problems == ()
    assert lines[0] == "copying the documents"
    assert restore(backup_folder, tmp_path / "another", ignore_progress) == restored


def test_a_restore_into_a_folder_with_a_store_is_refused_and_changes_nothing(
    backup_folder, tmp_path
):
    open_for_writing(tmp_path / "new").close()
    before = contents(tmp_path / "new")
    with pytest.raises(StoreUnavailable, match=f"{tmp_path / 'new'} holds a store"):
        restore(backup_folder, tmp_path / "new", ignore_progress)
    assert contents(tmp_path / "new") == before


def test_a_restore_into_a_store_in_use_is_refused(store, backup_folder):
    with pytest.raises(StoreUnavailable, match="in use by a running service"):
        restore(backup_folder, store.directory, ignore_progress)


def test_a_store_cannot_be_opened_during_its_restore(backup_folder, tmp_path):
    def open_during_restore() -> None:
        with pytest.raises(StoreUnavailable, match="is being vacuumed or restored"):
            open_for_writing(tmp_path / "new")

    restore(
        backup_folder,
        tmp_path / "new",
        run_before({"copying": open_during_restore, "checking": open_during_restore}),
    )
    open_for_writing(tmp_path / "new").close()


@pytest.mark.parametrize("name", ["data.mdb", "index.hnsw", "postings.bin", "rows.npz"])
@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_a_restore_refuses_a_damaged_backup_and_names_the_file(
    backup_folder, tmp_path, name, damage
):
    (file,) = backup_folder.rglob(name)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.unlink()
    if damage != "gone":
        file.write_bytes(content if damage == "flipped" else content[:-100])
    with pytest.raises(StoreUnavailable) as refused:
        restore(backup_folder, tmp_path / "new", ignore_progress)
    assert name in refused.value.message
    assert not {"data.mdb", "restore.tmp"} & {path.name for path in (tmp_path / "new").iterdir()}


def test_a_restore_succeeds_after_one_that_was_killed(backup_folder, tmp_path):
    new = tmp_path / "new"
    make_half_restored(backup_folder, tmp_path / "first", new)
    (new / "segments" / "000000000009").mkdir(parents=True)
    restore(backup_folder, new, ignore_progress)
    assert contents(new) == contents(backup_folder)
    assert {path.name for path in segment_paths(new)} == {"000000000001"}
    assert not (new / "restore.tmp").exists()


def test_no_indexer_opens_the_folder_of_a_killed_restore(backup_folder, tmp_path):
    """Otherwise, the indexer would create an empty store in the folder.

    This store would hide that nothing was restored, and the next restore would be refused.
    """
    new = tmp_path / "new"
    make_half_restored(backup_folder, tmp_path / "first", new)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="was interrupted; run `hrag restore` again"):
            open_for_writing(new)
    restore(backup_folder, new, ignore_progress)
    open_for_writing(new).close()


def make_half_restored(backup_folder: Path, first: Path, new: Path) -> None:
    """Makes `new` look like a folder whose restore was killed while it checked the copy."""
    restore(backup_folder, first, run_before({"checking": lambda: shutil.copytree(first, new)}))


def test_a_restore_into_a_folder_with_an_empty_data_file_succeeds(backup_folder, tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "data.mdb").touch()
    restore(backup_folder, tmp_path / "new", ignore_progress)
    assert contents(tmp_path / "new") == contents(backup_folder)


@pytest.mark.parametrize("free_share", [0.3, 0.95])
def test_a_full_disk_leaves_no_half_restored_store(backup_folder, disk, free_share):
    ballast = Ballast(disk)
    ballast.fill(int(bytes_on_disk(backup_folder) * free_share))
    with pytest.raises(StorageFull, match="is full"):
        restore(backup_folder, disk / "new", ignore_progress)
    assert {path.name for path in (disk / "new").iterdir()} == {"users.lock"}
    ballast.remove()
    restore(backup_folder, disk / "new", ignore_progress)
    assert contents(disk / "new") == contents(backup_folder)
