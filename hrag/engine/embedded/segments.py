"""Segment files: an immutable hnswlib index with its dense arrays, in a folder of its own.

A segment is derived from LMDB and readable only once the manifest there lists it: files
are written under a temporary name, read back and summed, synced, and renamed; the commit
of the manifest comes last. hnswlib reports neither a full disk nor a wrong dimension, so
nothing it writes or reads is trusted without size, checksum and count.

Rows are in order of label. Exact duplicates ruin the recall of HNSW, so each distinct
vector is indexed once: item i of the index stands for rows
`members[heads[i]:heads[i + 1]]`. Where all vectors differ, item i is row i.
"""

import hashlib
import os
import shutil
import struct
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import hnswlib
import numpy as np
from numpy.typing import NDArray

from hrag.embedding import Vectors
from hrag.engine import Vector
from hrag.engine.embedded.records import SegmentFile, SegmentRecord

SPACE = "ip"  # Inner product of unit vectors: the cosine.
# M 16, ef_construction 200 and ef 64 gave recall@10 of 1.0 on 100,000 x 384. hnswlib
# itself searches with at least as large an ef as the results asked for.
_M = 16
_EF_CONSTRUCTION = 200
_EF = 64
_SEED = 100

# How hnswlib's file begins: offset of level 0, capacity, count, bytes of an item, and
# where in an item its label and its vector lie.
_INDEX_HEADER = struct.Struct("<6Q")

_INDEX = "index.hnsw"
_ROWS = "rows.npz"

# What hnswlib, numpy and struct raise at files that are not theirs.
_UNREADABLE = (OSError, RuntimeError, ValueError, KeyError, EOFError, BadZipFile, struct.error)


class DamagedSegment(Exception):
    """A segment's files are not what the manifest says."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Dense arrays beside an index, one column per row, rows in order of label.

    `labels` is `uint64[rows]`; `ancestors` `uint32[levels, rows]`, its row 0 the leaf's
    own index; `heads` and `members` are `uint32`, empty where all vectors differ.
    """

    labels: NDArray[np.uint64]
    ancestors: NDArray[np.uint32]
    heads: NDArray[np.uint32]
    members: NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class LoadedSegment:
    """A segment in memory, ready to search from any number of threads."""

    record: SegmentRecord
    rows: Rows
    index: hnswlib.Index

    def search(self, query: Vector, count: int) -> tuple[NDArray[np.uint32], Vector] | None:
        """Rows nearest to `query` and their cosines, or None where HNSW cannot say.

        At least `count` rows where the segment has as many; those that share a vector
        come together. hnswlib fails when its graph leads to fewer than `count` items.
        """
        try:
            items, distances = self.index.knn_query(
                query, k=min(count, self.record.distinct), num_threads=1
            )
        except RuntimeError:
            return None
        scores = 1.0 - distances[0]
        return self._expand(items[0].astype(np.uint32), scores)

    def _expand(
        self, items: NDArray[np.uint32], scores: Vector
    ) -> tuple[NDArray[np.uint32], Vector]:
        heads = self.rows.heads
        if not len(heads):
            return items, scores
        # Signed, for a head may be smaller than the count of rows before it in the answer.
        counts = (heads[items + 1] - heads[items]).astype(np.int64)
        before = np.cumsum(counts) - counts
        places = np.repeat(heads[items] - before, counts) + np.arange(counts.sum())
        return self.rows.members[places], np.repeat(scores, counts)


@dataclass(frozen=True, slots=True)
class Distinct:
    """Which rows carry each distinct vector; `first` names one row of each."""

    first: NDArray[np.intp]
    heads: NDArray[np.uint32]
    members: NDArray[np.uint32]


def find_distinct(vectors: Vectors) -> Distinct:
    """Groups rows of `float32[rows, dimension]` that are equal to the bit."""
    width = np.dtype((np.void, vectors.shape[1] * vectors.itemsize))
    _, first, item_of_row = np.unique(
        np.ascontiguousarray(vectors).view(width).ravel(), return_index=True, return_inverse=True
    )
    none = np.empty(0, np.uint32)
    if len(first) == len(vectors):
        return Distinct(np.arange(len(vectors)), none, none)
    counts = np.bincount(item_of_row)
    heads = np.concatenate(([0], np.cumsum(counts))).astype(np.uint32)
    return Distinct(first, heads, np.argsort(item_of_row, kind="stable").astype(np.uint32))


def build_index(vectors: Vectors, threads: int) -> hnswlib.Index:
    """Indexes `float32[n, dimension]` unit vectors as items 0 to n - 1; releases the GIL."""
    index = hnswlib.Index(space=SPACE, dim=vectors.shape[1])
    index.init_index(
        max_elements=len(vectors), M=_M, ef_construction=_EF_CONSTRUCTION, random_seed=_SEED
    )
    index.add_items(vectors, np.arange(len(vectors)), num_threads=threads)
    return index


def write(
    folder: Path, segment_id: int, index: hnswlib.Index, rows: Rows
) -> dict[str, SegmentFile]:
    """Writes a segment's files durably and returns what the manifest shall say of them.

    Raises OSError, for one when the disk is full; then nothing is left behind.
    """
    target = path_of(folder, segment_id)
    temporary = target.with_suffix(".tmp")
    remove_tree(temporary)
    temporary.mkdir()
    try:
        index.save_index(str(temporary / _INDEX))
        np.savez(
            temporary / _ROWS,
            labels=rows.labels,
            ancestors=rows.ancestors,
            heads=rows.heads,
            members=rows.members,
        )
        if (temporary / _INDEX).stat().st_size != index.index_file_size():
            raise OSError(f"{temporary / _INDEX} was not written whole; the disk may be full")
        files = {name: _sync_and_sum(temporary / name) for name in (_INDEX, _ROWS)}
        _sync_folder(temporary)
        temporary.rename(target)
        _sync_folder(folder)
    except BaseException:
        remove_tree(temporary)
        remove_tree(target)
        raise
    return files


def load(folder: Path, record: SegmentRecord) -> LoadedSegment:
    """Reads a segment, or raises DamagedSegment saying which file is wrong and how."""
    path = path_of(folder, record.segment_id)
    for name, file in record.files.items():
        _verify(path / name, file)
    try:
        _check_dimension(path / _INDEX, record.dimension)
        index = hnswlib.Index(space=record.space, dim=record.dimension)
        index.load_index(str(path / _INDEX))
        with (path / _ROWS).open("rb") as packed, np.load(packed, allow_pickle=False) as arrays:
            rows = Rows(*(arrays[name] for name in Rows.__slots__))
    except _UNREADABLE as error:
        raise DamagedSegment(f"{path} cannot be read: {error}") from error
    if index.get_current_count() != record.distinct or len(rows.labels) != record.rows:
        raise DamagedSegment(
            f"{path} holds {index.get_current_count()} vectors of {len(rows.labels)} leaves; "
            f"the manifest says {record.distinct} of {record.rows}"
        )
    index.set_ef(_EF)  # It falls back to 10 after load_index.
    return LoadedSegment(record, rows, index)


def path_of(folder: Path, segment_id: int) -> Path:
    """The folder of one segment's files."""
    return folder / f"{segment_id:012d}"


def remove(folder: Path, segment_id: int) -> None:
    """Removes a segment's files; those who have it loaded keep their copy."""
    remove_tree(path_of(folder, segment_id))


def remove_tree(path: Path) -> None:
    """Removes a folder that may not exist."""
    shutil.rmtree(path, ignore_errors=True)


def _verify(path: Path, expected: SegmentFile) -> None:
    try:
        size = path.stat().st_size
        if size != expected.size_bytes:
            raise DamagedSegment(
                f"{path} has {size} bytes, the manifest says {expected.size_bytes}"
            )
        if _sha256(path) != expected.sha256:
            raise DamagedSegment(f"{path} does not match the manifest's checksum")
    except OSError as error:
        raise DamagedSegment(f"{path} cannot be read: {error.strerror}") from error


def _check_dimension(path: Path, dimension: int) -> None:
    """hnswlib would load vectors of another dimension and compare them as if of this one."""
    with path.open("rb") as file:
        *_, label_at, vector_at = _INDEX_HEADER.unpack(file.read(_INDEX_HEADER.size))
    found = (label_at - vector_at) // np.dtype(np.float32).itemsize
    if found != dimension:
        raise DamagedSegment(f"{path} holds vectors of {found} numbers, not {dimension}")


def _sync_and_sum(path: Path) -> SegmentFile:
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return SegmentFile(path.stat().st_size, _sha256(path))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
