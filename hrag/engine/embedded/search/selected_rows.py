"""Which rows of a view does a filter select? And the cache of such selections."""

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from hrag.deadline import Deadline
from hrag.engine.embedded.search.view import View
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.filter_eval import FilterEvaluation
from hrag.engine.search.candidates import RowNumbers
from hrag.filters import Filter

_CACHED_BYTES = 32 << 20


def evaluate(
    store: Store, txn: Txn, view: View, given: Filter, deadline: Deadline
) -> NDArray[np.int64]:
    """Returns the rows, ascending, of the documents that a checked filter selects.

    Raises DeadlineExceeded.
    """
    evaluation = FilterEvaluation(store, txn, view.collection, view.ordinals, deadline)
    return view.rows_of(evaluation.select(given))


class SelectedRowsCache:
    """Rows that were selected in a view, kept as long as the view is in use."""

    def __init__(self, max_bytes: int = _CACHED_BYTES) -> None:
        self._entries: LRUCache[tuple[int, bytes], _Entry] = LRUCache(
            max_bytes, getsizeof=lambda entry: entry.size_bytes
        )
        self._lock = threading.Lock()

    def get(self, view: View, key: bytes, select: Callable[[], RowNumbers]) -> RowNumbers:
        """Returns what `select` finds in the view; `key` identifies the selection."""
        full_key = (view.collection, key)
        with self._lock:
            entry = self._entries.get(full_key)
        if entry is not None and entry.view() is view:
            return entry.rows
        rows = select()
        size_bytes = rows.nbytes + len(key)
        if size_bytes <= self._entries.maxsize:
            with self._lock:
                self._entries[full_key] = _Entry(weakref.ref(view), rows, size_bytes)
        return rows


@dataclass(frozen=True, slots=True)
class _Entry:
    view: "weakref.ref[View]"
    rows: RowNumbers
    size_bytes: int
