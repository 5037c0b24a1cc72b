"""Evaluates a filter: finds the documents that pass it, as sorted ordinals.

A filter term is a metadata field with a value. For each term, LMDB stores the ordinals of the
documents that have the term; only these are read. So the cost grows with the count of documents
that match the conditions, not with the size of the collection. Exception: a filter that consists
only of NoneOf conditions reads the ordinals of all documents.
"""

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, NoReturn, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from hrag.engine.common.filter_terms import TermRange, all_terms, merged_ranges, terms_between
from hrag.engine.common.range_reader import RangeReader
from hrag.engine.common.sorted_sets import Ordinals, difference, intersection, union
from hrag.engine.embedded.store.metadata_terms import (
    field_prefix,
    matching_terms,
    ordinals_of_entries,
    term_seed,
)
from hrag.engine.embedded.store.owners import document_owner
from hrag.engine.embedded.store.queries import is_living
from hrag.engine.embedded.store.transactions import Txn
from hrag.values.deadline import Deadline
from hrag.values.errors import DataLoss
from hrag.values.filters import DOCUMENT_ID, AllOf, AnyOf, Exists, Filter, Match, NoneOf, Range
from hrag.values.ids import MAX_DOCUMENT_ID_BYTES

CachedRead: TypeAlias = Callable[[bytes, Callable[[], Ordinals]], Ordinals]
"""Returns the ordinals of the documents that have a term, from a cache if they are in it.

The arguments are the term and a function that reads the ordinals from the store."""
Verify: TypeAlias = Callable[[NDArray[np.uint64], NDArray[np.uint64] | np.uint64], Ordinals]
"""Verifies entries, given the checksum seed of each or of all; returns their ordinals."""

_NOTHING: Ordinals = np.empty(0, np.uint64)
_ENTRY = np.dtype(">u8")
# Each condition of an AnyOf filter returns a set of ordinals. When these sets have more than this
# many ordinals in total (8 MiB), the sets are merged into one set to save memory.
_MERGE_AT = 1 << 20
# A term has many documents if it has at least this many. Reading their ordinals takes 20 us.
MANY = 1024


class FilterEvaluation:
    """Evaluates filters on a collection's documents in one transaction.

    The argument `all_documents` is a function that returns the ordinals of all documents,
    ascending. The argument `cached_read` is a function that returns the ordinals of the documents
    that have a term, from a cache or from the store; the default function uses no cache. It is
    called for terms that at least `many` documents have; other terms are read together. Only a few
    sets of ordinals are in memory at a time, even for a filter with many conditions. Ranges that
    overlap are an exception (`RangeReader`). If the deadline has passed, raises DeadlineExceeded
    before it evaluates the next condition.
    """

    def __init__(
        self,
        txn: Txn,
        collection: int,
        all_documents: Callable[[], Ordinals],
        deadline: Deadline,
        cached_read: CachedRead = lambda _, read: read(),
        many: int = MANY,
    ) -> None:
        self._deadline = deadline
        self._cached_read = cached_read
        self._many = many
        self._txn = txn
        self._collection = collection
        self._all_documents = all_documents

    def select(self, filter: Filter) -> Ordinals:
        """Returns the ordinals of the documents that pass `filter`, ascending.

        The caller has checked that the filter is valid.
        """
        ranges = [self._range_of(condition) for condition in _ranges_in(filter)]
        self._ranges = RangeReader(ranges, self._with_term_between)
        return self._select(filter)

    def _select(self, filter: Filter) -> Ordinals:
        """Returns the ordinals of the documents that pass a part of the filter, ascending."""
        self._deadline.check("filtering")
        match filter:
            case AllOf(inner):
                return self._all(inner)
            case AnyOf(inner):
                return self._any(inner)
            case NoneOf(inner):
                return difference(self._all_documents(), self._any(inner))
            case Match() | Exists() if filter.field == DOCUMENT_ID:
                return self._by_id(filter)
            case Match():
                return self._with_any_term(matching_terms(self._collection, filter))
            case Range() | Exists():
                return self._ranges.ordinals(self._range_of(filter))

    def _all(self, filters: Sequence[Filter]) -> Ordinals:
        """Returns the ordinals of the documents that pass each of the filters.

        Values are looked up first, because a range costs more. If no document is left, the other
        filters are not evaluated.
        """
        positive = [condition for condition in filters if not isinstance(condition, NoneOf)]
        negative = [condition for condition in filters if isinstance(condition, NoneOf)]
        positive.sort(key=lambda condition: not isinstance(condition, Match))
        matches = self._select(positive[0]) if positive else self._all_documents()
        for condition in positive[1:]:
            if not len(matches):
                break
            matches = intersection(matches, self._select(condition))
        for excluded in negative:
            if not len(matches):
                break
            matches = difference(matches, self._any(excluded.filters))
        return matches

    def _any(self, filters: Sequence[Filter]) -> Ordinals:
        """Returns the ordinals of the documents that pass at least one of the filters.

        Ranges that overlap are merged, so none of their terms is read twice. Each other filter
        returns a set of ordinals. To save memory, the sets are merged into one set whenever they
        have too many ordinals in total: at first more than `_MERGE_AT`, and later more than
        `_MERGE_AT` + 2 * n, where n is the size of the set after the last merge.
        """
        sets: list[Ordinals] = []
        size, bound = 0, _MERGE_AT
        ranges = [self._range_of(inner) for inner in filters if _is_range(inner)]
        others = (self._select(inner) for inner in filters if not _is_range(inner))
        merged = map(self._ranges.ordinals, merged_ranges(ranges))
        for ordinals in chain(merged, others):
            sets.append(ordinals)
            size += len(sets[-1])
            if size > bound:
                sets = [union(sets)]
                size, bound = len(sets[0]), _MERGE_AT + 2 * len(sets[0])
        return union(sets)

    def _by_id(self, filter: Match | Exists) -> Ordinals:
        if isinstance(filter, Exists):
            return self._all_documents()
        ordinals = []
        for name in set(map(str, filter.values)):
            # Longer ids are skipped: no document has an id of more than MAX_DOCUMENT_ID_BYTES, and
            # LMDB raises an error for a key that is too long.
            if len(name.encode()) <= MAX_DOCUMENT_ID_BYTES:
                ordinal = self._txn.document_ids.get((self._collection, name))
                if ordinal is not None:
                    ordinals.append(ordinal)
        return np.array(sorted(ordinals), np.uint64)

    def _range_of(self, filter: Range | Exists) -> TermRange:
        prefix = field_prefix(self._collection, filter.field)
        return terms_between(prefix, filter) if isinstance(filter, Range) else all_terms(prefix)

    def _with_term_between(self, start: bytes, end: bytes) -> Ordinals:
        """Returns the ordinals of the documents that have a term from `start` up to `end`.

        The term `end` itself is not included.
        """
        self._deadline.check("filtering")
        reader = _TermReader(self._verified_ordinals, self._cached_read, self._many)
        with self._txn.terms.cursor() as cursor:
            if not cursor.set_range(start):
                return _NOTHING
            for key, entry in cursor.iternext_nodup(keys=True, values=True):
                term_key = bytes(key)
                if term_key >= end:
                    break
                reader.add(term_key, entry, cursor.count())
            return reader.ordinals(cursor)

    def _with_any_term(self, terms: Iterable[bytes]) -> Ordinals:
        """Returns the ordinals of the documents that have at least one of the terms."""
        reader = _TermReader(self._verified_ordinals, self._cached_read, self._many)
        with self._txn.terms.cursor() as cursor:
            for term_key in sorted(terms):
                if cursor.set_key(term_key):
                    reader.add(term_key, cursor.value(), cursor.count())
            return reader.ordinals(cursor)

    def _verified_ordinals(
        self, entries: NDArray[np.uint64], seeds: NDArray[np.uint64] | np.uint64
    ) -> Ordinals:
        """Verifies the checksums of entries of the database `terms`. Returns the entries' ordinals.

        `seeds` has the checksum seed of each entry's term, or is one seed if all entries have the
        same term. Raises DataLoss if an entry is damaged.
        """
        ordinals, damaged = ordinals_of_entries(entries, seeds)
        if damaged.any():
            position = np.flatnonzero(damaged)[0]
            seed = seeds if isinstance(seeds, np.uint64) else seeds[position]
            self._raise_damage(entries[position], seed)
        return ordinals

    def _raise_damage(self, entry: np.uint64, seed: np.uint64) -> NoReturn:
        """Raises DataLoss with the name of the document that the damaged entry probably refers to.

        To find the document, flips each single bit of the entry in turn. If the changed entry
        matches its checksum and its document exists, the message names this document.
        """
        flipped = entry ^ (np.uint64(1) << np.arange(64, dtype=np.uint64))
        ordinals, wrong = ordinals_of_entries(flipped, seed)
        names = {
            document_owner(self._txn, self._collection, ordinal)
            for ordinal in ordinals[~wrong].tolist()
            if is_living(self._txn, self._collection, ordinal)
        }
        raise DataLoss(
            f"a filter value of {' or '.join(sorted(names)) or 'an unknown document'} is damaged; "
            "to write it again, ingest the document again or run `hrag check --repair`"
        )


class _TermReader:
    """Reads the ordinals of the documents that have at least one of several terms.

    A term has one entry for each document that has the term. The entries of terms with few
    documents are read and verified together, which is faster than to read the terms one after
    another. The entries of a term with many documents may be cached.
    """

    def __init__(self, verified: Verify, cached_read: CachedRead, many: int) -> None:
        """Creates a reader without terms.

        A term has many documents if it has at least `many`.
        """
        self._verified = verified
        self._cached_read = cached_read
        self._min_many = many
        # The entries of all terms that have a single entry, and the checksum seeds of these terms.
        self._single_entries, self._single_seeds = bytearray(), array("Q")
        # The terms with few entries, by the length of their keys, and the counts of their entries.
        self._few: defaultdict[int, list[tuple[bytes, int]]] = defaultdict(list)
        self._many: list[bytes] = []

    def add(self, term_key: bytes, entry: bytes, count: int) -> None:
        """Adds a term, given its first entry and the count of its entries."""
        if count == 1:
            self._single_entries += entry
            self._single_seeds.append(term_seed(term_key))
        elif count < self._min_many:
            self._few[len(term_key)].append((term_key, count))
        else:
            self._many.append(term_key)

    def ordinals(self, cursor: Any) -> Ordinals:
        """Returns the ordinals of the documents that have at least one of the added terms.

        Raises DataLoss if an entry is damaged.
        """
        single = np.frombuffer(self._single_entries, _ENTRY).astype(np.uint64)
        sets = [self._verified(single, np.array(self._single_seeds, np.uint64))]
        for terms in self._few.values():
            keys, counts = zip(*terms, strict=True)
            seeds = np.array([term_seed(key) for key in keys], np.uint64)
            sets.append(self._verified(_entries(cursor, keys), np.repeat(seeds, counts)))
        for key in self._many:
            sets.append(self._cached_read(key, partial(self._read_term, cursor, key)))
        return union(sets)

    def _read_term(self, cursor: Any, term_key: bytes) -> Ordinals:
        return self._verified(_entries(cursor, [term_key]), np.uint64(term_seed(term_key)))


def _entries(cursor: Any, term_keys: Sequence[bytes]) -> NDArray[np.uint64]:
    """Returns the entries of terms whose keys have the same length, in the order of the terms."""
    pairs = cursor.getmulti(term_keys, dupdata=True, dupfixed_bytes=_ENTRY.itemsize, keyfixed=True)
    packed = np.dtype([("term", f"V{len(term_keys[0])}"), ("entry", _ENTRY)])
    return np.frombuffer(pairs, packed)["entry"].astype(np.uint64)


def _ranges_in(filter: Filter) -> Iterator[Range | Exists]:
    """Yields the conditions of a filter that read ranges of terms, at any depth."""
    if isinstance(filter, AllOf | AnyOf | NoneOf):
        for inner in filter.filters:
            yield from _ranges_in(inner)
    elif _is_range(filter):
        yield filter


def _is_range(filter: Filter) -> TypeGuard[Range | Exists]:
    """Returns True if a condition is true for the documents that have a term within a range."""
    return isinstance(filter, Range) or (isinstance(filter, Exists) and filter.field != DOCUMENT_ID)
