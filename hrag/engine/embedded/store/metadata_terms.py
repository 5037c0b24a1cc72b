"""Keys and values of the database `terms`, which filters read.

A filter term is a metadata field with a value. A key is a collection id followed by a filter term.
A key has one value, called an entry, for each document that has the term. An entry has 64 bits: 44
bits are the document's ordinal, and 20 bits are a checksum of the ordinal and the term (Fibonacci
hashing). numpy verifies many entries at once.
"""

from collections.abc import Iterable, Iterator
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from hrag.engine.common import filter_terms
from hrag.engine.common.labels import LEAF_BITS
from hrag.engine.common.records import DocumentRecord
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.checksums import seed_of
from hrag.engine.embedded.store.tables import Database, TableTxn, stored_entries
from hrag.values.filters import Match

_TERMS = "terms"

_ALL_BITS = (1 << 64) - 1
# The length of an entry's checksum in bits: 20. The other 44 bits of an entry are the ordinal.
_CHECK_BITS = LEAF_BITS
# The multiplier of Fibonacci hashing: 2 ** 64 divided by the golden ratio.
_FACTOR = 0x9E3779B97F4A7C15


def field_prefix(collection: int, field: str) -> bytes:
    """Returns the bytes with which the keys of a field's terms begin, in one collection."""
    return schema.u32(collection) + filter_terms.field_prefix(field)


def matching_terms(collection: int, match: Match) -> set[bytes]:
    """Returns the keys of the terms in a collection whose documents pass `match`."""
    prefix = schema.u32(collection)
    return {prefix + term for term in filter_terms.matching_terms(match)}


def term_seed(term: bytes) -> int:
    """Returns the seed of the checksums in the entries of `term`, a key of the database `terms`."""
    return seed_of(term, 0)


def term_entry(term: bytes, ordinal: int) -> bytes:
    """Returns the value that is stored under `term` for each document that has the term.

    The 8 bytes of the value contain the document's ordinal and a checksum.
    """
    product = (ordinal ^ term_seed(term)) * _FACTOR & _ALL_BITS
    return schema.u64(ordinal << _CHECK_BITS | product >> (64 - _CHECK_BITS))


def ordinals_of_entries(
    entries: NDArray[np.uint64], seeds: NDArray[np.uint64] | np.uint64
) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Decodes the ordinal of each entry, and verifies the entry's checksum.

    Returns the ordinals, and for each entry True if the entry is damaged. `seeds` has the checksum
    seed of each entry's term, or is one seed if all entries have the same term.
    """
    ordinals = entries >> np.uint64(_CHECK_BITS)
    products = (ordinals ^ seeds) * np.uint64(_FACTOR)
    products >>= np.uint64(64 - _CHECK_BITS)
    damaged = products != entries & np.uint64((1 << _CHECK_BITS) - 1)
    return ordinals, damaged


def terms_of(document: DocumentRecord) -> list[bytes]:
    """Returns the keys of a document in the database `terms`, sorted and without duplicates."""
    prefix = schema.u32(document.collection)
    return [prefix + term for term in filter_terms.terms_of(document)]


class TermTable:
    """The terms of all documents, seen through one transaction.

    A term has one entry for each document that has the term.
    """

    __slots__ = ("_database", "_txn")

    def __init__(self, txn: TableTxn, database: Database) -> None:
        self._txn = txn
        self._database = database

    @property
    def name(self) -> str:
        """The name of the LMDB database."""
        return self._database.name

    def add(self, term: bytes, ordinal: int) -> None:
        """Stores that the document with this ordinal has the term."""
        self._txn.last_content = None
        self._txn.raw.put(term, term_entry(term, ordinal), db=self._database.handle)

    def remove(self, term: bytes, ordinal: int) -> None:
        """Deletes the entry which says that the document has the term, if the entry exists."""
        self._txn.last_content = None
        self._txn.raw.delete(term, term_entry(term, ordinal), db=self._database.handle)

    def has_all(self, terms: Iterable[bytes], ordinal: int) -> bool:
        """Returns True if each of the terms has an intact entry for the document's ordinal."""
        with self.cursor() as cursor:
            return all(cursor.set_key_dup(term, term_entry(term, ordinal)) for term in terms)

    def count(self, collection: int) -> int:
        """Returns the count of entries that all terms of a collection have together."""
        return sum(1 for _ in self.stored(collection))

    def clear(self, collection: int) -> None:
        """Deletes all terms of a collection, including damaged entries."""
        self._txn.last_content = None
        for term in {bytes(term) for term, _ in self.stored(collection)}:
            self._txn.raw.delete(term, db=self._database.handle)

    def stored(self, collection: int | None = None) -> Iterator[tuple[memoryview, memoryview]]:
        """Yields the entries of a collection's terms, each as a pair: the term, and the entry.

        The order is by term. Without a collection, yields the entries of all collections. Does not
        verify the entries.
        """
        prefix = b"" if collection is None else schema.u32(collection)
        return stored_entries(self._txn, self._database, prefix)

    def cursor(self) -> Any:
        """Returns a new LMDB cursor over the database `terms`. The caller must close it."""
        return self._txn.raw.cursor(db=self._database.handle)


class TermField:
    """The descriptor of an attribute of `Txn` whose value is the transaction's TermTable."""

    @overload
    def __get__(self, txn: None, owner: type) -> "TermField": ...

    @overload
    def __get__(self, txn: TableTxn, owner: type) -> TermTable: ...

    def __get__(self, txn: TableTxn | None, owner: type) -> "TermField | TermTable":
        return self if txn is None else TermTable(txn, txn.databases[_TERMS])
