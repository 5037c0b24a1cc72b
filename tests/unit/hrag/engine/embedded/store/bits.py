"""One flipped bit in an open store; flipping it again takes the damage back."""

from hrag.engine.embedded.store.environment import Store


def flip(store: Store, database: str, key: bytes = b"") -> None:
    """Flips a bit in the checksum of a database's first entry from `key` on."""
    db = store.db[database]
    with store.write() as txn:
        found, value = next(txn.entries(db, start=key))
        found, changed = bytes(found), bytearray(value)
        changed[-1] ^= 1
        txn.raw.put(found, bytes(changed), db=db.handle)
