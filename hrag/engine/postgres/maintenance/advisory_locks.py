"""Advisory locks on the index of a collection, which end with their transaction.

Writers do not need them. Keys are numbers of the whole database: those of other programs
do not begin with ours.
"""

from hrag.engine.postgres.store.connection import Connection

# The number of a collection fills the rest.
_WHOLE_SPACE = int.from_bytes(b"hrag") << 32
_STEP_SPACE = int.from_bytes(b"hras") << 32

_TRY_LOCK = "SELECT pg_try_advisory_xact_lock(%s)"
_LOCK = "SELECT pg_advisory_xact_lock(%s)"


def try_lock_maintenance(connection: Connection, collection_id: int) -> bool:
    """Returns whether nobody else maintains the collection until this transaction ends.

    It spares others the same work. Nothing may rely on it: work has several transactions, and
    the one with the lock may be lost before the others end.
    """
    row = connection.execute(_TRY_LOCK, (_WHOLE_SPACE + collection_id,)).fetchone()
    return bool(row and row[0])


def lock_step(connection: Connection, collection_id: int) -> None:
    """Waits for the step that another process takes on the collection's postings or rows.

    A step reads what it removes in the same transaction: two at once would both write it.
    """
    connection.execute(_LOCK, (_STEP_SPACE + collection_id,))
