"""Damages values of an embedded store."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from hrag.engine.embedded.store import content, schema
from hrag.engine.embedded.store.environment import Store, open_for_writing
from hrag.engine.embedded.store.transactions import Database, Txn


def flip_first(folder: Path, name: str) -> None:
    """Flips a bit in the first value of a database.

    If `name` is a part of documents, it flips a bit in this part of the first document.
    """
    with closing(open_for_writing(folder)) as store, store.write() as txn:
        key, value = next(txn.entries(store.db[name]), (b"", b""))
        if name in content.PARTS and len(key) != schema.SLOT_BYTES:
            flip_part(store, txn, name, 3)
            return
        key, changed = bytes(key), bytearray(value)
        changed[3] ^= 1
        if name in schema.MANY_VALUED:
            txn.delete(key, bytes(value), db=store.db[name])
        txn.raw.put(key, bytes(changed), db=store.db[name].handle)


def flip_part(store: Store, txn: Txn, name: str, at: int) -> None:
    """Flips a bit at the offset `at` of the tree, text or vectors of the store's first document.

    `name` says which of these parts.
    """
    key, entry = next(store.scan(txn, "ordinals", b""))
    slot = schema.read_document_entry(entry)[1]
    address = schema.address(slot, *schema.read_in_collection(key))
    part = bytes(txn.get_again(address, store.db[name]))
    values = [(bytes(key), bytes(value)) for key, value in txn.entries(store.db["texts"], slot)]
    whole = bytearray(b"".join(value for _, value in values))
    assert whole.count(part) == 1
    whole[whole.index(part) + at % len(part)] ^= 1
    for (part_key, _), value in zip(values, content.cut(bytes(whole)), strict=True):
        txn.raw.put(part_key, value, db=store.db["texts"].handle)


def put_part(txn: Txn, db: Mapping[str, Database], address: bytes, name: str, value: bytes) -> None:
    """Replaces tree, text or vectors of a document by `value`, with a valid checksum."""
    parts = [
        (
            db[part_name],
            value if part_name == name else bytes(txn.get(address, db[part_name]) or b""),
        )
        for part_name in content.PARTS
    ]
    delete_content(txn, db, address)
    txn.put_content(address, parts)


def delete_content(txn: Txn, db: Mapping[str, Database], address: bytes) -> None:
    """Deletes tree, text and vectors of a document."""
    txn.delete_content(address[: schema.SLOT_BYTES], db[schema.CONTENTS])
