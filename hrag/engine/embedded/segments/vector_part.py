"""The vector part of a segment: an HNSW index (Malkov and Yashunin, 2016) built by hnswlib.

Exact duplicates ruin the recall of HNSW, so each distinct vector is indexed once, as an item of the
index. Equal vectors are recognised by their digest, a hash of 128 bits. A build may resume from the
index of an existing segment. Then only the vectors that this index does not contain are inserted.
This saves time, because insertion is the slow step.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import hnswlib
import numpy as np
from numpy.typing import NDArray

from hrag.engine.embedded.segments import segment_files
from hrag.engine.embedded.segments.leaves import LeafBlock
from hrag.engine.embedded.segments.segment_files import INDEX, LoadedSegment
from hrag.engine.embedded.store.lmdb_records import SegmentRecord
from hrag.host.cores import usable_cores
from hrag.host.huge_pages import huge_pages
from hrag.models.embedding import Vectors

# hnswlib compares vectors by their inner product. It is equal to their cosine, because all vectors
# have unit length.
SPACE = "ip"
# The parameters M and ef_construction of HNSW. With these values, and `ef` 64 at search, the
# recall@10 was 1.0 for 100,000 vectors of 384 dimensions, and 0.995 for 100,000 of 96 dimensions.
_M = 16
_EF_CONSTRUCTION = 200
_SEED = 100

_DIGEST_BYTES = 16

Items = NDArray[np.int64]
Insert = Callable[[hnswlib.Index, Vectors, Items], None]
"""Inserts vectors, `float32[n, dimension]`, into an index as the items `int64[n]`."""


class InsertFreeing(Protocol):
    """A function that inserts vectors into an index, and leaves `free_cores` cores unused."""

    def __call__(
        self, index: hnswlib.Index, vectors: Vectors, items: Items, /, *, free_cores: int
    ) -> None: ...


def insert(index: hnswlib.Index, vectors: Vectors, items: Items, free_cores: int = 0) -> None:
    """Inserts vectors into an index in several threads. Other Python threads can run meanwhile.

    The count of threads is the count of usable cores minus `free_cores`, but at least one.
    """
    index.add_items(vectors, items, num_threads=max(1, usable_cores() - free_cores))


class VectorPart:
    """Indexes the vectors of a segment's leaves. Implements `builder.SegmentPart`."""

    def __init__(self, index: hnswlib.Index, insert: Insert = insert) -> None:
        """Creates a part that inserts vectors into `index`.

        `index` must have capacity for all vectors that will be inserted.
        """
        self._index = index
        self._insert = insert
        self._item_of: dict[bytes, int] = {}
        self._items = [np.empty(0, np.int64)]

    @property
    def item_count(self) -> int:
        """The count of items in the index. An item is a distinct vector."""
        return len(self._item_of)

    def resume_from(self, folder: Path, base: LoadedSegment, living: NDArray[np.bool_]) -> None:
        """Starts this part with the rows of the existing segment `base`.

        Adds those rows whose documents still exist. Call this method before the first `add`.
        `living` is `bool[rows]`: True for each row whose document still exists. This method inserts
        no vectors: the index that was passed to the constructor must be the index of `base`. Raises
        DamagedSegment if the file `rows.npz` of `base` is damaged.
        """
        digests = load_digests(folder, base.record)
        self._item_of = {bytes(digest): item for item, digest in enumerate(digests)}
        self._items.append(base.items[living].astype(np.int64))

    def add(self, block: LeafBlock) -> None:
        """Adds the next leaves. Inserts only the vectors that the index does not contain yet."""
        known = len(self._item_of)
        items = np.empty(len(block.labels), np.int64)
        new_rows: list[int] = []
        for row, vector in enumerate(block.vectors):
            digest = hashlib.blake2b(vector.data, digest_size=_DIGEST_BYTES).digest()
            item = self._item_of.setdefault(digest, len(self._item_of))
            if item == known + len(new_rows):
                new_rows.append(row)
            items[row] = item
        if new_rows:
            new_items = np.arange(known, known + len(new_rows))
            self._insert(self._index, block.vectors[new_rows], new_items)
        self._items.append(items)

    def write(self, folder: Path, order: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Writes the index into `folder`. Returns the arrays `heads`, `members` and `digests`.

        `digests` is `uint8[items, 16]`: a hash of each item's vector. The rows of item i are
        `members[heads[i]:heads[i + 1]]`. Row i of the segment is the leaf `order[i]`, counted in
        the order in which leaves were added. hnswlib does not report a full disk, so this method
        checks the size of the written file. Raises OSError.
        """
        path = folder / INDEX
        self._index.save_index(str(path))
        if path.stat().st_size != self._index.index_file_size():
            raise OSError(f"{path} was not written completely; the disk may be full")
        items = np.concatenate(self._items)[order]
        heads, members = rows_of_items(items, self.item_count)
        digests = np.frombuffer(b"".join(self._item_of), np.uint8).reshape(-1, _DIGEST_BYTES)
        return {"heads": heads, "members": members, "digests": digests}


def rows_of_items(
    items: NDArray[np.int64], item_count: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Returns the arrays `heads` and `members`, which say for each item the rows with its vector.

    Both arrays are `uint32`. An item is a distinct vector of the index, numbered from 0 to
    `item_count` - 1. `items`, `int64[rows]`, has the item of each row. The rows of item i are
    `members[heads[i]:heads[i + 1]]`. An item may have no row. Both arrays are empty if item i is
    the item of row i for every i.
    """
    if np.array_equal(items, np.arange(item_count)):
        return np.empty(0, np.uint32), np.empty(0, np.uint32)
    counts = np.bincount(items, minlength=item_count)
    heads = np.concatenate(([0], np.cumsum(counts))).astype(np.uint32)
    return heads, np.argsort(items, kind="stable").astype(np.uint32)


def new_index(dimension: int, capacity: int) -> hnswlib.Index:
    """Returns an empty index for at most `capacity` vectors."""
    index = hnswlib.Index(space=SPACE, dim=dimension)
    with huge_pages(_vector_bytes(dimension, capacity)):
        index.init_index(
            max_elements=capacity, M=_M, ef_construction=_EF_CONSTRUCTION, random_seed=_SEED
        )
    return index


def load_index(folder: Path, record: SegmentRecord, capacity: int) -> hnswlib.Index:
    """Returns the index of a segment, with capacity for `capacity` vectors.

    hnswlib does not check the links of the graph that it reads, so this function lets hnswlib read
    a verified copy of the file. Raises DamagedSegment, or OSError when the disk is full.
    """
    index = hnswlib.Index(space=record.space, dim=record.dimension)
    capacity = max(capacity, record.items)
    with (
        segment_files.verified_copy(folder, record, INDEX) as path,
        huge_pages(_vector_bytes(record.dimension, capacity)),
    ):
        index.load_index(str(path), max_elements=capacity)
    return index


def _vector_bytes(dimension: int, capacity: int) -> int:
    """Returns the size of the vectors in an index, which hnswlib allocates in one piece."""
    return capacity * dimension * np.dtype(np.float32).itemsize


def load_digests(folder: Path, record: SegmentRecord) -> NDArray[np.uint8]:
    """Returns the hash of each distinct vector in a segment's index: `uint8[items, 16]`.

    Raises DamagedSegment if the file with the hashes is damaged.
    """
    (digests,) = segment_files.load_arrays(folder, record, ["digests"])
    return digests
