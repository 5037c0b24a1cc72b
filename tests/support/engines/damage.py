"""Changes to the stored bytes of a store: flipped bits, and values that do not fit together."""

from contextlib import closing
from pathlib import Path

from hrag.engine.embedded.store import content, schema
from hrag.engine.embedded.store.checksums import SUM_BYTES, data_bytes
from hrag.engine.embedded.store.content import ContentPart
from hrag.engine.embedded.store.environment import open_for_writing
from hrag.engine.embedded.store.tables import Table, stored_entries
from hrag.engine.embedded.store.transactions import Txn


def entries_of(txn: Txn, name: str) -> list[tuple[bytes, bytes]]:
    """Returns the entries of an LMDB database as LMDB stores them."""
    entries = stored_entries(txn, txn.databases[name])
    return [(bytes(key), bytes(value)) for key, value in entries]


def overwrite(txn: Txn, name: str, key: bytes, value: bytes) -> None:
    """Stores `value` unchanged, so its checksum may be missing or wrong."""
    txn.raw.put(key, value, db=txn.databases[name].handle)


def put_encoded(txn: Txn, name: str, key: bytes, data: bytes) -> None:
    """Stores `data` with a correct checksum. `data` need not be the encoding of a record."""
    table = getattr(txn, name)
    assert isinstance(table, Table)
    table.put_data(key, data)


def part_of(name: str) -> ContentPart:
    """Returns the part of a document's content that error messages call `name`."""
    return ContentPart(content.PARTS.index(name))


def flip_first(folder: Path, name: str) -> None:
    """Flips a bit in the first value of the LMDB database `name`.

    If `name` is the name of a part of a content, it flips a bit in this part of the first document.
    """
    with closing(open_for_writing(folder)) as store, store.write() as txn:
        if name in content.PARTS:
            flip_part(txn, name, 3)
            return
        key, value = entries_of(txn, name)[0]
        changed = bytearray(value)
        changed[3] ^= 1
        if name in schema.MANY_VALUED:
            txn.raw.delete(key, value, db=txn.databases[name].handle)
        overwrite(txn, name, key, bytes(changed))


def flip_part(txn: Txn, name: str, at: int) -> None:
    """Flips a bit at the byte offset `at` of a part of the store's first document.

    `name` is the name of the part: `trees`, `texts` or `vectors`.
    """
    (collection, ordinal), entry = next(txn.ordinals.entries())
    address = schema.address(entry.slot, collection, ordinal)
    part = _part_without_checks(txn, address, part_of(name))
    values = [(bytes(key), bytes(value)) for key, value in txn.contents.stored(entry.slot)]
    whole = bytearray(b"".join(value for _, value in values))
    assert whole.count(part) == 1
    whole[whole.index(part) + at % len(part)] ^= 1
    for (key, _), value in zip(values, content.cut(bytes(whole)), strict=True):
        overwrite(txn, schema.CONTENTS, key, bytes(value))
    txn.last_content = None


def _part_without_checks(txn: Txn, address: bytes, part: ContentPart) -> bytes:
    values = txn.contents.stored(address[: schema.SLOT_BYTES])
    whole = memoryview(b"".join(bytes(value) for _, value in values))
    stored = content.Content(address, whole).part(part)
    return bytes(stored[: data_bytes(len(stored)) if part is ContentPart.TEXT else -SUM_BYTES])


def put_part(txn: Txn, address: bytes, name: str, value: bytes) -> None:
    """Replaces the tree, text or vectors of a document; the checksum of the new value is correct.

    `name` is the name of the replaced part: `trees`, `texts` or `vectors`.
    """
    parts = [
        value if part is part_of(name) else bytes(txn.contents.get(address, part) or b"")
        for part in ContentPart
    ]
    delete_content(txn, address)
    txn.contents.put(address, *parts)


def delete_content(txn: Txn, address: bytes) -> None:
    """Deletes tree, text and vectors of a document."""
    txn.contents.delete(address[: schema.SLOT_BYTES])
