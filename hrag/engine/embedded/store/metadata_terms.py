"""The keys of the database `terms`: a collection's number, then a filter term.

Under a term are the ordinals that have it. Ordinals have 44 bits; the other 20 bits of an entry
are a checksum of the ordinal and the term (Fibonacci hashing), which numpy checks for many
entries at once.
"""

import numpy as np
from numpy.typing import NDArray

from hrag.engine.common import filter_terms
from hrag.engine.common.labels import LEAF_BITS
from hrag.engine.common.records import DocumentRecord
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.checksums import seed_of

_ALL_BITS = (1 << 64) - 1
_CHECK_BITS = LEAF_BITS  # What an ordinal leaves of 64 bits.
_FACTOR = 0x9E3779B97F4A7C15  # 2 ** 64 divided by the golden ratio.


def field_prefix(collection: int, field: str) -> bytes:
    """The prefix of all terms of a field."""
    return schema.u32(collection) + filter_terms.field_prefix(field)


def term_seed(term: bytes) -> int:
    """The seed of the checksums under a term."""
    return seed_of(term, 0)


def term_entry(term: bytes, ordinal: int) -> bytes:
    """The entry of a document under a term that it has."""
    product = (ordinal ^ term_seed(term)) * _FACTOR & _ALL_BITS
    return schema.u64(ordinal << _CHECK_BITS | product >> (64 - _CHECK_BITS))


def ordinals_of_entries(
    entries: NDArray[np.uint64], seeds: NDArray[np.uint64] | np.uint64
) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """The ordinals of entries, and which of these are not what was stored.

    `seeds` is the seed of each entry's term, or that of all.
    """
    ordinals = entries >> np.uint64(_CHECK_BITS)
    products = (ordinals ^ seeds) * np.uint64(_FACTOR)
    products >>= np.uint64(64 - _CHECK_BITS)
    damaged = products != entries & np.uint64((1 << _CHECK_BITS) - 1)
    return ordinals, damaged


def terms_of(document: DocumentRecord) -> list[bytes]:
    """All terms of a document, sorted, each once."""
    prefix = schema.u32(document.collection)
    return [prefix + each for each in filter_terms.terms_of(document)]
