"""Evaluates filters on a view, and caches the results.

A filter result is the set of the rows of a view whose documents pass a filter, or the set of these
documents.
"""

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
from hrag.engine.embedded.store.filter_eval import MANY, FilterEvaluation
from hrag.engine.embedded.store.transactions import Txn
from hrag.values.deadline import Deadline
from hrag.values.filters import Filter

# The filter results in the cache take at most this much memory.
_CACHED_BYTES = 32 << 20
# The ordinals of the documents with a filter term are cached if there are many, because reading
# fewer from LMDB takes so little time that caching them would not save much.
_ORDINAL_BYTES = 8
_TERM_BYTES = MANY * _ORDINAL_BYTES

Key: TypeAlias = tuple[str, bytes]
"""Identifies a result in the cache: the kind of the result, and a filter's digest or a term."""
Numbers = TypeVar("Numbers", bound=NDArray[np.unsignedinteger[Any]])


class FilterResultCache:
    """A cache of filter results: row numbers, or ordinals of documents, in ascending order.

    A view is one state of a collection in memory. A result is valid only for the view for which it
    was computed. For each collection, the cache has at most one result under a `Key`; a new result
    under the same key replaces the earlier one. If the results together would take more than
    `max_bytes`, the least recently used results are evicted. Safe to use from several threads.
    """

    def __init__(self, max_bytes: int = _CACHED_BYTES, min_term_bytes: int = _TERM_BYTES) -> None:
        """Creates an empty cache.

        A filter term is a metadata field with a value. The ordinals of the documents with a filter
        term are cached if they take at least `min_term_bytes` bytes.
        """
        self.min_term_bytes = min_term_bytes
        self._entries: LRUCache[tuple[int, Key], _CacheEntry] = LRUCache(
            max_bytes, getsizeof=lambda entry: entry.size_bytes
        )
        self._lock = threading.Lock()

    def get(self, view: View, key: Key, compute: Callable[[], Numbers]) -> Numbers:
        """Returns the filter result that `key` identifies, for a view.

        If a result for this view is cached, returns the cached result. Otherwise calls `compute`
        and returns its result. Caches this result if it fits into the cache.
        """
        full_key = (view.collection, key)
        with self._lock:
            entry = self._entries.get(full_key)
        if entry is not None and entry.view() is view:
            return cast("Numbers", entry.numbers)
        numbers = compute()
        size_bytes = numbers.nbytes + len(key[1])
        if size_bytes <= self._entries.maxsize:
            with self._lock:
                self._entries[full_key] = _CacheEntry(weakref.ref(view), numbers, size_bytes)
        return numbers


@dataclass(frozen=True, slots=True)
class _CacheEntry:
    """A filter result in the cache.

    `view` is the view for which the result was computed. `numbers` are row numbers or ordinals.
    `size_bytes` is the memory that the entry takes.
    """

    view: "weakref.ref[View]"
    numbers: NDArray[np.unsignedinteger[Any]]
    size_bytes: int


def evaluate(
    txn: Txn,
    view: View,
    filter: Filter,
    cache: FilterResultCache,
    deadline: Deadline,
) -> RowNumbers:
    """Returns the rows of the documents that pass a filter, ascending: `uint32[n]`.

    The caller must have validated the filter. A filter term is a metadata field with a value. If
    many documents have a term, the ordinals of these documents are cached, because later filters
    often contain the same term. Raises DeadlineExceeded or Cancelled.
    """

    def keep(term: bytes, read: Callable[[], Ordinals]) -> Ordinals:
        return cache.get(view, ("term", term), read)

    many = cache.min_term_bytes // _ORDINAL_BYTES
    evaluation = FilterEvaluation(txn, view.collection, view.ordinals, deadline, keep, many)
    return view.rows_of(evaluation.select(filter))
