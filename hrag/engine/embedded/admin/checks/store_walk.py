"""The state that all checks of a store share: a read transaction, and the totals counted so far."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import lmdb

from hrag.engine.common.records import Usage
from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.store.lmdb_records import Counters
from hrag.engine.embedded.store.transactions import Txn
from hrag.values.errors import DataLoss, InvalidArgument

# The errors that reading or decoding a damaged record can raise.
UNREADABLE = (ValueError, KeyError, TypeError, struct.error, InvalidArgument, DataLoss)

Numbers = TypeVar("Numbers", Counters, Usage)


@dataclass(slots=True)
class Walk:
    """A read transaction on a store, and the totals that the checks have counted so far.

    Postings are compared with the texts in batches of about `batch_entries` entries (pairs of a
    leaf and a term). `usage` has the counted usage of each tenant. `uncounted` contains the tenants
    with damaged entries, whose totals are incomplete and therefore not compared.
    """

    store: Store
    txn: Txn
    batch_entries: int
    collections: int = 0
    documents: int = 0
    leaves: int = 0
    segments: int = 0
    usage: dict[str, Usage] = field(default_factory=dict)
    uncounted: set[str] = field(default_factory=set)

    def leaf_count(self, collection: int, ordinal: int) -> int | None:
        """Returns the leaf count of a document; None if its entry is missing or damaged."""
        entry = self.txn.ordinals.get_sound((collection, ordinal))
        return None if entry is None else entry.leaf_count


def guarded(problems: Iterator[str]) -> Iterator[str]:
    """Yields the same problems as the iterator `problems`.

    If damage makes the iterator raise an error, yields this error as the last problem and ends.
    """
    try:
        yield from problems
    except (*UNREADABLE, LookupError) as error:
        yield f"this part of the check ended early because of damage: {error}"
    except lmdb.Error as error:
        yield f"this part of the check ended early because LMDB's own pages are damaged: {error}"


def differences(stored: Numbers, counted: Numbers) -> Iterator[str]:
    """Yields a problem for each field whose stored value differs from the counted value."""
    for name, expected, actual in zip(stored._fields, counted, stored, strict=True):
        if expected != actual:
            yield f"counter {name} is {actual}, a recount gives {expected}"
