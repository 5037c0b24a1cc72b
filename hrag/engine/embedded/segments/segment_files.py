"""The files of a segment: immutable indexes with their dense arrays, in one folder per segment.

hnswlib builds the index of the vectors, which `hrag_fast.Graph` searches in memory.
`hrag_fast.Postings` reads the postings in memory. A collection has one of the two or both.

No file is mapped: truncating a mapped file would kill the process with SIGBUS, and writing
into it would make a search return wrong results. Each process has a copy of the bytes that it
verified, so later changes to a file do not affect a search.

A segment is derived from LMDB and is readable only after the manifest in LMDB lists it. Its files
are written under a temporary name, read back to compute their checksums, synced, and renamed. The
commit of the manifest comes last. hnswlib reports neither a full disk nor a wrong dimension, so a
file that it writes or reads is trusted only if its size, its checksum and its counts are right.

Rows are in order of label. Exact duplicates ruin the recall of HNSW, so each distinct vector is
indexed once: item i of the index stands for the rows `members[heads[i]:heads[i + 1]]`. An item
has no rows if all of them were deleted before the segment was built. If all vectors differ and
none was deleted, item i is row i.
"""

import hashlib
import io
import math
import mmap
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from hrag.engine.embedded.store import disk
from hrag.engine.embedded.store.failpoints import reach
from hrag.engine.embedded.store.lmdb_records import SegmentFile, SegmentRecord
from hrag.engine.find import Vector
from hrag.host.private_files import FILE_MODE, make_folder
from hrag_fast import Graph, GraphSearch, Postings

# HNSW's `ef` at search, for the index of `vector_part`. With 100,000 vectors, `ef` 64 gave a
# recall@10 of 1.0 for 384 dimensions and of 0.995 for 96, but of only 0.96 for 64 dimensions. For
# 64 dimensions, `ef` 300 gives 0.993, and takes a sixth more time than `ef` 100 for 384 dimensions.
# A search for more items than this uses an `ef` of at least their number.
_EF = 64
_EF_OF_SHORT = 300
# A vector with fewer dimensions than this is short, so `_EF_OF_SHORT` is used in place of `_EF`.
_SHORT = 96
# With 1,000,000 vectors of 384 dimensions, `ef` 64 finds 0.89 of the nearest ten, 128 finds 0.983,
# 200 finds 0.990, and 300 finds 0.996. Above this number of items, `ef` grows with the square root
# of their number, which keeps the recall above 0.99.
_EF_ITEMS = 1 << 16

# The suffix of a folder whose files are not durable yet.
UNFINISHED = ".tmp"
INDEX = "index.hnsw"
POSTINGS = "postings.bin"
ROWS = "rows.npz"

# Graph, Postings and numpy raise these errors for files in a wrong format.
_UNREADABLE = (OSError, ValueError, KeyError, EOFError, BadZipFile)

_BLOCK_BYTES = 1 << 20
# With huge pages, loading a segment of 170 MB takes 0.73 of the time. Freeing it takes 2 ms instead
# of 15 ms, during which Python's global lock is held.
_HUGE_FROM_BYTES = 4 << 20

WriteParts = Callable[[Path], Mapping[str, NDArray[Any]]]


class DamagedSegment(Exception):
    """A segment's files differ from what the manifest says."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Dense arrays about the rows of a segment, in order of label.

    * `labels`: `uint64[rows]`.
    * `ancestors`: `uint32[levels, rows]`; the first level is the index of the leaf itself.
    * `heads` and `members`: `uint32`, as the module describes; empty if item i is row i for every
      i, or if there are no vectors.
    * `lengths`: `uint32[rows]`, the number of each leaf's terms; empty without postings.
    """

    labels: NDArray[np.uint64]
    ancestors: NDArray[np.uint32]
    heads: NDArray[np.uint32]
    members: NDArray[np.uint32]
    lengths: NDArray[np.uint32]

    def items(self) -> NDArray[np.uint32]:
        """Returns each row's item, `uint32[rows]`."""
        if not len(self.heads):
            return np.arange(len(self.labels), dtype=np.uint32)
        items = np.empty(len(self.labels), np.uint32)
        numbers = np.arange(len(self.heads) - 1, dtype=np.uint32)
        items[self.members] = np.repeat(numbers, np.diff(self.heads))
        return items

    @property
    def size_bytes(self) -> int:
        """The memory of the arrays."""
        return sum(getattr(self, name).nbytes for name in self.__slots__)


@dataclass(frozen=True, slots=True)
class LoadedSegment:
    """A segment in memory, ready to search from any number of threads.

    `items` has each row's item, `uint32[rows]`. `graph` is None without vectors, `postings` is None
    without an analyzer.
    """

    record: SegmentRecord
    rows: Rows
    items: NDArray[np.uint32]
    graph: Graph | None
    postings: Postings | None

    @property
    def size_bytes(self) -> int:
        """The memory that the segment uses in this process."""
        indexes = sum(file.size_bytes for name, file in self.record.files.items() if name != ROWS)
        graph_bytes = 0 if self.graph is None else self.graph.size_bytes
        return self.rows.size_bytes + self.items.nbytes + indexes + graph_bytes

    def search(self, query: Vector) -> "SegmentSearch":
        """Begins an ANN search for the rows nearest to `query`, `float32[dimension]`."""
        ef = search_ef(self.record.dimension, self.record.items)
        return SegmentSearch(self, self._vectors.search(query, ef))

    def scores(self, query: Vector, rows: NDArray[np.uint32]) -> Vector:
        """Returns the cosine of each of `rows` with the query, `float32[n]`."""
        return self._vectors.scores(query, self.items[rows])

    def best(
        self, query: Vector, rows: NDArray[np.uint32], count: int
    ) -> tuple[NDArray[np.uint32], Vector]:
        """Returns those `count` of `rows` that are nearest to the query, and their cosines.

        `rows` must ascend. The result is exact, `uint32[n]` and `float32[n]`, best first. Of rows
        that are equally near, the lower ones are returned.
        """
        positions, cosines = self._vectors.best(query, self.items[rows], count)
        return rows[positions], cosines

    @property
    def _vectors(self) -> Graph:
        if self.graph is None:
            raise TypeError("the segment's collection has no vectors")
        return self.graph

    def expand(
        self, items: NDArray[np.uint32], scores: Vector
    ) -> tuple[NDArray[np.uint32], Vector]:
        """Returns the rows that items stand for, each with the score of its item."""
        heads = self.rows.heads
        if not len(heads):
            return items, scores
        # The counts are signed, because a head may be smaller than the number of rows before it in
        # the result.
        counts = (heads[items + 1] - heads[items]).astype(np.int64)
        before = np.cumsum(counts) - counts
        positions = np.repeat(heads[items] - before, counts) + np.arange(counts.sum())
        return self.rows.members[positions], np.repeat(scores, counts)


@dataclass(frozen=True, slots=True)
class SegmentSearch:
    """A search of one query in a segment; each call of `nearest` continues the one before.

    Only one thread may use it at a time.
    """

    segment: LoadedSegment
    graph_search: GraphSearch

    def nearest(self, count: int) -> tuple[NDArray[np.uint32], Vector] | None:
        """Returns the rows nearest to the query, `uint32[n]`, and their cosines, `float32[n]`.

        Returns all rows of the nearest `count` items, or of all items if the segment has fewer.
        Returns None if HNSW reached fewer items, which happens in a graph that is not fully
        connected.
        """
        items, scores = self.graph_search.nearest(count)
        if len(items) < min(count, self.segment.record.items):
            return None
        return self.segment.expand(items, scores)


def search_ef(dimension: int, items: int) -> int:
    """Returns HNSW's `ef`: the number of candidates that a search keeps in its list.

    `items` is the number of items in the index.
    """
    base = _EF_OF_SHORT if dimension < _SHORT else _EF
    return round(base * max(1.0, math.sqrt(items / _EF_ITEMS)))


def write(folder: Path, segment_id: int, write_parts: WriteParts) -> dict[str, SegmentFile]:
    """Writes a segment's files durably; returns their sizes and checksums for the manifest.

    `write_parts` writes the parts' files into the folder that is passed to it, and returns the
    arrays of the rows. Raises OSError, for example when the disk is full; then no file remains.
    """
    target = path_of(folder, segment_id)
    temporary = target.with_suffix(UNFINISHED)
    remove_path(temporary)
    make_folder(temporary)
    try:
        np.savez(temporary / ROWS, **write_parts(temporary))  # type: ignore[arg-type]
        reach("segment.written")
        files = {path.name: sync_file(path) for path in sorted(temporary.iterdir())}
        disk.sync(temporary)
        reach("segment.synced")
        temporary.rename(target)
        disk.sync(folder)
        reach("segment.renamed")
    except BaseException:
        remove_path(temporary)
        remove_path(target)
        raise
    return files


def load(
    folder: Path,
    record: SegmentRecord,
    *,
    with_graph: bool = True,
    huge_from_bytes: int = _HUGE_FROM_BYTES,
) -> LoadedSegment:
    """Reads a segment into memory. Raises DamagedSegment, which names the file and the defect.

    Without `with_graph`, the graph is not read, which saves most of the memory; then the vectors
    cannot be searched. Files of at least `huge_from_bytes` are read into huge pages if possible.
    """
    path = path_of(folder, record.segment_id)
    names = [name for name in record.files if with_graph or name != INDEX]
    files = {name: _read(path / name, record.files[name], huge_from_bytes) for name in names}
    try:
        graph = Graph(files[INDEX]) if record.dimension and with_graph else None
        postings = Postings(files[POSTINGS]) if record.analyzer else None
        rows = _rows(files[ROWS], record)
    except _UNREADABLE as error:
        raise DamagedSegment(f"{path} cannot be read: {error}") from error
    if len(rows.labels) != record.rows:
        raise DamagedSegment(
            f"{path} holds {len(rows.labels)} leaves; the manifest says {record.rows}"
        )
    if graph is not None:
        _check_graph(path / INDEX, graph, record)
    if postings is not None and not postings.rows == len(rows.lengths) == record.rows:
        raise DamagedSegment(
            f"{path / POSTINGS} has {postings.rows} leaves; the manifest says {record.rows}"
        )
    return LoadedSegment(record, rows, rows.items(), graph, postings)


def _rows(packed: memoryview, record: SegmentRecord) -> Rows:
    names = ["labels", "ancestors"]
    if record.dimension:
        names += ["heads", "members"]
    if record.analyzer:
        names += ["lengths"]
    arrays = dict(zip(names, _arrays(packed, names), strict=True))
    empty = np.empty(0, np.uint32)
    return Rows(**{name: arrays.get(name, empty) for name in Rows.__slots__})


def _check_graph(path: Path, graph: Graph, record: SegmentRecord) -> None:
    if graph.dimension != record.dimension:
        raise DamagedSegment(
            f"{path} holds vectors of {graph.dimension} numbers, not {record.dimension}"
        )
    if len(graph) != record.items:
        raise DamagedSegment(f"{path} holds {len(graph)} vectors; the manifest says {record.items}")


def load_arrays(folder: Path, record: SegmentRecord, names: Sequence[str]) -> list[NDArray[Any]]:
    """Returns arrays that are stored with a segment's rows. Raises DamagedSegment."""
    path = path_of(folder, record.segment_id) / ROWS
    try:
        return _arrays(_read(path, record.files[ROWS]), names)
    except _UNREADABLE as error:
        raise DamagedSegment(f"{path} cannot be read: {error}") from error


def _arrays(packed: memoryview, names: Sequence[str]) -> list[NDArray[Any]]:
    with np.load(io.BytesIO(packed), allow_pickle=False) as arrays:
        return [arrays[name] for name in names]


@contextmanager
def verified_copy(folder: Path, record: SegmentRecord, name: str) -> Iterator[Path]:
    """Yields the path of a copy of a segment's file that no other process can change.

    Libraries that read a path and do not check its content can read this copy. The copy has no
    name in the folder. It uses disk space until the block ends. Raises DamagedSegment, or OSError
    when the disk is full.
    """
    source, expected = path_of(folder, record.segment_id) / name, record.files[name]
    with TemporaryFile(dir=folder) as copy:
        for block in _verified_blocks(source, expected, bytearray(_BLOCK_BYTES)):
            copy.write(block)
        copy.flush()
        yield Path(f"/proc/self/fd/{copy.fileno()}")


def verify(folder: Path, record: SegmentRecord) -> None:
    """Reads a segment's files. Raises DamagedSegment if a size or a checksum is wrong."""
    buffer = bytearray(_BLOCK_BYTES)
    for name, file in record.files.items():
        for _ in _verified_blocks(path_of(folder, record.segment_id) / name, file, buffer):
            pass


def has_its_sizes(folder: Path, record: SegmentRecord) -> bool:
    """Returns True if all files of a segment exist with the manifest's sizes; reads no file."""
    path = path_of(folder, record.segment_id)
    try:
        return all(
            (path / name).stat().st_size == file.size_bytes for name, file in record.files.items()
        )
    except OSError:
        return False


def path_of(folder: Path, segment_id: int) -> Path:
    """Returns the folder of one segment's files."""
    return folder / f"{segment_id:012d}"


def remove(folder: Path, segment_id: int) -> None:
    """Removes a segment's files; processes that have it loaded keep their copy."""
    remove_path(path_of(folder, segment_id))
    reach("segment.removed")


def remove_path(path: Path) -> None:
    """Removes a folder or a file, if it exists."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _read(path: Path, expected: SegmentFile, huge_from_bytes: int = _HUGE_FROM_BYTES) -> memoryview:
    """Reads a file into the memory of this process and verifies it. Raises DamagedSegment.

    The checksum is computed from the returned bytes, so a change of the file during the read cannot
    go unnoticed.
    """
    # Unlike a bytearray of this size, an anonymous map is not filled with zeros first, and its
    # memory is freed immediately.
    pages = mmap.mmap(-1, max(expected.size_bytes, 1), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if expected.size_bytes >= huge_from_bytes:
        with suppress(OSError):  # The kernel may not support huge pages.
            pages.madvise(mmap.MADV_HUGEPAGE)
    memory = memoryview(pages)
    for _ in _verified_blocks(path, expected, memory, keep=True):
        pass
    return memory[: expected.size_bytes].toreadonly()


def _verified_blocks(
    path: Path, expected: SegmentFile, buffer: bytearray | memoryview, *, keep: bool = False
) -> Iterator[memoryview]:
    """Reads a file through `buffer` and yields its blocks; each is valid until the next one.

    With `keep`, the buffer must be as large as the file and contains all of it at the end. Raises
    DamagedSegment if the file cannot be read. A wrong size is reported before the first block, a
    wrong checksum after the last one.
    """
    digest, position = hashlib.sha256(), 0
    view = memoryview(buffer)
    try:
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if size != expected.size_bytes:
                raise DamagedSegment(
                    f"{path} has {size} bytes, the manifest says {expected.size_bytes}"
                )
            while position < size:
                start = position if keep else 0
                count = file.readinto(view[start : start + min(_BLOCK_BYTES, size - position)])
                if not count:
                    raise DamagedSegment(f"{path} has become shorter while it was read")
                block = view[start : start + count]
                digest.update(block)
                position += count
                yield block
    except OSError as error:
        raise DamagedSegment(f"{path} cannot be read: {error.strerror}") from error
    if digest.hexdigest() != expected.sha256:
        raise DamagedSegment(f"{path} does not match the manifest's checksum")


def sync_file(path: Path) -> SegmentFile:
    """Makes a file of a segment durable and private; returns its size and checksum."""
    path.chmod(FILE_MODE)
    disk.sync(path)
    return SegmentFile(path.stat().st_size, _sha256(path))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
