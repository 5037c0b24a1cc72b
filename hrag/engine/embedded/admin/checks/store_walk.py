"""The state that all checks share: a read transaction, and the totals counted so far."""

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

# Decoding a damaged record raises one of these.
UNREADABLE = (ValueError, KeyError, TypeError, struct.error, InvalidArgument, DataLoss)

Numbers = TypeVar("Numbers", Counters, Usage)


@dataclass(slots=True)
class Walk:
    """A read transaction on a store, and the totals that were counted in it so far.

    Postings are compared with the texts in parts of about `part_entries` entries. `usage` has
    the counted usage of each tenant. `uncounted` are tenants with damaged entries, so
    that their totals cannot be compared.
    """

    store: Store
    txn: Txn
    part_entries: int
    collections: int = 0
    documents: int = 0
    leaves: int = 0
    segments: int = 0
    usage: dict[str, Usage] = field(default_factory=dict)
    uncounted: set[str] = field(default_factory=set)

    def leaf_count(self, collection: int, ordinal: int) -> int | None:
        """Returns the leaf count of a document, or None if it does not exist or is damaged."""
        entry = self.txn.ordinals.get_sound((collection, ordinal))
        return None if entry is None else entry.leaf_count


def guarded(problems: Iterator[str]) -> Iterator[str]:
    """Yields problems.

    If damage ends the check of a part early, yields that as the last problem and does not raise.
    """
    try:
        yield from problems
    except (*UNREADABLE, LookupError) as error:
        yield f"damage ends this part of the check: {error}"
    except lmdb.Error as error:
        yield f"LMDB's own pages are damaged, which ends this part of the check: {error}"


def differences(stored: Numbers, counted: Numbers) -> Iterator[str]:
    """Yields a problem for each stored counter that differs from the counted value."""
    for name, expected, actual in zip(stored._fields, counted, stored, strict=True):
        if expected != actual:
            yield f"counter {name} is {actual}, counted {expected}"
