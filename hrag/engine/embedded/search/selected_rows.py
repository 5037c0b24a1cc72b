"""Which rows of a view does a filter select? And the cache of what was selected."""

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from hrag.engine.common.candidates import RowNumbers
from hrag.engine.common.sorted_sets import Ordinals
from hrag.engine.embedded.search.view import View
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.filter_eval import FilterEvaluation
from hrag.values.deadline import Deadline
from hrag.values.filters import Filter

_CACHED_BYTES = 32 << 20
_TERM_BYTES = 8 << 10  # From a thousand documents on; reading them takes 20 us.

Key: TypeAlias = tuple[str, bytes]
"""What kind of selection, and which."""
Numbers = TypeVar("Numbers", bound=NDArray[np.unsignedinteger[Any]])


class SelectionCache:
    """What was selected in a view, kept as long as the view is in use: its rows or documents."""

    def __init__(self, max_bytes: int = _CACHED_BYTES) -> None:
        self._entries: LRUCache[tuple[int, Key], _Entry] = LRUCache(
            max_bytes, getsizeof=lambda entry: entry.size_bytes
        )
        self._lock = threading.Lock()

    def get(
        self, view: View, key: Key, select: Callable[[], Numbers], min_bytes: int = 0
    ) -> Numbers:
        """Returns what `select` finds in the view; `key` identifies the selection.

        What has fewer than `min_bytes` is not kept.
        """
        full_key = (view.collection, key)
        with self._lock:
            entry = self._entries.get(full_key)
        if entry is not None and entry.view() is view:
            return cast("Numbers", entry.numbers)
        numbers = select()
        size_bytes = numbers.nbytes + len(key[1])
        if numbers.nbytes >= min_bytes and size_bytes <= self._entries.maxsize:
            with self._lock:
                self._entries[full_key] = _Entry(weakref.ref(view), numbers, size_bytes)
        return numbers


@dataclass(frozen=True, slots=True)
class _Entry:
    view: "weakref.ref[View]"
    numbers: NDArray[np.unsignedinteger[Any]]
    size_bytes: int


def evaluate(
    store: Store,
    txn: Txn,
    view: View,
    given: Filter,
    selections: SelectionCache,
    deadline: Deadline,
) -> RowNumbers:
    """Returns the rows, ascending, of the documents that a checked filter selects.

    Keeps the documents of terms that many have, since other filters have these terms, too.
    Raises DeadlineExceeded.
    """

    def keep(term: bytes, read: Callable[[], Ordinals]) -> Ordinals:
        return selections.get(view, ("term", term), read, _TERM_BYTES)

    evaluation = FilterEvaluation(store, txn, view.collection, view.ordinals, deadline, keep)
    return view.rows_of(evaluation.select(given))
