"""Reads the vectors of leaves from LMDB, if the file of their segment cannot be read.

The vectors of a segment stay in its file, and each one that a search reads is verified. The file
may be damaged, truncated or unreadable while the segment is in use. LMDB has every vector too. So a
search still returns the same passages with the same scores, and only takes longer, while the
scrubber verifies the file and the segment is built again.
"""

import threading
import time
from collections.abc import Callable
from contextvars import ContextVar

import numpy as np

from hrag.engine.common.labels import split_label
from hrag.engine.embedded.segments import leaves
from hrag.engine.embedded.segments.segment_files import Items, Rows
from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.store.lmdb_records import SegmentRecord
from hrag.engine.embedded.store.queries import address_of
from hrag.engine.embedded.store.transactions import Txn
from hrag.models.embedding import Vectors

# A segment that cannot be read is reported once in this many seconds, not at every search.
_REPORT_S = 10.0

Report = Callable[[int, str], None]
"""Reports a segment, by its id and a description of the problem."""

SEARCHED: ContextVar[Txn | None] = ContextVar("SEARCHED", default=None)
"""The transaction of the snapshot that this thread searches.

A later commit may delete documents that the snapshot still has.
"""


class StoredVectors:
    """Returns the vectors of a collection's leaves from LMDB. Implements `VectorSource`.

    `unreadable` are the ids of the segments of which a vector was requested. Safe to call from
    several threads.

    The graphs of segments refer to this object. So it must not refer to the collection that has
    the segments: a collection that is evicted would then stay in memory as a reference cycle.
    """

    def __init__(
        self,
        store: Store,
        collection: int,
        report: Report,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`collection` is the id of the collection. `clock` returns seconds."""
        self.unreadable: frozenset[int] = frozenset()
        self._store = store
        self._collection = collection
        self._report = report
        self._clock = clock
        self._lock = threading.Lock()
        self._reported_s: dict[int, float] = {}

    def __call__(self, record: SegmentRecord, rows: Rows, items: Items, problem: str) -> Vectors:
        """Returns the vectors of items: `float32[n, dimension]`.

        A vector is NaN if the searched snapshot has no document with it. Raises DataLoss if a
        document is damaged too.
        """
        if self._is_due(record.segment_id):
            self._report(record.segment_id, problem)
        searched = SEARCHED.get()
        if searched is not None:
            return self._vectors(searched, record, rows, items)
        with self._store.read() as txn:
            return self._vectors(txn, record, rows, items)

    def _vectors(self, txn: Txn, record: SegmentRecord, rows: Rows, items: Items) -> Vectors:
        vectors = np.full((len(items), record.dimension), np.nan, np.float32)
        documents: dict[int, Vectors | None] = {}
        for position, item in enumerate(items.tolist()):
            for label in rows.labels[rows.rows_of_item(item)].tolist():
                ordinal, leaf = split_label(label)
                if ordinal not in documents:
                    documents[ordinal] = self._read(txn, ordinal, record.dimension)
                document = documents[ordinal]
                if document is not None:
                    vectors[position] = document[leaf]
                    break
        return vectors

    def _read(self, txn: Txn, ordinal: int, dimension: int) -> Vectors | None:
        """Returns the vectors of a document as long as `txn` is open; None if it was deleted."""
        entry = txn.ordinals.get((self._collection, ordinal))
        if entry is None:
            return None
        address = address_of(txn, self._collection, ordinal)
        return leaves.vectors_in_place(txn, address, entry.leaf_count, dimension)

    def _is_due(self, segment_id: int) -> bool:
        """Returns True if the segment has not been reported in the last seconds."""
        now_s = self._clock()
        with self._lock:
            is_due = now_s - self._reported_s.get(segment_id, -_REPORT_S) >= _REPORT_S
            if is_due:
                self._reported_s[segment_id] = now_s
                self.unreadable |= {segment_id}
        return is_due
