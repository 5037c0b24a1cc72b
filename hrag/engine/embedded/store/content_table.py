"""A table with the content of each document: its tree, its text and its vectors.

A key of the table is a document's address: its slot, its collection id and its ordinal. The module
`content` describes how the three are joined and cut into LMDB values. The tree has one checksum,
and so have the vectors. The text has one checksum for each of its blocks, because searches read
only some blocks. In error messages and in the seeds of checksums, tree, text and vectors have the
names in `content.PARTS`: "trees", "texts" and "vectors".
"""

from collections.abc import Iterator
from functools import partial
from typing import overload

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

_TEXT = content.PARTS[ContentPart.TEXT]
_SEEDS = tuple(seed_of(name.encode(), 0) for name in content.PARTS)


class ContentTable:
    """The tree, text and vectors of every document. Reading damaged data raises DataLoss.

    The methods return memory that points into LMDB's pages, or a copy that was joined from several
    values. The memory is valid until the transaction ends or writes. `address` identifies a
    document: it consists of the document's slot, collection id and ordinal, encoded as bytes.
    """

    __slots__ = ("_database", "_txn")

    def __init__(self, txn: TableTxn, database: Database) -> None:
        self._txn = txn
        self._database = database

    def tree(self, address: bytes) -> memoryview:
        """Returns a document's encoded tree. Raises DataLoss if the tree is missing or damaged."""
        return required(self.get(address, ContentPart.TREE))

    def text(self, address: bytes) -> memoryview:
        """Returns a document's text in UTF-8. Raises DataLoss if the text is missing or damaged."""
        return required(self.get(address, ContentPart.TEXT))

    def vectors(self, address: bytes) -> memoryview:
        """Returns a document's vectors: `float32[leaves, dimension]`, little-endian.

        Raises DataLoss if the vectors are missing or damaged.
        """
        return required(self.get(address, ContentPart.VECTORS))

    def tree_again(self, address: bytes) -> memoryview:
        """Returns a document's encoded tree without verifying its checksum.

        Call it only if the method `tree` has verified the tree of this address a short time ago.
        Raises DataLoss if the tree is missing.
        """
        return required(self._read_stored(address, ContentPart.TREE))[:-SUM_BYTES]

    def text_blocks(self, address: bytes, checked: bytearray | None = None) -> Blocks:
        """Returns a document's text as `Blocks`, which are not verified yet.

        The caller must verify each block with `Blocks.check` before reading the block. `checked`
        has one byte for each block: 1 if the block was verified a short time ago, else 0. Raises
        DataLoss if the text is missing.
        """
        value = required(self._read_stored(address, ContentPart.TEXT))
        return self._open_blocks(address, value, checked)

    def text_blocks_again(self, blocks: Blocks, address: bytes) -> Blocks:
        """Returns a copy of `blocks` that this transaction can use.

        `blocks` is the result of `text_blocks` for `address`, from an earlier transaction. Both
        transactions must see the same commit. The copy differs only in the transaction that it uses
        to look up the name of the document for an error message: the earlier transaction may have
        ended, so the copy uses this transaction.
        """
        return blocks.reporting(partial(self._txn.raise_damage, _TEXT, address))

    def get(self, address: bytes, part: ContentPart) -> memoryview | None:
        """Returns the tree, the text or the vectors of a document.

        Returns None if nothing is stored for the document. Raises DataLoss if the part is damaged.
        """
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
        """Returns a part of a document: the tree, the text or the vectors.

        Returns None if this part is missing or damaged.
        """
        try:
            value = self._read_raw(address, part)
        except DamagedContent:
            return None
        seed = seed_of(address, _SEEDS[part])
        if value is None or part is not ContentPart.TEXT:
            return None if value is None else verified(value, seed)
        return self._open_blocks(address, value).data if are_verified(value, seed) else None

    def has(self, address: bytes, part: ContentPart) -> bool:
        """Returns True if tree, text and vectors of the document are stored, even if damaged."""
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
        """Stores the tree, text and vectors of a document with their checksums.

        Replaces the content that is stored under the document's slot, which is the first part of
        `address`. With `append`, the slot must be larger than every slot in use; `append` is passed
        to `lmdb.Transaction.put`.
        """
        self._txn.last_content = None
        parts = [
            (data, _checksums(address, data, part))
            for data, part in zip((tree, text, vectors), ContentPart, strict=True)
        ]
        slot, raw, handle = address[: schema.SLOT_BYTES], self._txn.raw, self._database.handle
        values = content.cut(content.joined(parts, address))
        for index, value in enumerate(values):
            raw.put(content.value_key(slot, index), value, db=handle, append=append)
        surplus = len(values)
        while not append and raw.delete(content.value_key(slot, surplus), db=handle):
            surplus += 1

    def delete(self, slot: bytes) -> None:
        """Deletes the tree, text, vectors and original that are stored under `slot`.

        `slot` is the slot of a document, encoded as bytes.
        """
        self._txn.last_content = None
        with self._txn.raw.cursor(db=self._database.handle) as cursor:
            cursor.set_range(slot)
            while cursor.key()[: len(slot)] == slot:
                cursor.delete()

    def stored(self, slot: bytes = b"") -> Iterator[tuple[memoryview, memoryview]]:
        """Yields the keys and values of the document with this slot, as the bytes that LMDB stores.

        Without a slot, yields the keys and values of all documents. Each key begins with the slot
        of the document.
        """
        return stored_entries(self._txn, self._database, slot)

    def _read_stored(self, address: bytes, part: ContentPart) -> memoryview | None:
        """Returns a document's tree, text or vectors with its checksums, without verifying them.

        Returns None if nothing is stored for the document. Raises DataLoss if the header that
        contains the lengths of tree, text and vectors is damaged.
        """
        try:
            return self._read_raw(address, part)
        except DamagedContent:
            self._txn.raise_damage(content.PARTS[part], address)

    def _read_raw(self, address: bytes, part: ContentPart) -> memoryview | None:
        """Returns a document's tree, text or vectors with its checksums, without verifying them.

        Returns None if nothing is stored for the document. Raises DamagedContent if the header that
        contains the lengths of tree, text and vectors is damaged.
        """
        loaded = self._read_content(address, part)
        return None if loaded is None else loaded.part(part)

    def _read_content(self, address: bytes, part: ContentPart) -> Content | None:
        """Reads a document's content, at least up to the end of `part`.

        Reads only the first of the document's LMDB values if this value contains the part, else all
        of its values. Returns None if nothing is stored for the document.
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
        damage = partial(self._txn.raise_damage, _TEXT, address)
        return Blocks(value, seed, damage, checked)


def _checksums(address: bytes, data: Buffer, part: ContentPart) -> bytes:
    """Returns the checksums that are stored after `data`, a document's tree, text or vectors.

    A text has a checksum for each of its blocks; a tree and the vectors have one checksum.
    """
    seal = block_checksums_of if part is ContentPart.TEXT else checksum_of
    return seal(data, seed_of(address, _SEEDS[part]))


class ContentField:
    """The descriptor of an attribute of `Txn` whose value is the transaction's ContentTable."""

    @overload
    def __get__(self, txn: None, owner: type) -> "ContentField": ...

    @overload
    def __get__(self, txn: TableTxn, owner: type) -> ContentTable: ...

    def __get__(self, txn: TableTxn | None, owner: type) -> "ContentField | ContentTable":
        return self if txn is None else ContentTable(txn, txn.databases[schema.CONTENTS])
