"""Writes a copy of LMDB's file without free pages, from one snapshot of the store.

LMDB can do this itself. But LMDB 0.9.36 in the package lmdb 3.0.0 ends the process by a
segmentation fault if a key of a database with many values has more than a page of them, for example
a metadata value that 300 documents have.
"""

from collections.abc import Mapping
from contextlib import closing
from itertools import islice
from pathlib import Path

import lmdb

from hrag.engine.embedded.store.lmdb_file import open_database, open_lmdb
from hrag.engine.embedded.store.tables import Database

# So many entries are copied in one transaction, because a transaction keeps the pages that it has
# written in memory.
_ENTRIES = 1000


def write_copy(env: lmdb.Environment, databases: Mapping[str, Database], folder: Path) -> None:
    """Copies the entries of all databases to a new, durable LMDB file in `folder`.

    Each entry is written behind all earlier ones, so the pages are full; only the last transactions
    leave a few free ones. Raises lmdb.Error, StorageFull or StoreUnavailable.
    """
    with (
        closing(open_lmdb(folder, readonly=False, lock=False, sync=False)) as copy,
        env.begin(buffers=True) as source,
    ):
        with copy.begin(write=True, buffers=True) as creating:
            handles = {name: open_database(copy, name, creating) for name in databases}
        for name, database in databases.items():
            with source.cursor(database.handle) as entries:
                remaining = iter(entries)
                while batch := list(islice(remaining, _ENTRIES)):
                    with copy.begin(write=True) as txn, txn.cursor(handles[name]) as written:
                        written.putmulti(batch, append=True)
        copy.sync(True)
