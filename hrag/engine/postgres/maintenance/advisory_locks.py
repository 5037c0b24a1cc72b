"""Advisory locks on the index of a collection; each lock ends with its transaction.

Writers of documents do not need them. The keys of advisory locks are numbers that are shared by
the whole database. The keys of hrag begin with a prefix that other programs do not use.
"""

from hrag.engine.postgres.store.connection import Connection

# The lower 32 bits of a key have the number of the collection.
_MAINTENANCE_PREFIX = int.from_bytes(b"hrag") << 32
_STEP_PREFIX = int.from_bytes(b"hras") << 32

_TRY_LOCK = "SELECT pg_try_advisory_xact_lock(%s)"
_LOCK = "SELECT pg_advisory_xact_lock(%s)"


def try_lock_maintenance(connection: Connection, collection_id: int) -> bool:
    """Tries to lock the maintenance of a collection until this transaction ends.

    Returns False if another process has the lock. The lock only avoids duplicate work. Correctness
    must not depend on it: maintenance has several transactions, and the one with the lock may be
    lost before the others end.
    """
    row = connection.execute(_TRY_LOCK, (_MAINTENANCE_PREFIX + collection_id,)).fetchone()
    return bool(row and row[0])


def lock_step(connection: Connection, collection_id: int) -> None:
    """Locks the collection for one step of maintenance, until this transaction ends.

    Waits while another process runs a step on the postings or rows of the collection. A step
    reads rows and removes them in one transaction. Two simultaneous steps would both write the
    same postings.
    """
    connection.execute(_LOCK, (_STEP_PREFIX + collection_id,))
