"""Turns leaves into a segment's index and rows, a block at a time.

Memory holds the index being built and one block, never a collection's vectors as well.
Exact duplicates ruin the recall of HNSW, so each distinct vector is indexed once; a hash
of 128 bits tells them apart. A builder may go on from a segment's own index: then only
what is new is inserted, which is what costs.
"""

import hashlib
import os
from collections.abc import Callable

import hnswlib
import numpy as np
from numpy.typing import NDArray

from hrag.embedding import Vectors
from hrag.engine.embedded.segments.leaves import LeafBlock
from hrag.engine.embedded.segments.segment_files import Rows

_DIGEST_BYTES = 16
_CORES = os.cpu_count() or 1

Items = NDArray[np.int64]
Insert = Callable[[hnswlib.Index, Vectors, Items], None]
"""Adds `float32[n, dimension]` to an index under the item numbers given."""


def insert(index: hnswlib.Index, vectors: Vectors, items: Items, free_cores: int = 0) -> None:
    """Inserts without the GIL, on all cores but so many, and on one at least."""
    index.add_items(vectors, items, num_threads=max(1, _CORES - free_cores))


class Builder:
    """Gathers leaves into one segment. Give each leaf once, in any order."""

    def __init__(self, index: hnswlib.Index, heights: int, insert: Insert) -> None:
        """Into an index with room for what is to come; ancestors are at `heights` levels."""
        self._index = index
        self._insert = insert
        self._item_of: dict[bytes, int] = {}
        self._labels = [np.empty(0, np.uint64)]
        self._ancestors = [np.empty((heights, 0), np.uint32)]
        self._items = [np.empty(0, np.int64)]

    def go_on_from(self, digests: NDArray[np.uint8], rows: Rows, living: NDArray[np.bool_]) -> None:
        """Takes over the living rows of the segment whose index it was given."""
        self._item_of = {bytes(digest): item for item, digest in enumerate(digests)}
        self._labels.append(rows.labels[living])
        self._ancestors.append(rows.ancestors[:, living])
        self._items.append(rows.items()[living].astype(np.int64))

    def add(self, block: LeafBlock) -> None:
        """Indexes the block's vectors that are not in the index yet."""
        known = len(self._item_of)
        items = np.empty(len(block.labels), np.int64)
        first: list[int] = []
        for row, vector in enumerate(block.vectors):
            digest = hashlib.blake2b(vector.data, digest_size=_DIGEST_BYTES).digest()
            item = self._item_of.setdefault(digest, len(self._item_of))
            if item == known + len(first):
                first.append(row)
            items[row] = item
        if first:
            self._insert(self._index, block.vectors[first], np.arange(known, known + len(first)))
        self._labels.append(block.labels)
        self._ancestors.append(block.ancestors)
        self._items.append(items)

    def finish(self) -> tuple[hnswlib.Index, Rows, NDArray[np.uint8]]:
        """The index, the rows in order of label, and `uint8[items, 16]` digests."""
        labels, items = np.concatenate(self._labels), np.concatenate(self._items)
        order = np.argsort(labels)
        ancestors = np.concatenate(self._ancestors, axis=1)[:, order]
        digests = np.frombuffer(b"".join(self._item_of), np.uint8).reshape(-1, _DIGEST_BYTES)
        rows = Rows.of(labels[order], ancestors, items[order], len(digests))
        return self._index, rows, digests
