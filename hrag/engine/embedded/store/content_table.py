"""The contents of documents, seen through one transaction: tree, text and vectors by address.

The module `content` describes how a content is cut into values. The tree and the vectors have one
checksum each. The text has one checksum for each of its blocks, because searches read only some
blocks. Error messages and the seeds of checksums use the names of the parts in `content.PARTS`.
"""

from collections.abc import Iterator
from functools import partial
from typing import NoReturn, overload

from hrag.engine.embedded.store import content, schema
from hrag.engine.embedded.store.checksums import (
    SUM_BYTES,
    Blocks,
    Buffer,
    are_verified,
    block_checksums_of,
    checksum_of,
    seed_of,
    verified,
)
from hrag.engine.embedded.store.content import Content, ContentPart, DamagedContent
from hrag.engine.embedded.store.tables import Database, TableTxn, required, stored_entries

_SEEDS = tuple(seed_of(name.encode(), 0) for name in content.PARTS)


class ContentTable:
    """The contents of all documents. Reading a damaged part raises DataLoss.

    A returned part points into LMDB's pages, or is a copy that was joined from several values. It
    is valid until the transaction ends or writes.
    """

    __slots__ = ("_database", "_txn")

    def __init__(self, txn: TableTxn, database: Database) -> None:
        self._txn = txn
        self._database = database

    def tree(self, address: bytes) -> memoryview:
        """Returns a document's packed tree. Raises DataLoss if the document has no content."""
        return required(self.get(address, ContentPart.TREE))

    def text(self, address: bytes) -> memoryview:
        """Returns a document's text in UTF-8. Raises DataLoss if the document has no content."""
        return required(self.get(address, ContentPart.TEXT))

    def vectors(self, address: bytes) -> memoryview:
        """Returns a document's vectors: `float32[leaves, dimension]`, little-endian.

        Raises DataLoss if the document has no content.
        """
        return required(self.get(address, ContentPart.VECTORS))

    def tree_again(self, address: bytes) -> memoryview:
        """Returns a document's packed tree without verifying its checksum.

        The caller must have verified the tree a short time ago. Raises DataLoss if the document
        has no content.
        """
        return required(self._read_stored(address, ContentPart.TREE))[:-SUM_BYTES]

    def text_blocks(self, address: bytes, checked: bytearray | None = None) -> Blocks:
        """Returns a document's text, whose blocks are checked on demand.

        `checked` marks the blocks that were checked a short time ago; see `Blocks`. Raises DataLoss
        if the document has no content.
        """
        value = required(self._read_stored(address, ContentPart.TEXT))
        return self._open_blocks(address, value, checked)

    def text_blocks_again(self, blocks: Blocks, address: bytes) -> Blocks:
        """Returns a copy of `blocks` that reports damage through this transaction.

        `blocks` are the result of `text_blocks` for the same address, in another transaction that
        sees the same commit.
        """
        return blocks.reporting(self._damage_of(address, ContentPart.TEXT))

    def get(self, address: bytes, part: ContentPart) -> memoryview | None:
        """Returns a part of a document's content; None if the document has no content."""
        value = self._read_stored(address, part)
        if value is None:
            return None
        if part is ContentPart.TEXT:
            return self._open_blocks(address, value).check_all()
        data = verified(value, seed_of(address, _SEEDS[part]))
        if data is None:
            self._txn.raise_damage(content.PARTS[part], address)
        return data

    def get_sound(self, address: bytes, part: ContentPart) -> memoryview | None:
        """Returns a part of a document's content; None if it is missing or damaged."""
        try:
            value = self._read_raw(address, part)
        except DamagedContent:
            return None
        seed = seed_of(address, _SEEDS[part])
        if value is None or part is not ContentPart.TEXT:
            return None if value is None else verified(value, seed)
        return self._open_blocks(address, value).data if are_verified(value, seed) else None

    def has(self, address: bytes, part: ContentPart) -> bool:
        """Returns True if the document has a content, even if the content is damaged."""
        try:
            return self._read_raw(address, part) is not None
        except DamagedContent:
            return True

    def put(
        self,
        address: bytes,
        tree: Buffer,
        text: Buffer,
        vectors: Buffer,
        *,
        append: bool = False,
    ) -> None:
        """Stores the content of a document with its checksums.

        Replaces the content that is stored under the slot of `address`. With `append`, which is
        passed to `lmdb.Transaction.put`, the slot must be larger than every slot in use.
        """
        self._txn.last_content = None
        sealed = [
            (data, _checksums(address, data, part))
            for data, part in zip((tree, text, vectors), ContentPart, strict=True)
        ]
        slot, raw, handle = address[: schema.SLOT_BYTES], self._txn.raw, self._database.handle
        values = content.cut(content.joined(sealed, address))
        for index, value in enumerate(values):
            raw.put(content.value_key(slot, index), value, db=handle, append=append)
        surplus = len(values)
        while not append and raw.delete(content.value_key(slot, surplus), db=handle):
            surplus += 1

    def delete(self, slot: bytes) -> None:
        """Deletes all values under a packed slot."""
        self._txn.last_content = None
        with self._txn.raw.cursor(db=self._database.handle) as cursor:
            cursor.set_range(slot)
            while cursor.key()[: len(slot)] == slot:
                cursor.delete()

    def stored(self, slot: bytes = b"") -> Iterator[tuple[memoryview, memoryview]]:
        """Yields the key and the value of each entry under a packed slot, as LMDB stores them.

        Without a slot, yields all entries. Each key begins with the packed slot.
        """
        return stored_entries(self._txn, self._database, slot)

    def _read_stored(self, address: bytes, part: ContentPart) -> memoryview | None:
        """Returns a part with its checksums, which are not verified.

        Returns None if the document has no content. Raises DataLoss if the header of the content is
        damaged.
        """
        try:
            return self._read_raw(address, part)
        except DamagedContent:
            self._txn.raise_damage(content.PARTS[part], address)

    def _read_raw(self, address: bytes, part: ContentPart) -> memoryview | None:
        """Returns the same as `_read_stored`, but raises DamagedContent instead of DataLoss."""
        loaded = self._read_content(address, part)
        return None if loaded is None else loaded.part(part)

    def _read_content(self, address: bytes, part: ContentPart) -> Content | None:
        """Returns a document's content with at least `part`; None if it has no content.

        Reads only the first value of the content if that contains the part, else all values.
        """
        txn, handle = self._txn, self._database.handle
        loaded, first_key = txn.last_content, content.value_key(address[: schema.SLOT_BYTES], 0)
        if loaded is None or loaded.address != address:
            first = txn.raw.get(first_key, db=handle)
            if first is None:
                return None
            loaded = txn.last_content = Content(address, first)
        if len(loaded.data) < loaded.needed_bytes(part):
            values = [loaded.data]
            missing_bytes = loaded.size_bytes - len(loaded.data)
            with txn.raw.cursor(db=handle) as cursor:
                cursor.set_key(first_key)
                while missing_bytes > 0 and cursor.next():
                    values.append(cursor.value())
                    missing_bytes -= len(values[-1])
            loaded.data = memoryview(b"".join(values))
        return loaded

    def _open_blocks(
        self, address: bytes, value: memoryview, checked: bytearray | None = None
    ) -> Blocks:
        seed = partial(seed_of, address, _SEEDS[ContentPart.TEXT])
        return Blocks(value, seed, self._damage_of(address, ContentPart.TEXT), checked)

    def _damage_of(self, address: bytes, part: ContentPart) -> "partial[NoReturn]":
        """Returns a function that raises DataLoss with a message about a damaged part."""
        return partial(self._txn.raise_damage, content.PARTS[part], address)


def _checksums(address: bytes, data: Buffer, part: ContentPart) -> bytes:
    """Returns the checksums that are stored after the data of a part."""
    seal = block_checksums_of if part is ContentPart.TEXT else checksum_of
    return seal(data, seed_of(address, _SEEDS[part]))


class ContentField:
    """A field of a transaction that is the table of the documents' contents."""

    @overload
    def __get__(self, txn: None, owner: type) -> "ContentField": ...

    @overload
    def __get__(self, txn: TableTxn, owner: type) -> ContentTable: ...

    def __get__(self, txn: TableTxn | None, owner: type) -> "ContentField | ContentTable":
        return self if txn is None else ContentTable(txn, txn.databases[schema.CONTENTS])
