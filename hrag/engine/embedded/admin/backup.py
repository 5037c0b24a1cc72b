"""Copies a store while it is in use, and makes a store of such a copy.

Segments first, LMDB last: LMDB's own copy is of one moment, and every segment that this
moment lists must be in the backup. Segments never change and stay for a while after they
are replaced, so a few rounds suffice. The backup is checked as a whole before it gets its
name, so a backup under its name is complete. Its label, beside the store's files, holds
the checksum of LMDB's file; those of the segments are in LMDB.

A restore happens entirely or not at all: what makes a folder a store is `data.mdb`, and
that comes last.

An unfinished copy holds an empty file that says so, from its first moment to its last. Only a
folder with that file is taken for what a killed process left, and removed.
"""

import fcntl
import hashlib
import json
import os
import re
import reprlib
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hrag.engine.embedded.admin.check_process import check_apart
from hrag.engine.embedded.segments import damage, segment_files
from hrag.engine.embedded.store import disk, location, schema, store_locks
from hrag.engine.embedded.store.environment import RESTORE, Store, open_alone
from hrag.engine.embedded.store.lmdb_records import SegmentRecord
from hrag.engine.embedded.store.queries import listed_segments
from hrag.engine.protocols import Progress
from hrag.engine.reports import BackupReport
from hrag.host.private_files import FILE_MODE, make_folder, opener
from hrag.values.errors import StoreUnavailable

_LABEL = "backup.json"
_UNFINISHED = "unfinished.hrag"
_ROUNDS = 5
_BLOCK_BYTES = 1 << 20
_SHOWN_PROBLEMS = 10
# What a label's fields may be: the texts of this form, all others numbers.
_TEXTS = {
    "created": (
        re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", re.ASCII),
        "a time such as 2026-03-01T12:00:00+00:00",
    ),
    "data_sha256": (re.compile("[0-9a-f]{64}"), "64 hexadecimal digits"),
}
_MAX_NUMBER = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class _Label(BackupReport):
    """A backup's report with the size and the checksum of LMDB's file."""

    data_bytes: int
    data_sha256: str

    def report(self) -> BackupReport:
        return BackupReport(self.documents, self.sequence, self.size_bytes, self.created)


# Backing up


def backup(store: Store, target: Path, progress: Progress) -> BackupReport:
    """Copies `store` as of one moment into the folder `target`, which it creates.

    Raises StorageFull or StoreUnavailable, and then leaves nothing behind.
    """
    target = target.absolute()
    partial = target.with_name(f"{target.name}.partial")
    _refuse_target(store.directory, target, partial)
    with _only_backup_of(store), _unfinished(partial):
        make_folder(partial / location.SEGMENTS)
        _copy_store(store, partial, progress)
        progress("checking the copy")
        label = _checked(partial)
        _write_label(partial, label)
        for folder in (partial / location.SEGMENTS, partial):
            disk.sync(folder)
        partial.rename(target)
        (target / _UNFINISHED).unlink()
        disk.sync(target)
    disk.sync(target.parent)
    return label.report()


def _refuse_target(directory: Path, target: Path, partial: Path) -> None:
    with location.explained_errors(target):
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise StoreUnavailable(f"{target} exists already; a backup needs a new folder")
        if target.is_mount():
            raise StoreUnavailable(f"a disk is mounted at {target}; name a new folder below it")
        if directory.resolve().is_relative_to(partial.resolve()):
            raise StoreUnavailable(
                f"{partial}, where the backup would be made, holds the store in {directory}; name "
                "another folder"
            )
        for folder in (target, partial):
            if folder.resolve().is_relative_to(directory.resolve()):
                raise StoreUnavailable(f"{folder} lies inside the store in {directory}")


@contextmanager
def _only_backup_of(store: Store) -> Iterator[None]:
    """Locks a file in the store, for the target's file system may have no locks."""
    path = store.directory / location.BACKUP_LOCK
    with location.explained_errors(store.directory), open(path, "ab", opener=opener) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreUnavailable(
                f"another backup of the store in {store.directory} is running"
            ) from None
        yield


@contextmanager
def _unfinished(folder: Path) -> Iterator[None]:
    """Creates a folder that is marked as unfinished, and removes it on failure.

    Raises StoreUnavailable if there is one that no killed process left there.
    """
    with location.explained_errors(folder):
        _refuse_foreign(folder)
        _remove(folder)
        make_folder(folder)
        try:
            (folder / _UNFINISHED).touch(FILE_MODE)
            yield
        except BaseException:
            _remove(folder)
            raise


def _refuse_foreign(folder: Path) -> None:
    if not os.path.lexists(folder):
        return
    is_folder = folder.is_dir() and not folder.is_symlink()
    if not is_folder or (any(folder.iterdir()) and not (folder / _UNFINISHED).exists()):
        raise StoreUnavailable(
            f"{folder} exists, and no interrupted backup or restore left it there; move it away, "
            "or name another folder"
        )


def _remove(folder: Path) -> None:
    """Removes an unfinished copy, what marks it last; nothing if there is none."""
    with suppress(OSError):
        for path in folder.iterdir():
            if path.name != _UNFINISHED:
                segment_files.remove_path(path)
    shutil.rmtree(folder, ignore_errors=True)


def _copy_store(store: Store, folder: Path, progress: Progress) -> None:
    copied: set[int] = set()
    for _ in range(_ROUNDS):
        while _copy_segments(store, _listed(store), folder, copied, progress):
            pass
        progress("copying the documents")
        store.copy_to(folder)
        listed = _listed_in(folder)
        _copy_segments(store, listed, folder, copied, progress)
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
    store: Store,
    wanted: dict[int, SegmentRecord],
    folder: Path,
    copied: set[int],
    progress: Progress,
) -> bool:
    """Copies wanted segments that are not copied yet; returns whether it copied any."""
    before = len(copied)
    for segment_id in wanted.keys() - copied:
        record = wanted[segment_id]
        progress(f"copying segment {segment_id} ({record.rows:,} leaves)")
        try:
            _copy_segment(store.segments, folder / location.SEGMENTS, record)
        except (FileNotFoundError, segment_files.DamagedSegment) as error:
            segment_files.remove(folder / location.SEGMENTS, segment_id)
            if segment_id in _listed(store):
                damage.report_damage(store.segments, segment_id)
                raise StoreUnavailable(
                    f"segment {segment_id} is damaged: {error}; a running indexer rebuilds it, "
                    "so try again soon, or stop it and run `hrag reindex`"
                ) from error
        else:
            copied.add(segment_id)
    return len(copied) > before


def _copy_segment(source: Path, target: Path, record: SegmentRecord) -> None:
    """Raises FileNotFoundError or DamagedSegment."""
    copy = segment_files.path_of(target, record.segment_id)
    make_folder(copy)
    for name in record.files:
        _copy_file(segment_files.path_of(source, record.segment_id) / name, copy / name)
    disk.sync(copy)
    segment_files.verify(target, record)


def _copy_file(source: Path, target: Path) -> str:
    """Copies a file durably; returns the SHA-256 of what it read."""
    digest = hashlib.sha256()
    with source.open("rb") as read, open(target, "wb", opener=opener) as written:
        while block := read.read(_BLOCK_BYTES):
            digest.update(block)
            written.write(block)
    disk.sync(target)
    return digest.hexdigest()


def _listed(store: Store) -> dict[int, SegmentRecord]:
    """The segments of all collections by id, as of one moment."""
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


def _checked(folder: Path) -> _Label:
    """Checks a copied store as a whole and describes it; raises StoreUnavailable."""
    report = check_apart(folder, alone=True)
    if report.problems:
        shown = "; ".join(report.problems[:_SHOWN_PROBLEMS])
        raise StoreUnavailable(
            f"the copy in {folder} has {len(report.problems):,} problems, the first: "
            f"{shown}; `hrag check` shows whether the store itself has them"
        )
    with closing(open_alone(folder)) as store, store.read() as txn:
        sequence = store.number(txn, schema.COMMIT_CURSOR)
    data = folder / location.DATA
    with data.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return _Label(
        documents=report.documents,
        sequence=sequence,
        size_bytes=sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        data_bytes=data.stat().st_size,
        data_sha256=digest,
    )


def _write_label(folder: Path, label: _Label) -> None:
    path = folder / _LABEL
    with open(path, "w", encoding="utf-8", opener=opener) as file:
        json.dump(asdict(label), file, indent=2)
    disk.sync(path)


# Restoring


def restore(source: Path, directory: Path, progress: Progress) -> BackupReport:
    """Makes a store of the backup in `source`, in `directory`, which must not hold one.

    Raises StorageFull or StoreUnavailable, and then there is still no store.
    """
    label = _read_label(source)
    location.refuse_network(directory)
    with location.explained_errors(directory):
        make_folder(directory, exist_ok=True)
    with store_locks.exclusive(directory):
        if location.has_data(directory):
            raise StoreUnavailable(f"{directory} holds a store; name a folder that holds none")
        partial = directory / RESTORE
        with _unfinished(partial):
            _copy_backup(source, partial, label, progress)
            progress("checking the copy")
            _checked(partial)
            _move_in(partial, directory)
        shutil.rmtree(partial)
    return label.report()


def _read_label(source: Path) -> _Label:
    try:
        return _label_of(json.loads((source / _LABEL).read_text("utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        raise StoreUnavailable(
            f"{source} is no backup of `hrag backup`: its {_LABEL} cannot be read ({error})"
        ) from error


def _label_of(found: Any) -> _Label:
    """Raises ValueError for what `hrag backup` does not write."""
    names = [field.name for field in fields(_Label)]
    if not isinstance(found, dict) or found.keys() != set(names):
        raise ValueError(f"it must have the fields {', '.join(names)}, and no others")
    for name, value in found.items():
        if name in _TEXTS:
            form, allowed = _TEXTS[name]
            is_valid = isinstance(value, str) and form.fullmatch(value) is not None
        else:
            allowed = f"a whole number from 0 to {_MAX_NUMBER:,}"
            is_valid = type(value) is int and 0 <= value <= _MAX_NUMBER
        if not is_valid:
            raise ValueError(f"{name} is {reprlib.repr(value)}; it must be {allowed}")
    return _Label(**found)


def _copy_backup(source: Path, folder: Path, label: _Label, progress: Progress) -> None:
    progress("copying the documents")
    if _copy_file(source / location.DATA, folder / location.DATA) != label.data_sha256:
        raise StoreUnavailable(
            f"{source / location.DATA} has changed since the backup of {label.created}; "
            "take another backup"
        )
    make_folder(folder / location.SEGMENTS)
    for segment_id, record in _listed_in(folder).items():
        progress(f"copying segment {segment_id} ({record.rows:,} leaves)")
        try:
            _copy_segment(source / location.SEGMENTS, folder / location.SEGMENTS, record)
        except (FileNotFoundError, segment_files.DamagedSegment) as error:
            raise StoreUnavailable(f"the backup in {source} is damaged: {error}") from error
    disk.sync(folder / location.SEGMENTS)


def _move_in(partial: Path, directory: Path) -> None:
    """Makes each step durable before the next: without the data file there is no store."""
    shutil.rmtree(directory / location.SEGMENTS, ignore_errors=True)
    (partial / location.SEGMENTS).rename(directory / location.SEGMENTS)
    disk.sync(directory)
    (partial / location.DATA).rename(directory / location.DATA)
    disk.sync(directory)
