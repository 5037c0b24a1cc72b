"""Backs up a store while it is in use, and restores a store from a backup.

The copy of LMDB's file is a snapshot, and the backup must contain every segment that this snapshot
lists. While a backup runs, new segments may replace others. So a backup has these steps:

1. It copies all segments that the store lists.
2. It copies LMDB's file.
3. It copies the segments that the copy of LMDB's file lists and that step 1 did not copy. If such a
   segment has already been replaced and removed, the backup deletes its copy of LMDB's file and
   starts again at step 1. Segments that it has copied are not copied again.

A few attempts are enough, because segments never change, and their files stay on disk for a while
after they are replaced.

The copy is written into a folder with a temporary name. The folder gets its final name after the
whole copy has been checked, so a backup with its final name is complete. The file `backup.json`
next to the store's files is called the label. It describes the backup and contains the checksum of
LMDB's file. The checksums of the segments are stored in LMDB.

A restore is done completely or not at all: a folder is a store only if it contains `data.mdb`, and
that file is moved into the folder last.

While a copy is unfinished, its folder contains an empty file, `unfinished.hrag`, as a mark. If the
process is killed, the folder and the mark remain. A later backup or restore that needs the same
folder name removes the folder. It never removes a folder that contains other files and no mark.
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
from hrag.engine.embedded.store import location, schema, store_locks
from hrag.engine.embedded.store.environment import RESTORE, Store, open_alone
from hrag.engine.embedded.store.lmdb_records import SegmentRecord
from hrag.engine.embedded.store.queries import listed_segments
from hrag.engine.protocols import Progress
from hrag.engine.reports import BackupReport
from hrag.host import durable_files
from hrag.host.private_files import FILE_MODE, make_folder, opener
from hrag.values.errors import FolderRefused, StoreUnavailable, StoreUnusable

_LABEL = "backup.json"
_UNFINISHED = "unfinished.hrag"
# A backup copies LMDB's file at most this many times. It copies the file again if the copy lists a
# segment that was replaced before the segment could be copied. If this also happens after the last
# copy, the backup fails.
_ATTEMPTS = 5
_BLOCK_BYTES = 1 << 20
# The error message about a copy with problems contains at most this many of the problems.
_SHOWN_PROBLEMS = 10
# The text fields in the file `backup.json`. Each has a pattern that the text must match, and a
# description of the pattern for error messages. All other fields are integers.
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
    """The contents of `backup.json`: the report on the backup, and facts about LMDB's file.

    `data_bytes` is the size of LMDB's file. `data_sha256` is its SHA-256 in hexadecimal.
    """

    data_bytes: int
    data_sha256: str

    def report(self) -> BackupReport:
        return BackupReport(self.documents, self.sequence, self.size_bytes, self.created)


# The functions that make a backup.


def backup(store: Store, target: Path, progress: Progress) -> BackupReport:
    """Copies a consistent snapshot of `store` into the folder `target`.

    `target` must not exist or must be an empty folder. Calls `progress` with a description of each
    step. Raises StorageFull or StoreUnavailable. After an error, nothing of the copy remains.
    """
    target = target.absolute()
    partial = target.with_name(f"{target.name}.partial")
    _refuse_target(store.directory, target, partial)
    with _only_backup_of(store), _unfinished(partial):
        make_folder(partial / location.SEGMENTS)
        _copy_store(store, partial, progress)
        progress("checking the copy")
        label = _check_copy(partial)
        _write_label(partial, label)
        for folder in (partial / location.SEGMENTS, partial):
            durable_files.sync(folder)
        partial.rename(target)
        # The folder has its final name before it loses its mark, also after a power loss. So a
        # folder with the temporary name always has the mark, and a later backup can remove it.
        durable_files.sync(target.parent)
        (target / _UNFINISHED).unlink()
        durable_files.sync(target)
    return label.report()


def _refuse_target(directory: Path, target: Path, partial: Path) -> None:
    with location.explained_errors(target):
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise FolderRefused(f"{target} exists already; a backup needs a new folder")
        if target.is_mount():
            raise FolderRefused(f"a disk is mounted at {target}; name a new folder below it")
        if directory.resolve().is_relative_to(partial.resolve()):
            raise FolderRefused(
                f"the backup would first be written to {partial}, which contains the store in "
                f"{directory}; name another folder"
            )
        for folder in (target, partial):
            if folder.resolve().is_relative_to(directory.resolve()):
                raise FolderRefused(
                    f"{folder} lies inside the store in {directory}; name a folder outside it"
                )


@contextmanager
def _only_backup_of(store: Store) -> Iterator[None]:
    """Holds a lock during the `with` block, so that no other backup of the store runs.

    Raises StoreUnavailable if another backup runs. The locked file is in the store's folder,
    because the file system of the backup may not support locks.
    """
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
    """Creates an empty folder. The `with` block then copies a store into this folder.

    Adds a file that marks the folder as unfinished. If the block raises an exception, the folder is
    removed. A folder that exists already is replaced if it is empty or contains this mark. If
    `folder` is any other folder or a file, raises FolderRefused.
    """
    with location.explained_errors(folder):
        _refuse_foreign(folder)
        _remove(folder)
        durable_files.make_folder(folder)
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
        raise FolderRefused(
            f"{folder} exists, but does not come from an interrupted backup or restore; move it "
            "away, or name another folder"
        )


def _remove(folder: Path) -> None:
    """Removes the folder of an unfinished copy. Does nothing if the folder does not exist.

    The file that marks the folder as unfinished is removed last. So if the removal is interrupted,
    a later backup or restore can still recognise the folder and remove it.
    """
    with suppress(OSError):
        for path in folder.iterdir():
            if path.name != _UNFINISHED:
                segment_files.remove_path(path)
    shutil.rmtree(folder, ignore_errors=True)


def _copy_store(store: Store, folder: Path, progress: Progress) -> None:
    copied: set[int] = set()
    for _ in range(_ATTEMPTS):
        while _copy_segments(store, _list_segments(store), folder, copied, progress):
            pass
        progress("copying the documents")
        store.copy_to(folder)
        listed = _list_segments_in(folder)
        _copy_segments(store, listed, folder, copied, progress)
        if listed.keys() <= copied:
            for unlisted in copied - listed.keys():
                segment_files.remove(folder / location.SEGMENTS, unlisted)
            return
        (folder / location.DATA).unlink()
    raise StoreUnavailable(
        f"segments of the store in {store.directory} were replaced before they could be copied, "
        f"{_ATTEMPTS} times; try again when fewer documents are being written"
    )


def _copy_segments(
    store: Store,
    records: dict[int, SegmentRecord],
    folder: Path,
    copied: set[int],
    progress: Progress,
) -> bool:
    """Copies the segments in `records` that are not in `copied`, and adds their ids to `copied`.

    Returns False if no segment was copied. If a segment is damaged or missing, and the store no
    longer lists it, skips the segment. If the store still lists the segment, raises
    StoreUnavailable.
    """
    copied_before = len(copied)
    for segment_id in records.keys() - copied:
        record = records[segment_id]
        progress(f"copying segment {segment_id} ({record.rows:,} leaves)")
        try:
            _copy_segment(store.segments, folder / location.SEGMENTS, record)
        except (FileNotFoundError, segment_files.DamagedSegment) as error:
            segment_files.remove(folder / location.SEGMENTS, segment_id)
            if segment_id in _list_segments(store):
                damage.report_damage(store.segments, segment_id)
                raise StoreUnavailable(
                    f"segment {segment_id} is damaged: {error}; a running indexer rebuilds the "
                    "segment, so try again soon, or stop the indexer and run `hrag reindex`"
                ) from error
        else:
            copied.add(segment_id)
    return len(copied) > copied_before


def _copy_segment(source: Path, target: Path, record: SegmentRecord) -> None:
    """Copies a segment from one folder of segments to another, and verifies the copy.

    Raises FileNotFoundError if a file of the segment is missing. Raises DamagedSegment if the copy
    does not match `record`.
    """
    copy = segment_files.path_of(target, record.segment_id)
    make_folder(copy)
    for name in record.files:
        _copy_file(segment_files.path_of(source, record.segment_id) / name, copy / name)
    durable_files.sync(copy)
    segment_files.verify(target, record)


def _copy_file(source: Path, target: Path) -> str:
    """Copies a file durably. Returns the SHA-256 of the copied bytes in hexadecimal."""
    digest = hashlib.sha256()
    with source.open("rb") as read, open(target, "wb", opener=opener) as written:
        while block := read.read(_BLOCK_BYTES):
            digest.update(block)
            written.write(block)
    durable_files.sync(target)
    return digest.hexdigest()


def _list_segments(store: Store) -> dict[int, SegmentRecord]:
    """Returns a dictionary from the id of each segment of the store to the segment's record.

    Reads all records in one transaction. Raises DataLoss if a record is damaged.
    """
    with store.read() as txn:
        # This reads the records of the collections, and not only their keys, so that a damaged
        # record raises DataLoss.
        collections = [number for number, _ in txn.collections.entries()]
        return {
            record.segment_id: record
            for number in collections
            for record in listed_segments(txn, number)
        }


def _list_segments_in(folder: Path) -> dict[int, SegmentRecord]:
    with closing(open_alone(folder)) as store:
        return _list_segments(store)


def _check_copy(folder: Path) -> _Label:
    """Checks the copy of a store in `folder`, and returns the contents of its `backup.json`.

    Raises StoreUnusable if the copy has problems.
    """
    report = check_apart(folder, alone=True)
    if report.problems:
        shown = "; ".join(report.problems[:_SHOWN_PROBLEMS])
        raise StoreUnusable(
            f"the copy in {folder} has {len(report.problems):,} problems, the first: "
            f"{shown}; `hrag check` shows whether the store itself has these problems"
        )
    with closing(open_alone(folder)) as store, store.read() as txn:
        sequence = txn.number(schema.COMMIT_CURSOR)
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
    durable_files.sync(path)


# The functions that restore a backup.


def restore(source: Path, directory: Path, progress: Progress) -> BackupReport:
    """Restores the backup in `source` as the store in `directory`.

    `directory` must not contain a store. Calls `progress` with a description of each step. Raises
    StorageFull or StoreUnavailable. After an error, no store was added to `directory`.
    """
    label = _read_label(source)
    location.refuse_network(directory)
    with location.explained_errors(directory):
        durable_files.make_folder(directory, exist_ok=True)
    with store_locks.exclusive(directory):
        if location.has_data(directory):
            raise FolderRefused(f"{directory} holds a store; name a folder without a store")
        partial = directory / RESTORE
        with _unfinished(partial):
            _copy_backup(source, partial, label, progress)
            progress("checking the copy")
            _check_copy(partial)
            _move_in(partial, directory)
        shutil.rmtree(partial)
    return label.report()


def _read_label(source: Path) -> _Label:
    try:
        return _parse_label(json.loads((source / _LABEL).read_text("utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        raise StoreUnusable(
            f"{source} is no backup of `hrag backup`: the file {_LABEL} cannot be read ({error})"
        ) from error


def _parse_label(values: Any) -> _Label:
    """Converts `values`, the decoded JSON of the file `backup.json`, into a label.

    Raises ValueError if a field is missing, unknown or not valid.
    """
    names = [field.name for field in fields(_Label)]
    if not isinstance(values, dict) or values.keys() != set(names):
        raise ValueError(f"the file must have the fields {', '.join(names)}, and no other fields")
    for name, value in values.items():
        if name in _TEXTS:
            form, allowed = _TEXTS[name]
            is_valid = isinstance(value, str) and form.fullmatch(value) is not None
        else:
            allowed = f"a whole number from 0 to {_MAX_NUMBER:,}"
            is_valid = type(value) is int and 0 <= value <= _MAX_NUMBER
        if not is_valid:
            raise ValueError(f"{name} is {reprlib.repr(value)}; it must be {allowed}")
    return _Label(**values)


def _copy_backup(source: Path, folder: Path, label: _Label, progress: Progress) -> None:
    progress("copying the documents")
    if _copy_file(source / location.DATA, folder / location.DATA) != label.data_sha256:
        raise StoreUnusable(
            f"{source / location.DATA} has changed since the backup was made at {label.created}; "
            "restore another backup"
        )
    make_folder(folder / location.SEGMENTS)
    for segment_id, record in _list_segments_in(folder).items():
        progress(f"copying segment {segment_id} ({record.rows:,} leaves)")
        try:
            _copy_segment(source / location.SEGMENTS, folder / location.SEGMENTS, record)
        except (FileNotFoundError, segment_files.DamagedSegment) as error:
            raise StoreUnusable(f"the backup in {source} is damaged: {error}") from error
    durable_files.sync(folder / location.SEGMENTS)


def _move_in(partial: Path, directory: Path) -> None:
    """Moves the segments, then LMDB's file, from `partial` to `directory`.

    The move of the segments is durable before LMDB's file is moved. LMDB's file comes last, because
    a folder without it is not a store.
    """
    shutil.rmtree(directory / location.SEGMENTS, ignore_errors=True)
    (partial / location.SEGMENTS).rename(directory / location.SEGMENTS)
    durable_files.sync(directory)
    (partial / location.DATA).rename(directory / location.DATA)
    durable_files.sync(directory)
