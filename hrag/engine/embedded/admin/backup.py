"""Copies a store while it is in use, and makes a store of such a copy.

Segments first, LMDB last: LMDB's own copy is of one moment, and whatever segment that
moment lists must be in the backup. Segments never change and stay for a while after they
are replaced, so that few rounds suffice. The backup is checked as a whole before it gets
its name; one under its name is complete. Its label, beside the store's files, holds the
checksum of LMDB's file; those of segments are in LMDB.

A restore is undone or done: what makes a folder a store is `data.mdb`, and that comes
last.
"""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from hrag.engine.embedded.admin.check import check
from hrag.engine.embedded.maintenance import orphan_gc
from hrag.engine.embedded.segments import segment_files
from hrag.engine.embedded.store import location, schema
from hrag.engine.embedded.store.environment import Store, open_alone
from hrag.engine.embedded.store.queries import listed_segments
from hrag.engine.embedded.store.records import SegmentRecord
from hrag.errors import StoreUnavailable

Tell = Callable[[str], None]
"""Takes a line that says what is done now."""

_LABEL = "backup.json"
_LOCK = "backup.lock"
_RESTORING = "restore.tmp"
_ROUNDS = 5
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Backup:
    """What a backup holds; `created` is its time in UTC, ISO 8601."""

    documents: int
    sequence: int
    size_bytes: int
    created: str
    data_bytes: int
    data_sha256: str


# Backing up


def backup(store: Store, target: Path, tell: Tell) -> Backup:
    """Copies `store` as it is at one moment into the folder `target`, which it creates.

    Raises StorageFull or StoreUnavailable, and then leaves nothing behind.
    """
    target = target.absolute()
    _refuse_target(store.directory, target)
    partial = target.with_name(f"{target.name}.partial")
    with _only_one_of(store), _unfinished(partial):
        (partial / location.SEGMENTS).mkdir()
        _copy_store(store, partial, tell)
        tell("checking the copy")
        made = _describe(partial)
        _write_label(partial, made)
        for folder in (partial / location.SEGMENTS, partial):
            location.sync(folder)
        partial.rename(target)
    location.sync(target.parent)
    return made


def _refuse_target(directory: Path, target: Path) -> None:
    with location.explained(target):
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise StoreUnavailable(f"{target} exists already; a backup needs a new folder")
        if target.is_mount():
            raise StoreUnavailable(f"a disk is mounted at {target}; name a new folder below it")
        if target.resolve().is_relative_to(directory.resolve()):
            raise StoreUnavailable(f"{target} lies inside the store in {directory}")


@contextmanager
def _only_one_of(store: Store) -> Iterator[None]:
    """The lock lies with the store: where a backup goes, a file system may know no locks."""
    with location.explained(store.directory), (store.directory / _LOCK).open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreUnavailable(
                f"another backup of the store in {store.directory} is running"
            ) from None
        yield


@contextmanager
def _unfinished(folder: Path) -> Iterator[None]:
    """An empty folder; on failure it is removed."""
    with location.explained(folder):
        segment_files.remove_path(folder)  # What a killed process has left.
        folder.mkdir(parents=True)
        try:
            yield
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def _copy_store(store: Store, folder: Path, tell: Tell) -> None:
    copied: set[int] = set()
    for _ in range(_ROUNDS):
        while _copy_segments(store, _listed(store), folder, copied, tell):
            pass
        tell("copying the documents")
        store.copy_to(folder)
        listed = _listed_in(folder)
        _copy_segments(store, listed, folder, copied, tell)
        if listed.keys() <= copied:
            for unlisted in copied - listed.keys():
                segment_files.remove(folder / location.SEGMENTS, unlisted)
            return
        (folder / location.DATA).unlink()
    raise StoreUnavailable(
        f"{store.directory} replaced its segments faster than they could be copied, "
        f"{_ROUNDS} times; try again when less is written"
    )


def _copy_segments(
    store: Store, wanted: dict[int, SegmentRecord], folder: Path, copied: set[int], tell: Tell
) -> bool:
    """Copies what is wanted, not copied yet and still there; returns whether anything was."""
    before = len(copied)
    for segment_id in wanted.keys() - copied:
        record = wanted[segment_id]
        tell(f"copying segment {segment_id} ({record.rows:,} leaves)")
        try:
            _copy_segment(store.segments, folder / location.SEGMENTS, record)
        except (FileNotFoundError, segment_files.DamagedSegment) as error:
            segment_files.remove(folder / location.SEGMENTS, segment_id)
            if segment_id in _listed(store):
                orphan_gc.report_damage(store.segments, segment_id)
                raise StoreUnavailable(
                    f"segment {segment_id} is damaged: {error}; a running indexer makes it anew, "
                    "so try again soon, or stop it and run `hrag rebuild`"
                ) from error
        else:
            copied.add(segment_id)
    return len(copied) > before


def _copy_segment(source: Path, target: Path, record: SegmentRecord) -> None:
    """Raises FileNotFoundError or DamagedSegment."""
    copy = segment_files.path_of(target, record.segment_id)
    copy.mkdir()
    for name in record.files:
        _copy_file(segment_files.path_of(source, record.segment_id) / name, copy / name)
    location.sync(copy)
    segment_files.verify(target, record)


def _copy_file(source: Path, target: Path) -> str:
    """Copies into blocks of its own, durably; returns the SHA-256 of what it read."""
    digest = hashlib.sha256()
    with source.open("rb") as read, target.open("wb") as written:
        while block := read.read(_BLOCK_BYTES):
            digest.update(block)
            written.write(block)
        written.flush()
        os.fsync(written.fileno())
    return digest.hexdigest()


def _listed(store: Store) -> dict[int, SegmentRecord]:
    """The segments of all collections by id, of one moment."""
    with store.read() as txn:
        collections = [schema.read_u32(key) for key, _ in store.scan(txn, "collections", b"")]
        return {
            record.segment_id: record
            for number in collections
            for record in listed_segments(store, txn, number)
        }


def _listed_in(folder: Path) -> dict[int, SegmentRecord]:
    with closing(open_alone(folder)) as store:
        return _listed(store)


def _describe(folder: Path) -> Backup:
    """Checks the whole of a copied store, or raises StoreUnavailable."""
    with closing(open_alone(folder)) as store:
        report = check(store)
        with store.read() as txn:
            sequence = store.number(txn, schema.COMMIT_CURSOR)
    if report.problems:
        raise StoreUnavailable(
            f"the copy in {folder} has {len(report.problems):,} problems, the first: "
            f"{report.problems[0]}; `hrag check` tells whether the store itself has them"
        )
    data = folder / location.DATA
    with data.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Backup(
        documents=report.documents,
        sequence=sequence,
        size_bytes=sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        data_bytes=data.stat().st_size,
        data_sha256=digest,
    )


def _write_label(folder: Path, made: Backup) -> None:
    with (folder / _LABEL).open("w") as file:
        json.dump(asdict(made), file, indent=2)
        file.flush()
        os.fsync(file.fileno())


# Restoring


def restore(source: Path, directory: Path, tell: Tell) -> Backup:
    """Makes a store in `directory`, which holds none, of the backup in `source`.

    Raises StorageFull or StoreUnavailable, and then there is still no store.
    """
    made = _read_label(source)
    location.refuse_network(directory)
    with location.explained(directory):
        directory.mkdir(parents=True, exist_ok=True)
    with location.exclusive(directory):
        if (directory / location.DATA).exists():
            raise StoreUnavailable(f"{directory} holds a store; name a folder that holds none")
        partial = directory / _RESTORING
        with _unfinished(partial):
            _copy_backup(source, partial, made, tell)
            tell("checking the copy")
            _describe(partial)
            _move_in(partial, directory)
        shutil.rmtree(partial)
    return made


def _read_label(source: Path) -> Backup:
    try:
        return Backup(**json.loads((source / _LABEL).read_text("utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise StoreUnavailable(
            f"{source} is no backup of `hrag backup`: its {_LABEL} cannot be read ({error})"
        ) from error


def _copy_backup(source: Path, folder: Path, made: Backup, tell: Tell) -> None:
    tell("copying the documents")
    if _copy_file(source / location.DATA, folder / location.DATA) != made.data_sha256:
        raise StoreUnavailable(
            f"{source / location.DATA} has changed since the backup of {made.created}; "
            "take another backup"
        )
    (folder / location.SEGMENTS).mkdir()
    for segment_id, record in _listed_in(folder).items():
        tell(f"copying segment {segment_id} ({record.rows:,} leaves)")
        try:
            _copy_segment(source / location.SEGMENTS, folder / location.SEGMENTS, record)
        except (FileNotFoundError, segment_files.DamagedSegment) as error:
            raise StoreUnavailable(f"the backup in {source} is damaged: {error}") from error
    location.sync(folder / location.SEGMENTS)


def _move_in(partial: Path, directory: Path) -> None:
    """In this order, each step on the disk before the next: without data it is no store."""
    shutil.rmtree(directory / location.SEGMENTS, ignore_errors=True)
    (partial / location.SEGMENTS).rename(directory / location.SEGMENTS)
    location.sync(directory)
    (partial / location.DATA).rename(directory / location.DATA)
    location.sync(directory)
