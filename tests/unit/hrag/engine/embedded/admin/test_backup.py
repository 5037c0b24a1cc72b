"""A backup is the store of one moment, whole; a restore makes it a store again."""

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

Act = Callable[[], object]
Entries = list[tuple[str, bytes, bytes]]


@pytest.fixture
def writer(store: Store) -> EmbeddedWriter:
    """Three documents, two of them in a segment."""
    writer = EmbeddedWriter(store)
    writer.create_collection("t", "c", collection_settings())
    for number in range(2):
        put(writer, number)
    seal(store, 1)
    put(writer, 2)
    return writer


@pytest.fixture
def made(store: Store, writer: EmbeddedWriter, tmp_path: Path) -> Path:
    """A backup."""
    backup(store, tmp_path / "made", quietly)
    return tmp_path / "made"


def put(writer: EmbeddedWriter, number: int) -> None:
    document = prepared(f"d{number}", sentences(60, number), seed=number)
    writer.put(writer.open("t", "c"), document)


def quietly(line: str) -> None:
    pass


def acting(acts: dict[str, Act]) -> Callable[[str], None]:
    """Does something the moment before what a line says."""

    def tell(line: str) -> None:
        for beginning, act in acts.items():
            if line.startswith(beginning):
                act()

    return tell


def in_turn(*acts: Act) -> Act:
    """The next of `acts` each time, then nothing."""
    left = list(acts)

    def act() -> None:
        if left:
            left.pop(0)()

    return act


def replace_segment(store: Store) -> None:
    """A new segment takes the place of all, whose files are removed at once."""
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
    return {segment_files.path_of(folder / "segments", each) for each in segment_ids(store)}


def contents(folder: Path) -> Entries:
    with closing(open_alone(folder)) as store:
        return contents_of(store)


def contents_of(store: Store) -> Entries:
    """Every entry of every database."""
    with store.read() as txn:
        return [
            (name, key, value) for name in store.databases for key, value in entries_of(txn, name)
        ]


def assert_no_trace(parent: Path, name: str) -> None:
    assert [path.name for path in parent.iterdir() if path.name.startswith(name)] == []


# Backing up


def test_a_backup_holds_all_that_the_store_holds_and_no_more(store, writer, tmp_path):
    told: list[str] = []
    made = backup(store, tmp_path / "b", told.append)
    folder = tmp_path / "b"
    assert contents(folder) == contents_of(store)
    assert segment_paths(folder) == paths_of(store, folder)
    assert {path.name for path in folder.iterdir()} == {"data.mdb", "segments", "backup.json"}
    assert (made.documents, made.sequence) == (3, 5)
    assert made.size_bytes == sum(
        path.stat().st_size
        for path in folder.rglob("*")
        if path.name != "backup.json"
        if path.is_file()
    )
    assert [line.split("(")[0].strip() for line in told] == [
        "copying segment 1",
        "copying the documents",
        "checking the copy",
    ]


def test_a_backup_shares_no_file_with_the_store(store, made):
    ours = {path.stat().st_ino for path in store.directory.rglob("*")}
    assert not ours & {path.stat().st_ino for path in made.rglob("*")}


def test_an_empty_store_and_an_empty_folder_will_do(store, tmp_path):
    (tmp_path / "b").mkdir()
    assert backup(store, tmp_path / "b", quietly).documents == 0
    assert (tmp_path / "b" / "backup.json").exists()


def test_what_is_written_meanwhile_does_not_tear_it(store, writer, tmp_path):
    write = in_turn(*(lambda number=number: put(writer, number) for number in range(3, 9)))
    made = backup(store, tmp_path / "b", acting({"copying": write, "checking": write}))
    assert made.documents == 5  # One came while the segment was copied, one before LMDB was.
    assert EmbeddedWriter(store).status(writer.open("t", "c")).document_count == 6


def test_a_segment_that_is_made_meanwhile_is_in_it(store, writer, tmp_path):
    backup(
        store, tmp_path / "b", acting({"copying the documents": in_turn(lambda: seal(store, 1))})
    )
    assert len(segment_ids(store)) == 2
    assert segment_paths(tmp_path / "b") == paths_of(store, tmp_path / "b")


@pytest.mark.parametrize("moment", ["copying segment 1", "copying the documents"])
def test_a_segment_that_is_replaced_meanwhile_is_not_in_it(store, writer, tmp_path, moment):
    backup(store, tmp_path / "b", acting({moment: in_turn(lambda: replace_segment(store))}))
    assert segment_ids(store) != [1]
    assert segment_paths(tmp_path / "b") == paths_of(store, tmp_path / "b")


def test_a_segment_that_is_gone_after_lmdbs_copy_means_another_round(
    store, writer, tmp_path, monkeypatch
):
    """Made before that copy and removed after it, so that the copy lists what is not there."""
    copy_to = Store.copy_to
    seal_and_lose = in_turn(lambda: seal(store, 1), lambda: None)

    def copied(self: Store, folder: Path) -> None:
        seal_and_lose()
        before = segment_ids(store)
        copy_to(self, folder)
        if len(before) == 2:
            replace_segment(store)

    monkeypatch.setattr(Store, "copy_to", copied)
    told: list[str] = []
    backup(store, tmp_path / "b", told.append)
    assert told.count("copying the documents") == 2
    assert segment_paths(tmp_path / "b") == paths_of(store, tmp_path / "b")


def test_segments_that_change_all_the_time_end_in_an_error(store, writer, tmp_path, monkeypatch):
    copy_to = Store.copy_to

    def copied(self: Store, folder: Path) -> None:
        replace_segment(store)
        copy_to(self, folder)
        replace_segment(store)

    monkeypatch.setattr(Store, "copy_to", copied)
    with pytest.raises(StoreUnavailable, match="faster than they could be copied, 5 times"):
        backup(store, tmp_path / "b", quietly)
    assert_no_trace(tmp_path, "b")


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_bytes(b"short")])
def test_a_damaged_segment_is_named_and_reported_to_the_indexer(store, writer, tmp_path, spoil):
    file = segment_files.path_of(store.segments, 1) / "rows.npz"
    kept = file.read_bytes()
    spoil(file)
    with pytest.raises(StoreUnavailable, match=r"segment 1 is damaged: .*run `hrag reindex`"):
        backup(store, tmp_path / "b", quietly)
    assert damage.reported_damage(store.segments) == {1}
    assert_no_trace(tmp_path, "b")
    file.write_bytes(kept)
    damage.forget_damage(store.segments, 1)


def test_a_backup_that_is_not_sound_is_none(store, writer, tmp_path):
    with store.write() as txn:
        overwrite(txn, "texts", schema.u64(77), b"nobody's")
    with pytest.raises(StoreUnavailable, match="1 problems, the first: texts has slot 77"):
        backup(store, tmp_path / "b", quietly)
    assert_no_trace(tmp_path, "b")
    with store.write() as txn:
        txn.contents.delete(schema.u64(77))


def test_a_place_that_is_taken_is_refused(store, made, tmp_path):
    (tmp_path / "file").touch()
    for taken in (made, tmp_path / "file"):
        before = sorted(made.rglob("*"))
        with pytest.raises(StoreUnavailable, match="exists already; a backup needs a new folder"):
            backup(store, taken, quietly)
        assert sorted(made.rglob("*")) == before


def test_a_place_inside_the_store_is_refused(store, writer):
    for inside in ("b", "segments/b"):
        with pytest.raises(StoreUnavailable, match="lies inside the store"):
            backup(store, store.directory / inside, quietly)


def test_a_place_where_a_disk_is_mounted_is_refused(store, writer, tmp_path):
    with (
        small_disk(tmp_path / "disk", MIB) as disk,
        pytest.raises(StoreUnavailable, match=r"a disk is mounted at .*; name a new folder"),
    ):
        backup(store, disk, quietly)


@pytest.mark.parametrize("moment", ["copying the documents", "checking"])
def test_what_a_killed_backup_left_is_no_obstacle(store, writer, tmp_path, moment):
    def keep() -> None:
        shutil.copytree(tmp_path / "b.partial", tmp_path / "c.partial")

    backup(store, tmp_path / "b", acting({moment: keep}))
    assert backup(store, tmp_path / "c", quietly).documents == 3
    assert not (tmp_path / "c.partial").exists()
    assert {path.name for path in (tmp_path / "c").iterdir()} == {
        *("data.mdb", "segments", "backup.json")
    }


def test_a_folder_of_somebody_else_is_refused_and_left_alone(store, made, tmp_path):
    """Also a finished backup that has the name which another is made under."""
    made.rename(tmp_path / "b.partial")
    (tmp_path / "c.partial").mkdir()
    (tmp_path / "c.partial" / "thesis.txt").write_text("the only copy")
    (tmp_path / "d.partial").write_text("a file")
    (tmp_path / "e.partial").symlink_to(tmp_path / "c.partial")
    before = sorted(tmp_path.rglob("*"))
    for name in "bcde":
        with pytest.raises(StoreUnavailable, match=rf"{name}\.partial exists, and no interrupted"):
            backup(store, tmp_path / name, quietly)
    assert sorted(tmp_path.rglob("*")) == before


def test_the_store_itself_is_never_taken_for_an_unfinished_backup(tmp_path):
    for folder in (tmp_path / "store.partial", tmp_path / "store.partial" / "inside"):
        with closing(open_for_writing(folder)) as store:
            before = contents_of(store)
            with pytest.raises(StoreUnavailable, match=r"store\.partial, .* holds the store in"):
                backup(store, tmp_path / "store", quietly)
            assert contents_of(store) == before


def test_a_full_folder_for_temporary_files_is_no_problem_of_the_copy(store, writer, tmp_path):
    for number in range(3, 30):
        put(writer, number)
    seal(store, 1)
    with small_disk(tmp_path / "tmp", MIB) as temporary, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(temporary))
        Ballast(temporary).fill(8 * KIB)
        with pytest.raises(StorageFull, match=f"to {temporary}: No space .*; set TMPDIR to"):
            backup(store, tmp_path / "b", quietly)
    assert_no_trace(tmp_path, "b")


def test_a_store_has_one_backup_at_a_time(store, writer, tmp_path):
    def again() -> None:
        with pytest.raises(StoreUnavailable, match=r"another backup of the store in .* is running"):
            backup(store, tmp_path / "c", quietly)

    backup(store, tmp_path / "b", acting({"copying": again, "checking": again}))
    backup(store, tmp_path / "c", quietly)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 8 * MIB) as folder:
        yield folder


def bytes_on_disk(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("room", [0, 0.05, 0.3, 0.6, 0.95])
def test_a_full_disk_leaves_nothing_of_a_backup(store, made, disk, room):
    """Whether a segment is copied, LMDB's file, or the end of it."""
    Ballast(disk).fill(int(bytes_on_disk(made) * room))
    before = contents_of(store)
    with pytest.raises(StorageFull, match=f"the disk of {disk}/new.partial is full"):
        backup(store, disk / "new", quietly)
    assert_no_trace(disk, "new")
    assert contents_of(store) == before


# Restoring


def test_a_restored_store_is_the_store_of_the_backup(store, made, writer, tmp_path):
    as_it_was = contents_of(store)
    put(writer, 9)
    told: list[str] = []
    restored = restore(made, tmp_path / "new" / "place", told.append)
    assert (restored.documents, restored.sequence) == (3, 5)
    assert contents(tmp_path / "new" / "place") == as_it_was
    with closing(open_for_writing(tmp_path / "new" / "place")) as again:
        assert check(again).problems == ()
        put(EmbeddedWriter(again), 10)
        assert check(again).problems == ()
    assert told[0] == "copying the documents"
    assert restore(made, tmp_path / "another", quietly) == restored


def test_a_folder_that_holds_a_store_is_refused_and_left_alone(made, tmp_path):
    open_for_writing(tmp_path / "new").close()
    before = contents(tmp_path / "new")
    with pytest.raises(StoreUnavailable, match=f"{tmp_path / 'new'} holds a store"):
        restore(made, tmp_path / "new", quietly)
    assert contents(tmp_path / "new") == before


def test_a_store_in_use_is_refused(store, made):
    with pytest.raises(StoreUnavailable, match="in use by a running service"):
        restore(made, store.directory, quietly)


def test_nobody_opens_a_store_that_is_half_restored(made, tmp_path):
    def intrude() -> None:
        with pytest.raises(StoreUnavailable, match="is being vacuumed or restored"):
            open_for_writing(tmp_path / "new")

    restore(made, tmp_path / "new", acting({"copying": intrude, "checking": intrude}))
    open_for_writing(tmp_path / "new").close()


@pytest.mark.parametrize("name", ["data.mdb", "index.hnsw", "postings.bin", "rows.npz"])
@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_a_damaged_backup_is_refused_and_named(made, tmp_path, name, damage):
    (file,) = made.rglob(name)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.unlink()
    if damage != "gone":
        file.write_bytes(content if damage == "flipped" else content[:-100])
    with pytest.raises(StoreUnavailable) as refused:
        restore(made, tmp_path / "new", quietly)
    assert name in refused.value.message
    assert not {"data.mdb", "restore.tmp"} & {path.name for path in (tmp_path / "new").iterdir()}


def test_a_restore_goes_on_where_a_killed_one_ended(made, tmp_path):
    new = tmp_path / "new"
    keep_restored_half(made, tmp_path / "first", new)
    (new / "segments" / "000000000009").mkdir(parents=True)
    restore(made, new, quietly)
    assert contents(new) == contents(made)
    assert {path.name for path in segment_paths(new)} == {"000000000001"}
    assert not (new / "restore.tmp").exists()


def test_no_indexer_starts_beside_a_restore_that_was_killed(made, tmp_path):
    """An empty store would hide that nothing was restored, and keep the next restore out."""
    new = tmp_path / "new"
    keep_restored_half(made, tmp_path / "first", new)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="was interrupted; run `hrag restore` again"):
            open_for_writing(new)
    restore(made, new, quietly)
    open_for_writing(new).close()


def keep_restored_half(made: Path, first: Path, new: Path) -> None:
    """Makes `new` what a restore into `first` would leave if it were killed while it checks."""
    restore(made, first, acting({"checking": lambda: shutil.copytree(first, new)}))


def test_an_empty_data_file_is_no_store_that_a_restore_would_replace(made, tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "data.mdb").touch()
    restore(made, tmp_path / "new", quietly)
    assert contents(tmp_path / "new") == contents(made)


@pytest.mark.parametrize("room", [0.3, 0.95])
def test_a_full_disk_leaves_no_half_restored_store(made, disk, room):
    ballast = Ballast(disk)
    ballast.fill(int(bytes_on_disk(made) * room))
    with pytest.raises(StorageFull, match="is full"):
        restore(made, disk / "new", quietly)
    assert {path.name for path in (disk / "new").iterdir()} == {"users.lock"}
    ballast.remove()
    restore(made, disk / "new", quietly)
    assert contents(disk / "new") == contents(made)
