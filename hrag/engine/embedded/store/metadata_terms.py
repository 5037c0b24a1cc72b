"""Keys and values of the database `terms`, which filters read.

A key is a collection's number, then a filter term. Its values, called entries, name the documents
that have the term. An entry has 64 bits: the ordinal has 44 bits, and the other 20 bits are a
checksum of the ordinal and the term (Fibonacci hashing). numpy checks many entries at once.
"""

import numpy as np
from numpy.typing import NDArray

from hrag.engine.common import filter_terms
from hrag.engine.common.labels import LEAF_BITS
from hrag.engine.common.records import DocumentRecord
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.checksums import seed_of

_ALL_BITS = (1 << 64) - 1
# An ordinal does not need the other bits of the 64.
_CHECK_BITS = LEAF_BITS
# This is 2 ** 64 divided by the golden ratio.
_FACTOR = 0x9E3779B97F4A7C15


def field_prefix(collection: int, field: str) -> bytes:
    """Returns the prefix of the keys of all terms of a field."""
    return schema.u32(collection) + filter_terms.field_prefix(field)


def term_seed(term: bytes) -> int:
    """Returns the seed of the checksums in the entries of a term, which is a key of `terms`."""
    return seed_of(term, 0)


def term_entry(term: bytes, ordinal: int) -> bytes:
    """Returns the entry under a term for the document with this ordinal."""
    product = (ordinal ^ term_seed(term)) * _FACTOR & _ALL_BITS
    return schema.u64(ordinal << _CHECK_BITS | product >> (64 - _CHECK_BITS))


def ordinals_of_entries(
    entries: NDArray[np.uint64], seeds: NDArray[np.uint64] | np.uint64
) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Returns the ordinals of entries, and True for each entry that is damaged.

    `seeds` has the seed of each entry's term, or is one seed if all entries have the same term.
    """
    ordinals = entries >> np.uint64(_CHECK_BITS)
    products = (ordinals ^ seeds) * np.uint64(_FACTOR)
    products >>= np.uint64(64 - _CHECK_BITS)
    damaged = products != entries & np.uint64((1 << _CHECK_BITS) - 1)
    return ordinals, damaged


def terms_of(document: DocumentRecord) -> list[bytes]:
    """Returns the keys of all terms of a document, sorted and without duplicates."""
    prefix = schema.u32(document.collection)
    return [prefix + term for term in filter_terms.terms_of(document)]
