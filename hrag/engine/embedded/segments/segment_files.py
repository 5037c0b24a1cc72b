"""The files of a segment: immutable indexes and dense arrays, in one folder for each segment.

hnswlib builds the index of the vectors, which `hrag_fast.Graph` searches. `hrag_fast.Postings`
reads the postings in memory. A collection has vectors, postings, or both.

No file is mapped into memory, because truncating a mapped file would kill the process with SIGBUS,
and changing it would make a search return wrong results. Instead, each process reads the files into
its own memory and verifies these bytes, so later changes to a file do not affect a search. The
vectors are the largest part, and a search needs few of them. So they may stay in the file of the
index, which then stays open: each vector that a search needs is read and verified again.

A segment is derived from LMDB. It is written in these steps:

1. Its files are written into a folder with a temporary name, read back to compute their checksums,
   and synced.
2. The folder is renamed.
3. A transaction adds the segment to the manifest in LMDB. Before the commit of this transaction, no
   process reads the segment.

hnswlib reports neither a full disk nor a wrong dimension. So a file that hnswlib writes or reads is
used only if its size, its checksum and its counts are right.

Rows are in order of label. Exact duplicates ruin the recall of HNSW, so each distinct vector is
indexed once, as an item of the index. The rows `members[heads[i]:heads[i + 1]]` have the vector of
item i. An item has no rows if all leaves with its vector were deleted before the segment was built.
If all vectors differ and no leaf was deleted, item i is row i, and both arrays are empty.
"""

import hashlib
import io
import math
import mmap
import os
import resource
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from io import FileIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from hrag.engine.embedded.store.failpoints import reach
from hrag.engine.embedded.store.lmdb_records import SegmentFile, SegmentRecord
from hrag.host import durable_files
from hrag.host.private_files import FILE_MODE, make_folder
from hrag.models.embedding import Vectors
from hrag_fast import Graph, Postings, SegmentVectors

# HNSW's parameter `ef` at search, for the index that `vector_part` builds. With 100,000 vectors and
# `ef` 64, the recall@10 was 1.0 for 384 dimensions and 0.995 for 96, but only 0.96 for 64. With
# `ef` 300, the recall@10 for 64 dimensions was 0.993. Such a search is still fast: it takes only a
# sixth more time than a search with `ef` 100 in 384 dimensions. A search for more items than `ef`
# uses the count of these items as `ef`.
_EF = 64
_EF_OF_FEW_DIMENSIONS = 300
# For vectors with fewer dimensions than this, `_EF_OF_FEW_DIMENSIONS` is used instead of `_EF`.
_FEW_DIMENSIONS = 96
# In an index with more items than this, `ef` grows with the square root of the count of items, so
# that the recall@10 stays above 0.99. With a constant `ef`, the recall would fall: with 1,000,000
# vectors of 384 dimensions, it is 0.89 with `ef` 64, 0.983 with 128, 0.990 with 200, and 0.996 with
# 300.
_EF_ITEMS = 1 << 16

# A segment's folder has this suffix until its files are durable.
UNFINISHED = ".tmp"
INDEX = "index.hnsw"
POSTINGS = "postings.bin"
ROWS = "rows.npz"

# Graph, Postings and numpy raise these errors for files in a wrong format.
_UNREADABLE = (OSError, ValueError, KeyError, EOFError, BadZipFile)

_BLOCK_BYTES = 1 << 20
# Files of at least this size are read into huge pages. With huge pages, loading a segment of 170 MB
# takes 27 % less time than with normal pages. Freeing the memory of this segment takes 2 ms instead
# of 15 ms, and during this time no other thread of Python can run.
_HUGE_FROM_BYTES = 4 << 20
# Each segment whose vectors stay in its file needs a file descriptor. Such segments leave this
# share of the allowed descriptors to connections and other files. The operating system numbers
# descriptors from the lowest unused number.
_DESCRIPTOR_SHARE = 0.5

WriteParts = Callable[[Path], Mapping[str, NDArray[Any]]]


class DamagedSegment(Exception):
    """A file of a segment is missing, or differs from what the manifest says."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Dense arrays about the rows of a segment, in order of label.

    * `labels`: `uint64[rows]`, the label of each leaf.
    * `ancestors`: `uint32[levels, rows]`, the index of each leaf's ancestor at every level; the
      first level has the index of the leaf itself.
    * `heads` and `members`: `uint32`. The rows with the vector of item i are
      `members[heads[i]:heads[i + 1]]`. Both arrays are empty if item i is row i for every i, or if
      there are no vectors.
    * `lengths`: `uint32[rows]`, the count of each leaf's terms; empty without postings.
    """

    labels: NDArray[np.uint64]
    ancestors: NDArray[np.uint32]
    heads: NDArray[np.uint32]
    members: NDArray[np.uint32]
    lengths: NDArray[np.uint32]

    def items(self) -> NDArray[np.uint32]:
        """Returns, for each row, the number of its vector in the HNSW index: `uint32[rows]`.

        Equal vectors are stored in the index only once, as one item, so several rows may have the
        same number.
        """
        if not len(self.heads):
            return np.arange(len(self.labels), dtype=np.uint32)
        items = np.empty(len(self.labels), np.uint32)
        all_items = np.arange(len(self.heads) - 1, dtype=np.uint32)
        items[self.members] = np.repeat(all_items, np.diff(self.heads))
        return items

    def rows_of_item(self, item: int) -> NDArray[np.uint32]:
        """Returns the rows that have the vector of an item: `uint32[n]`."""
        if not len(self.heads):
            return np.array([item], np.uint32)
        return self.members[self.heads[item] : self.heads[item + 1]]

    @property
    def size_bytes(self) -> int:
        """The memory that all arrays take together, in bytes."""
        return sum(getattr(self, name).nbytes for name in self.__slots__)


Items = NDArray[np.uint32]
VectorSource = Callable[[SegmentRecord, Rows, Items, str], Vectors]
"""Returns the vectors of items, which cannot be read from the file of a segment.

The arguments are the record and the rows of the segment, the numbers of the items in its index, and
a description of the problem. The result is `float32[n, dimension]`. A vector may be NaN if no
document has it any more.
"""


@dataclass(frozen=True, slots=True)
class LoadedSegment:
    """A segment in memory, ready to search from any number of threads.

    `items` is the result of `rows.items()`: for each row, the number of its vector in the HNSW
    index. `vectors` is None if the collection has no vectors, or if the graph was not loaded.
    `postings` is None if the collection has no analyzer.
    """

    record: SegmentRecord
    rows: Rows
    items: NDArray[np.uint32]
    vectors: SegmentVectors | None
    postings: Postings | None

    @property
    def size_bytes(self) -> int:
        """The memory that the segment uses in this process, in bytes."""
        graph_bytes = 0 if self.vectors is None else self.vectors.size_bytes
        posting_bytes = 0 if self.postings is None else self.record.files[POSTINGS].size_bytes
        return self.rows.size_bytes + self.items.nbytes + posting_bytes + graph_bytes


def no_other_source(_record: SegmentRecord, _rows: Rows, _items: Items, problem: str) -> Vectors:
    """Raises DamagedSegment. It is the vector source of callers that search no vectors."""
    raise DamagedSegment(problem)


def search_ef(dimension: int, items: int) -> int:
    """Returns HNSW's parameter `ef`, the size of the candidate list of a search.

    `items` is the count of distinct vectors in the index.
    """
    base = _EF_OF_FEW_DIMENSIONS if dimension < _FEW_DIMENSIONS else _EF
    return round(base * max(1.0, math.sqrt(items / _EF_ITEMS)))


def write(folder: Path, segment_id: int, write_parts: WriteParts) -> dict[str, SegmentFile]:
    """Writes a segment's files durably.

    Returns a dictionary from the name of each file to its size and checksum, for the manifest.
    `folder` is the folder of all segments. `write_parts` is a function that writes the segment's
    index files into the folder that it gets as its argument. `write_parts` returns a dictionary
    from name to array; these arrays are stored in the file `rows.npz`. Raises OSError, for example
    when the disk is full. After an error, no file of the segment remains.
    """
    target = path_of(folder, segment_id)
    temporary = target.with_suffix(UNFINISHED)
    remove_path(temporary)
    make_folder(temporary)
    try:
        np.savez(temporary / ROWS, **write_parts(temporary))  # type: ignore[arg-type]
        reach("segment.written")
        files = {path.name: sync_file(path) for path in sorted(temporary.iterdir())}
        durable_files.sync(temporary)
        reach("segment.synced")
        temporary.rename(target)
        durable_files.sync(folder)
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
    vector_source: VectorSource | None = None,
    huge_from_bytes: int = _HUGE_FROM_BYTES,
) -> LoadedSegment:
    """Reads a segment into memory. Raises DamagedSegment, whose message says what is damaged.

    If `vector_source` is given, the vectors stay in the segment's file, which saves most of the
    memory. The source is called if a search cannot read a vector from the file. If the process has
    many open files already, the vectors are read into memory nevertheless.

    If `with_graph` is False, the graph is not read at all. Then the vectors cannot be searched.
    Postings of at least `huge_from_bytes` are read into huge pages if possible.
    """
    path = path_of(folder, record.segment_id)
    names = [name for name in record.files if name != INDEX]
    files = {name: _read(path / name, record.files[name], huge_from_bytes) for name in names}
    graph = None
    try:
        postings = Postings(files[POSTINGS]) if record.analyzer else None
        rows = _rows(files[ROWS], record)
        if record.dimension and with_graph:
            index = path / INDEX
            source = vector_source and partial(_requested, vector_source, record, rows, index)
            graph = _read_graph(index, record.files[INDEX], source)
    except _UNREADABLE as error:
        raise DamagedSegment(f"{path} cannot be read: {error}") from error
    if len(rows.labels) != record.rows:
        raise DamagedSegment(
            f"{path} has {len(rows.labels)} leaves, but the manifest says {record.rows}"
        )
    if graph is not None:
        _check_graph(path / INDEX, graph, record)
    if postings is not None and not postings.rows == len(rows.lengths) == record.rows:
        raise DamagedSegment(
            f"{path / POSTINGS} has {postings.rows} leaves, but the manifest says {record.rows}"
        )
    vectors = None
    try:
        items = rows.items()
        if graph is not None:
            ef = search_ef(record.dimension, record.items)
            vectors = SegmentVectors(graph, items, rows.heads, rows.members, ef)
    except (ValueError, IndexError) as error:
        raise DamagedSegment(f"{path / ROWS} does not match {INDEX}: {error}") from error
    return LoadedSegment(record, rows, items, vectors, postings)


def _read_graph(
    path: Path, expected: SegmentFile, source: Callable[[Items, str], Vectors] | None
) -> Graph:
    """Reads and verifies an index. With a source, the vectors stay in the file if possible.

    Raises ValueError or OSError if the file is not an index, and DamagedSegment if it is not the
    expected file.
    """
    with _opened(path) as file:
        in_file = source and file.fileno() < _DESCRIPTOR_SHARE * _descriptor_limit()
        descriptor = file.fileno() if in_file else None
        blocks = _blocks_of(file, path, expected, bytearray(_BLOCK_BYTES))
        try:
            return Graph(
                blocks, size_bytes=expected.size_bytes, descriptor=descriptor, source=source
            )
        except ValueError:
            for _ in blocks:  # If the checksum is wrong, this error says more.
                pass
            raise


def _requested(
    source: VectorSource, record: SegmentRecord, rows: Rows, path: Path, items: Items, problem: str
) -> Vectors:
    """Requests vectors that the file at `path` should have, and says so in the problem."""
    return source(record, rows, items, f"{path}: {problem}")


def _descriptor_limit() -> int:
    """Returns how many files this process may have open."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit if limit != resource.RLIM_INFINITY else 1 << 30


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
            f"{path} has vectors of dimension {graph.dimension}, "
            f"but the manifest says {record.dimension}"
        )
    if len(graph) != record.items:
        raise DamagedSegment(
            f"{path} has {len(graph)} vectors, but the manifest says {record.items}"
        )


def load_arrays(folder: Path, record: SegmentRecord, names: Sequence[str]) -> list[NDArray[Any]]:
    """Returns the arrays with these names in a segment's file `rows.npz`.

    Raises DamagedSegment if the file is damaged.
    """
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
    """Yields the path of a verified copy of a segment's file.

    No other process can change the copy, because it is a temporary file without a name in the
    folder. So the copy is safe for a library that does not check the files that it reads, like
    hnswlib. The copy takes disk space until the block ends. Raises DamagedSegment, or OSError when
    the disk is full.
    """
    source, expected = path_of(folder, record.segment_id) / name, record.files[name]
    with TemporaryFile(dir=folder) as copy:
        for block in _verified_blocks(source, expected, bytearray(_BLOCK_BYTES)):
            copy.write(block)
        copy.flush()
        yield Path(f"/proc/self/fd/{copy.fileno()}")


def verify(folder: Path, record: SegmentRecord) -> None:
    """Reads and verifies all files of a segment.

    Raises DamagedSegment if a file cannot be read, or has a wrong size or checksum.
    """
    buffer = bytearray(_BLOCK_BYTES)
    for name, file in record.files.items():
        for _ in _verified_blocks(path_of(folder, record.segment_id) / name, file, buffer):
            pass


def has_its_sizes(folder: Path, record: SegmentRecord) -> bool:
    """Returns True if all files of a segment have the sizes that `record` says.

    Does not read what the files contain.
    """
    path = path_of(folder, record.segment_id)
    try:
        return all(
            (path / name).stat().st_size == file.size_bytes for name, file in record.files.items()
        )
    except OSError:
        return False


def path_of(folder: Path, segment_id: int) -> Path:
    """Returns the folder that contains the files of one segment.

    `folder` is the folder of all segments.
    """
    return folder / f"{segment_id:012d}"


def remove(folder: Path, segment_id: int) -> None:
    """Removes a segment's files. Processes that have loaded the segment can still search it."""
    remove_path(path_of(folder, segment_id))
    reach("segment.removed")


def remove_path(path: Path) -> None:
    """Removes a file, or a folder with its files. Does nothing if `path` does not exist."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _read(path: Path, expected: SegmentFile, huge_from_bytes: int = _HUGE_FROM_BYTES) -> memoryview:
    """Reads a file into the memory of this process and verifies it. Raises DamagedSegment.

    The checksum is computed from the returned bytes, so a change of the file during the read is
    detected.
    """
    # Unlike a bytearray of this size, an anonymous map is not filled with zeros first, and its
    # memory is freed immediately.
    pages = mmap.mmap(-1, max(expected.size_bytes, 1), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if expected.size_bytes >= huge_from_bytes:
        with suppress(OSError):  # Without huge pages in the kernel, normal pages are used.
            pages.madvise(mmap.MADV_HUGEPAGE)
    memory = memoryview(pages)
    for _ in _verified_blocks(path, expected, memory, keep=True):
        pass
    return memory[: expected.size_bytes].toreadonly()


def _verified_blocks(
    path: Path, expected: SegmentFile, buffer: bytearray | memoryview, *, keep: bool = False
) -> Iterator[memoryview]:
    """Reads a file into `buffer`, block by block, and yields each block.

    If `keep` is False, each block overwrites the previous block in the buffer. If `keep` is True,
    the buffer must be as large as the file, and contains the whole file at the end. Raises
    DamagedSegment if the file cannot be read. Also raises DamagedSegment before the first block if
    the size of the file is wrong, and after the last block if its checksum is wrong.
    """
    with _opened(path) as file:
        yield from _blocks_of(file, path, expected, buffer, keep=keep)


@contextmanager
def _opened(path: Path) -> Iterator[FileIO]:
    """Opens a file for reading. Raises DamagedSegment for an error of the operating system."""
    try:
        with path.open("rb", buffering=0) as file:
            yield file
    except OSError as error:
        raise DamagedSegment(f"{path} cannot be read: {error.strerror}") from error


def _blocks_of(
    file: FileIO,
    path: Path,
    expected: SegmentFile,
    buffer: bytearray | memoryview,
    *,
    keep: bool = False,
) -> Iterator[memoryview]:
    """Does the same as `_verified_blocks`, for the file at `path`, which is open."""
    digest, position = hashlib.sha256(), 0
    view = memoryview(buffer)
    size = os.fstat(file.fileno()).st_size
    if size != expected.size_bytes:
        raise DamagedSegment(
            f"{path} has {size} bytes, but the manifest says {expected.size_bytes}"
        )
    while position < size:
        start = position if keep else 0
        count = file.readinto(view[start : start + min(_BLOCK_BYTES, size - position)])
        if not count:
            raise DamagedSegment(f"{path} became shorter while it was read")
        block = view[start : start + count]
        digest.update(block)
        position += count
        yield block
    if digest.hexdigest() != expected.sha256:
        raise DamagedSegment(f"{path} does not have the checksum that the manifest says")


def sync_file(path: Path) -> SegmentFile:
    """Syncs a segment's file to the disk, and makes it readable only by its owner.

    Returns the size and the checksum of the file.
    """
    path.chmod(FILE_MODE)
    durable_files.sync(path)
    return SegmentFile(path.stat().st_size, _sha256(path))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
