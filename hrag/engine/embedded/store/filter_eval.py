"""Filter evaluation: from a filter to the documents that it selects, by ordinal.

Reads the terms stored for each field of each document. The cost grows with what the
conditions select, not with the collection, unless a filter has NoneOf conditions alone.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import partial, reduce
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hrag.engine.common.filter_terms import all_terms, term, terms_between
from hrag.engine.common.sorted_sets import Ordinals, difference, intersection, union
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.metadata_terms import field_prefix, ordinals_of_entries, term_seed
from hrag.engine.embedded.store.owners import document_owner
from hrag.engine.embedded.store.queries import is_living
from hrag.values.deadline import Deadline
from hrag.values.errors import DataLoss
from hrag.values.filters import DOCUMENT_ID, AllOf, AnyOf, Exists, Filter, Match, NoneOf, Range
from hrag.values.ids import MAX_DOCUMENT_ID_BYTES

Keep: TypeAlias = Callable[[bytes, Callable[[], Ordinals]], Ordinals]
"""Returns the documents that have a term: those it kept, or what the function reads."""

_NOTHING: Ordinals = np.empty(0, np.uint64)
_ENTRY = np.dtype(">u8")
_MERGE_AT = 1 << 20  # Ordinals: 8 MiB of them.


class FilterEvaluation:
    """Evaluates filters on a collection's documents in one transaction.

    Holds a few sets at a time, however many conditions there are. Raises DeadlineExceeded
    between two conditions.
    """

    def __init__(
        self,
        store: Store,
        txn: Txn,
        collection: int,
        all_documents: Callable[[], Ordinals],
        deadline: Deadline,
        keep: Keep = lambda _, read: read(),
    ) -> None:
        self._deadline = deadline
        self._keep = keep
        self._store = store
        self._txn = txn
        self._collection = collection
        self._all_documents = all_documents

    def select(self, given: Filter) -> Ordinals:
        """Returns the documents that a filter, which has been checked, selects."""
        self._deadline.check("filtering")
        match given:
            case AllOf(inner):
                return self._all(inner)
            case AnyOf(inner):
                return self._any(inner)
            case NoneOf(inner):
                return difference(self._all_documents(), self._any(inner))
            case Match() | Exists() if given.field == DOCUMENT_ID:
                return self._by_id(given)
            case Match() | Range() | Exists():
                return self._by_term(given)

    def _all(self, filters: Sequence[Filter]) -> Ordinals:
        wanted = [each for each in filters if not isinstance(each, NoneOf)]
        unwanted = [each for each in filters if isinstance(each, NoneOf)]
        found = reduce(intersection, map(self.select, wanted)) if wanted else self._all_documents()
        for each in unwanted:
            found = difference(found, self._any(each.filters))
        return found

    def _any(self, filters: Sequence[Filter]) -> Ordinals:
        """Merges the sets whenever they hold more than `_MERGE_AT` beyond the last result."""
        sets: list[Ordinals] = []
        size, bound = 0, _MERGE_AT
        for each in filters:
            sets.append(self.select(each))
            size += len(sets[-1])
            if size > bound:
                sets = [union(sets)]
                size, bound = len(sets[0]), _MERGE_AT + 2 * len(sets[0])
        return union(sets)

    def _by_id(self, given: Match | Exists) -> Ordinals:
        if isinstance(given, Exists):
            return self._all_documents()
        found = []
        for name in set(map(str, given.values)):
            if len(name.encode()) <= MAX_DOCUMENT_ID_BYTES:  # Beyond, LMDB has no such key.
                key = schema.document_id(self._collection, name)
                value = self._txn.get(key, db=self._store.db["document_ids"])
                if value is not None:
                    found.append(schema.read_u64(value))
        return np.array(sorted(found), np.uint64)

    def _by_term(self, given: Match | Range | Exists) -> Ordinals:
        prefix = field_prefix(self._collection, given.field)
        match given:
            case Match():
                return self._having({term(prefix, value) for value in given.values})
            case Range():
                return self._within(*terms_between(prefix, given))
            case Exists():
                return self._within(*all_terms(prefix))

    def _within(self, start: bytes, end: bytes) -> Ordinals:
        """The documents that have a term in the range from `start` to before `end`."""
        alone, seeds, shared = bytearray(), array("Q"), []
        with self._txn.cursor(db=self._store.db["terms"]) as cursor:
            if not cursor.set_range(start):
                return _NOTHING
            for key, entry in cursor.iternext_nodup(keys=True, values=True):
                found = bytes(key)
                if found >= end:
                    break
                if cursor.count() == 1:
                    alone += entry
                    seeds.append(term_seed(found))
                else:
                    shared.append(found)
        own = self._checked(
            np.frombuffer(alone, _ENTRY).astype(np.uint64), np.array(seeds, np.uint64)
        )
        return union([own, self._having(shared)])

    def _having(self, terms: Iterable[bytes]) -> Ordinals:
        """The documents that have one of the terms."""
        with self._txn.cursor(db=self._store.db["terms"]) as cursor:
            found = [self._keep(each, partial(self._read, cursor, each)) for each in sorted(terms)]
        return union(found)

    def _read(self, cursor: Any, of_term: bytes) -> Ordinals:
        """The documents that have a term."""
        entries = cursor.getmulti(
            [of_term], dupdata=True, dupfixed_bytes=_ENTRY.itemsize, keyfixed=True
        )
        packed = np.dtype([("term", f"V{len(of_term)}"), ("entry", _ENTRY)])
        found = np.frombuffer(entries, packed)["entry"].astype(np.uint64)
        return self._checked(found, np.uint64(term_seed(of_term)))

    def _checked(
        self, entries: NDArray[np.uint64], seeds: NDArray[np.uint64] | np.uint64
    ) -> Ordinals:
        """The ordinals of entries of terms with these seeds. Raises DataLoss."""
        ordinals, damaged = ordinals_of_entries(entries, seeds)
        if damaged.any():
            at = np.flatnonzero(damaged)[0]
            seed = seeds if isinstance(seeds, np.uint64) else seeds[at]
            self._fail(entries[at], seed)
        return ordinals

    def _fail(self, entry: np.uint64, seed: np.uint64) -> NoReturn:
        """Names the document if one flipped bit explains the damage."""
        flipped = entry ^ (np.uint64(1) << np.arange(64, dtype=np.uint64))
        ordinals, wrong = ordinals_of_entries(flipped, seed)
        names = {
            document_owner(self._txn, self._store.db, self._collection, ordinal)
            for ordinal in ordinals[~wrong].tolist()
            if is_living(self._store, self._txn, self._collection, ordinal)
        }
        raise DataLoss(
            f"a filter value of {' or '.join(sorted(names)) or 'an unknown document'} is damaged; "
            "ingesting the document again or `hrag check --repair` writes it again"
        )
