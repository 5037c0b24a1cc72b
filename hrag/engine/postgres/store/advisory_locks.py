"""Advisory locks for the maintenance of a collection; the end of a transaction releases its locks.

Writers of documents do not acquire these locks. The keys of advisory locks are integers, and all
programs that use the database share them. Therefore hrag's keys begin with a prefix that other
programs are not expected to use.
"""

from hrag.engine.postgres.store.cluster import hold_placement
from hrag.engine.postgres.store.connection import Connection

# The upper 32 bits of a key are one of these prefixes. The lower 32 bits are the collection's id.
_MAINTENANCE_PREFIX = int.from_bytes(b"hrag") << 32
_STEP_PREFIX = int.from_bytes(b"hras") << 32
_HOMES_KEY = int.from_bytes(b"hrah") << 32

_TRY_LOCK = "SELECT pg_try_advisory_xact_lock(%s)"
_LOCK = "SELECT pg_advisory_xact_lock(%s)"


def try_lock_maintenance(connection: Connection, collection_id: int) -> bool:
    """Tries to lock the maintenance of a collection until this transaction ends.

    Returns False if another process has the lock. The lock only prevents two processes from doing
    the same work. Correctness must not depend on it: maintenance has several transactions, and the
    connection of the transaction with the lock may be lost before the other transactions end.
    """
    row = connection.execute(_TRY_LOCK, (_MAINTENANCE_PREFIX + collection_id,)).fetchone()
    return bool(row and row[0])


def lock_step(connection: Connection, tenant_id: str, collection_id: int) -> None:
    """Locks the collection for one step of maintenance, until this transaction ends.

    Also keeps the tenant's rows where they are, as `hold_placement` does.

    A step builds or merges parts of the lexical index, moves leaves into the HNSW index, or deletes
    rows of a deleted collection or of a home that the collection does not use any more.
    Waits while another process runs a step for the collection. A step that builds a part reads term
    vectors, writes their postings, and deletes the term vectors, all in one transaction. Without
    the lock, two simultaneous steps could read the same term vectors and write the same postings
    twice.
    """
    hold_placement(connection, tenant_id)
    connection.execute(_LOCK, (_STEP_PREFIX + collection_id,))


def lock_homes(connection: Connection) -> None:
    """Locks the list of homes until this transaction ends; waits while another process does so.

    The lock is held while a collection takes its place in a home that exists, and while a home is
    distributed over a cluster or dropped. Without it, two collections could take the same place.
    """
    connection.execute(_LOCK, (_HOMES_KEY,))
