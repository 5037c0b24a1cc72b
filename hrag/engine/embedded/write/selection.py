"""Finds documents by a filter or in order of id, for calls that list, count or delete them."""

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from typing import TypeVar

import numpy as np

from hrag.engine.common.sorted_sets import Ordinals, is_in
from hrag.engine.embedded.store.filter_eval import FilterEvaluation
from hrag.engine.embedded.store.transactions import Txn
from hrag.values.deadline import Deadline
from hrag.values.filters import Filter

# While entries of documents are read from LMDB, the deadline is checked once for this many entries.
# Reading so many entries takes a few milliseconds.
_BATCH_ENTRIES = 4096

Entry = TypeVar("Entry")


def matching_ordinals(txn: Txn, collection: int, filter: Filter, deadline: Deadline) -> Ordinals:
    """Returns the ordinals of the documents of a collection that pass a filter, ascending.

    The caller must have validated the filter. Raises DeadlineExceeded or Cancelled.
    """

    # The ordinals of all documents are read only once, because a filter may have thousands of
    # NoneOf conditions, and each of these conditions needs all ordinals.
    @cache
    def all_ordinals() -> Ordinals:
        ordinals = (ordinal for _, ordinal in txn.ordinals.keys(collection))
        batches = [np.array(batch, np.uint64) for batch in _batches(ordinals, deadline)]
        return np.concatenate([np.empty(0, np.uint64), *batches])

    return FilterEvaluation(txn, collection, all_ordinals, deadline).select(filter)


def ordinals_by_id(
    txn: Txn, collection: int, after: str, among: Ordinals | None, deadline: Deadline
) -> Iterator[int]:
    """Yields the ordinals of a collection's documents in order of document id.

    Begins after the document id `after`, or with the first document if `after` is empty. If `among`
    is not None, yields only ordinals that are in `among`. Raises DeadlineExceeded or Cancelled.
    """
    start = (collection, f"{after}\0") if after else None
    ordinals = (ordinal for _, ordinal in txn.document_ids.entries(collection, start=start))
    if among is None:
        yield from ordinals
        return
    for batch in _batches(ordinals, deadline):
        candidates = np.array(batch, np.uint64)
        yield from candidates[is_in(candidates, among)].tolist()


def _batches(entries: Iterable[Entry], deadline: Deadline) -> Iterator[list[Entry]]:
    """Yields the entries in lists of at most `_BATCH_ENTRIES` entries.

    Before each list, checks the deadline, and raises DeadlineExceeded or Cancelled.
    """
    entries = iter(entries)
    while batch := list(islice(entries, _BATCH_ENTRIES)):
        deadline.check("filtering")
        yield batch
