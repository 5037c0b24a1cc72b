"""One flipped bit in an open store; flipping it again takes the damage back."""

from hrag.engine.embedded.store.environment import Store
from tests.support.engines.damage import entries_of, overwrite


def flip(store: Store, database: str, key: bytes = b"") -> None:
    """Flips a bit in the checksum of a database's first entry from `key` on."""
    with store.write() as txn:
        first, value = next(entry for entry in entries_of(txn, database) if entry[0] >= key)
        changed = bytearray(value)
        changed[-1] ^= 1
        overwrite(txn, database, first, bytes(changed))
