"""Damage to an open store by one flipped bit. Flipping the bit again undoes the damage."""

from hrag.engine.embedded.store.environment import Store
from tests.support.engines.damage import entries_of, overwrite


def flip(store: Store, database: str, key: bytes = b"") -> None:
    """Flips a bit in the checksum of the first entry of `database` whose key is at least `key`."""
    with store.write() as txn:
        first_key, value = next(entry for entry in entries_of(txn, database) if entry[0] >= key)
        changed = bytearray(value)
        changed[-1] ^= 1
        overwrite(txn, database, first_key, bytes(changed))
