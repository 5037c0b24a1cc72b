"""The originals of documents: the files from which they were read, cut into pieces.

The pieces are in the LMDB database of the documents' contents, after the values of the content.
The key of a piece is the document's slot, the byte 255 and the piece's index, a u32. So whatever
deletes or copies the content of a document also deletes or copies its original.

All pieces of a file except the last one have `PIECE_BYTES`. So a part of a file is found without
reading what precedes it, and LMDB never needs a long run of free pages. A checksum follows each
piece. Its seed is computed from the document's address and the index of the piece.
"""

from hashlib import sha256

from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.checksums import SUM_BYTES, Buffer, checksum_of, seed_of, verified
from hrag.engine.embedded.store.tables import Database, TableTxn, stored_entries
from hrag.values.documents import Original

# A piece, with its checksum and the header of LMDB's page, fills 64 pages of 4 KiB.
PIECE_BYTES = 64 * 4096 - 16 - SUM_BYTES

_PREFIX = b"\xff"
_SEED = seed_of(schema.ORIGINALS.encode(), 0)


def value_lengths(original: Original | None) -> list[int]:
    """Returns the lengths of the LMDB values of an original, with their checksums, in bytes."""
    if original is None:
        return []
    whole, rest = divmod(original.size_bytes, PIECE_BYTES)
    return [PIECE_BYTES + SUM_BYTES] * whole + ([rest + SUM_BYTES] if rest else [])


class OriginalTable:
    """The originals of all documents. Reading a damaged or missing piece raises DataLoss.

    `address` identifies a document: its slot, collection id and ordinal, encoded as bytes.
    """

    __slots__ = ("_database", "_txn")

    def __init__(self, txn: TableTxn, database: Database) -> None:
        self._txn = txn
        self._database = database

    def put(self, address: bytes, content: Buffer, *, append: bool = False) -> None:
        """Stores the original of a document; an empty `content` means that it has none.

        Replaces the original that is stored under the document's slot. With `append`, the slot must
        be larger than every slot in use, and the document's content must be stored already.
        """
        self._txn.last_content = None
        raw, handle = self._txn.raw, self._database.handle
        starts = range(0, len(content), PIECE_BYTES)
        for index, start in enumerate(starts):
            piece = content[start : start + PIECE_BYTES]
            value = b"".join((piece, checksum_of(piece, _seed(address, index))))
            raw.put(_key(address, index), value, db=handle, append=append)
        surplus = len(starts)
        while not append and raw.delete(_key(address, surplus), db=handle):
            surplus += 1

    def read(self, address: bytes, start: int, end: int) -> bytes:
        """Returns the bytes of an original from `start` to `end`, which must lie inside it."""
        first = start // PIECE_BYTES
        pieces = [self._piece(address, index) for index in range(first, -(-end // PIECE_BYTES))]
        offset = first * PIECE_BYTES
        content = b"".join(pieces)[start - offset : end - offset]
        if len(content) != end - start:
            self._txn.raise_damage(schema.ORIGINALS, address)
        return content

    def read_whole(self, address: bytes, original: Original | None) -> bytes | None:
        """Returns the whole original of a document; None if the document has no original."""
        return None if original is None else self.read(address, 0, original.size_bytes)

    def problem(self, address: bytes, original: Original | None) -> str:
        """Returns a text that says how the stored pieces differ from `original`; "" if they agree.

        `original` is what the document's record says.
        """
        pieces = stored_entries(self._txn, self._database, address[: schema.SLOT_BYTES] + _PREFIX)
        lengths, digest = [], sha256()
        for index, (_, value) in enumerate(pieces):
            lengths.append(len(value))
            piece = verified(value, _seed(address, index))
            if piece is None:
                return "its original does not match its checksum"
            digest.update(piece)
        if lengths != value_lengths(original):
            return "the pieces of its original do not have the size that its record says"
        if original is not None and digest.hexdigest() != original.sha256:
            return "its original does not have the SHA-256 that its record says"
        return ""

    def _piece(self, address: bytes, index: int) -> memoryview:
        value = self._txn.raw.get(_key(address, index), db=self._database.handle)
        piece = None if value is None else verified(value, _seed(address, index))
        if piece is None:
            self._txn.raise_damage(schema.ORIGINALS, address)
        return piece


class OriginalField:
    """The descriptor of an attribute of `Txn` whose value is the transaction's OriginalTable."""

    def __get__(self, txn: TableTxn, owner: type) -> OriginalTable:
        return OriginalTable(txn, txn.databases[schema.CONTENTS])


def _key(address: bytes, index: int) -> bytes:
    return address[: schema.SLOT_BYTES] + _PREFIX + schema.u32(index)


def _seed(address: bytes, index: int) -> int:
    return seed_of(address + schema.u32(index), _SEED)
