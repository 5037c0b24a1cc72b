"""Damage to the values of a store."""

from contextlib import closing
from pathlib import Path

from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import open_for_writing


def flip_first(folder: Path, name: str) -> None:
    """Flips a bit in the first value of a database."""
    with closing(open_for_writing(folder)) as store, store.write() as txn:
        key, value = next(txn.entries(store.db[name]))
        key, changed = bytes(key), bytearray(value)
        changed[3] ^= 1
        if name in schema.MANY_VALUED:
            txn.delete(key, bytes(value), db=store.db[name])
        txn.raw.put(key, bytes(changed), db=store.db[name].handle)
