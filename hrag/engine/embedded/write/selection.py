"""Which documents does a filter select, for calls that list, count or delete them?"""

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from typing import TypeVar

import numpy as np

from hrag.engine.common.sorted_sets import Ordinals, is_in
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.filter_eval import FilterEvaluation
from hrag.values.deadline import Deadline
from hrag.values.filters import Filter

_AT_A_TIME = 4096  # Entries, between two looks at the deadline: a few milliseconds.

Entry = TypeVar("Entry")


def selected(
    store: Store, txn: Txn, collection: int, given: Filter, deadline: Deadline
) -> Ordinals:
    """Returns the documents that a checked filter selects, by ordinal.

    Raises DeadlineExceeded or Cancelled.
    """

    @cache  # A filter may have thousands of NoneOf conditions.
    def everything() -> Ordinals:
        keys = (key for key, _ in txn.entries(store.db["ordinals"], schema.u32(collection)))
        ordinals = (schema.read_in_collection(key)[1] for key in keys)
        parts = [np.array(part, np.uint64) for part in _parts(ordinals, deadline)]
        return np.concatenate([np.empty(0, np.uint64), *parts])

    return FilterEvaluation(store, txn, collection, everything, deadline).select(given)


def ordinals_by_id(
    store: Store, txn: Txn, collection: int, after: str, among: Ordinals | None, deadline: Deadline
) -> Iterator[int]:
    """Yields documents in order of id, from after the id `after` on; only those `among`, if given.

    Raises DeadlineExceeded or Cancelled.
    """
    prefix = schema.document_id(collection, "")
    start = schema.document_id(collection, after) + b"\0" if after else b""
    values = (value for _, value in store.scan(txn, "document_ids", prefix, start))
    ordinals = map(schema.read_u64, values)
    if among is None:
        yield from ordinals
        return
    for part in _parts(ordinals, deadline):
        found = np.array(part, np.uint64)
        yield from found[is_in(found, among)].tolist()


def _parts(entries: Iterable[Entry], deadline: Deadline) -> Iterator[list[Entry]]:
    entries = iter(entries)
    while part := list(islice(entries, _AT_A_TIME)):
        deadline.check("filtering")
        yield part
