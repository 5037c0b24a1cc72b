"""An LMDB transaction that adds checksums to the values it writes and checks those it reads.

A flipped bit raises DataLoss, whose message names the document; a read never returns a wrong
value. `Database` says how the values of each database are protected; see `schema`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, TypeAlias

import lmdb

from hrag.engine.embedded.store import content, schema
from hrag.engine.embedded.store.checksums import (
    SUM_BYTES,
    Blocks,
    Buffer,
    are_verified,
    block_checksums_of,
    checksum_of,
    data_bytes,
    seed_of,
    verified,
)
from hrag.engine.embedded.store.commit_cache import CommitCache, NoCache
from hrag.engine.embedded.store.content import Content, DamagedContent
from hrag.values.errors import DataLoss

RawTxn: TypeAlias = "lmdb.Transaction[memoryview]"
OwnerOf: TypeAlias = "Callable[[Txn, str, bytes], str]"
"""Returns the name of the document or collection to which an entry belongs.

The arguments are a transaction, the database's name and the key. Trusts no stored value."""
_NO_CACHE = NoCache()


@dataclass(frozen=True, slots=True)
class Database:
    """An LMDB database: its handle, and how its values are protected."""

    name: str
    handle: Any
    seed: int
    key_bytes: int | None
    """The length of LMDB's key, which is a prefix of the key passed to `Txn`; None for all of it.

    The remainder of the key names the document, and only the checksum's seed depends on it.
    """
    checked: bool
    """True if values have checksums that `Txn` writes and checks."""
    blocks: bool
    """True if values have a checksum for each block instead of one checksum."""
    part: int | None
    """Which part of a document's content this is: an index into `content.PARTS`, or None."""

    @classmethod
    def of(cls, name: str, handle: Any) -> "Database":
        """Returns the database with this name of `schema.DATABASES`, or a part of contents."""
        return cls(
            name,
            handle,
            seed_of(name.encode(), 0),
            schema.SLOT_BYTES if name in schema.BY_SLOT else None,
            name not in schema.WITHOUT_CHECKSUM,
            name in schema.IN_BLOCKS,
            content.PARTS.index(name) if name in content.PARTS else None,
        )


def _checksums(key: bytes, data: Buffer, db: Database) -> bytes:
    """Returns the checksums that are stored after the data of an entry."""
    return (block_checksums_of if db.blocks else checksum_of)(data, seed_of(key, db.seed))


class Txn:
    """An LMDB transaction that checks its values; they are valid until it ends.

    `cache` has values that transactions which see the same commit have read.
    """

    __slots__ = ("_content", "_owner_of", "cache", "raw")

    def __init__(self, raw: RawTxn, owner_of: OwnerOf, cache: CommitCache = _NO_CACHE) -> None:
        """`owner_of` names the owner of an entry in errors; a write transaction has no `cache`."""
        self.raw = raw
        self.cache = cache
        self._owner_of = owner_of
        # The last content is kept, because callers read several parts of one content in turn.
        self._content: Content | None = None

    def get(self, key: bytes, db: Database) -> memoryview | None:
        """Returns a key's value, or None. Raises DataLoss if it differs from what was stored."""
        value = self._read_stored(key, db)
        return None if value is None else self.checked(key, value, db)

    def get_sound(self, key: bytes, db: Database) -> memoryview | None:
        """Returns a key's value; None if there is none or if it is damaged."""
        try:
            value = self._read_raw(key, db)
        except DamagedContent:
            return None
        return None if value is None else self._data_if_sound(key, value, db)

    def has(self, key: bytes, db: Database) -> bool:
        """Returns True if the key exists; does not check its value."""
        try:
            return self._read_raw(key, db) is not None
        except DamagedContent:
            return True

    def checksum(self, key: bytes, db: Database) -> bytes:
        """Returns the checksum stored with a key's value, or b"" if there is no value.

        Does not check the value. Equal checksums under a key mean equal values.
        """
        value = self._read_stored(key, db)
        return b"" if value is None else bytes(value[-SUM_BYTES:])

    def get_again(self, key: bytes, db: Database) -> memoryview | None:
        """Returns a value without checking it, because the caller checked it a short time ago."""
        value = self._read_stored(key, db)
        if value is None:
            return None
        return value[: data_bytes(len(value))] if db.blocks else value[:-SUM_BYTES]

    def get_blocks(
        self, key: bytes, db: Database, checked: bytearray | None = None
    ) -> Blocks | None:
        """Returns a value that is stored in blocks, or None; its blocks are checked on demand.

        `checked` marks the blocks that were checked a short time ago; see `Blocks`.
        """
        value = self._read_stored(key, db)
        return None if value is None else self._open_blocks(key, value, db, checked)

    def again(self, blocks: Blocks, key: bytes, db: Database) -> Blocks:
        """Returns `blocks` for use in this transaction.

        Another transaction that sees the same commit got them from `get_blocks`.
        """
        return blocks.reporting(partial(self._raise_damage, key, db))

    def checked(self, key: Buffer, value: memoryview, db: Database) -> memoryview:
        """Checks an entry as LMDB stores it and returns its data without checksums.

        Raises DataLoss.
        """
        if not db.checked:
            return value
        if db.blocks:
            return self._open_blocks(key, value, db).check_all()
        data = verified(value, seed_of(key, db.seed))
        if data is None:
            self._raise_damage(bytes(key), db)
        return data

    def is_sound(self, key: Buffer, value: memoryview, db: Database) -> bool:
        """Returns True if an entry matches its checksums."""
        if not db.checked:
            return True
        seed = seed_of(key, db.seed)
        return are_verified(value, seed) if db.blocks else verified(value, seed) is not None

    def put(self, key: bytes, data: Buffer, db: Database, append: bool = False) -> None:
        """Stores a value with its checksum. `append` is as in `lmdb.Transaction.put`."""
        if db.checked:
            data = b"".join((data, _checksums(key, data, db)))
        self._content = None
        self.raw.put(key[: db.key_bytes], data, db=db.handle, append=append)

    def put_content(
        self, address: bytes, parts: Sequence[tuple[Database, Buffer]], append: bool = False
    ) -> None:
        """Stores the content of a document: its tree, text and vectors, with their checksums.

        Replaces the content that the slot has. `content` describes the form in which it is
        stored; `append` is as in `lmdb.Transaction.put`.
        """
        self._content = None
        sealed = [(data, _checksums(address, data, db)) for db, data in parts]
        slot, handle = address[: schema.SLOT_BYTES], parts[0][0].handle
        values = content.cut(content.joined(sealed, address))
        for number, value in enumerate(values):
            self.raw.put(content.value_key(slot, number), value, db=handle, append=append)
        surplus = len(values)
        while not append and self.raw.delete(content.value_key(slot, surplus), db=handle):
            surplus += 1

    def delete_content(self, slot: bytes, db: Database) -> None:
        """Deletes all values under a packed slot in the database of contents."""
        self._content = None
        with self.raw.cursor(db=db.handle) as cursor:
            cursor.set_range(slot)
            while cursor.key()[: len(slot)] == slot:
                cursor.delete()

    def delete(self, key: bytes, value: bytes = b"", *, db: Database) -> bool:
        """Deletes a key, or one of its values; returns True if it existed."""
        self._content = None
        return bool(self.raw.delete(key[: db.key_bytes], value, db=db.handle))

    def cursor(self, db: Database) -> Any:
        """Returns LMDB's cursor; it does not check values."""
        return self.raw.cursor(db=db.handle)

    def stat(self, db: Database) -> dict[str, int]:
        """Returns LMDB's statistics of a database."""
        statistics: dict[str, int] = self.raw.stat(db.handle)  # type: ignore[assignment]
        return statistics

    def entries(
        self, db: Database, prefix: bytes = b"", start: bytes = b""
    ) -> Iterator[tuple[memoryview, memoryview]]:
        """Yields the entries whose key begins with `prefix`, in order, from the key `start` on.

        Values are as LMDB stores them: with checksums, and not checked.
        """
        with self.cursor(db) as cursor:
            if not cursor.set_range(max(prefix, start)):
                return
            for key, value in cursor.iternext():
                if key[: len(prefix)] != prefix:
                    return
                yield key, value

    def sound_entries(
        self, db: Database, prefix: bytes = b"", start: bytes = b""
    ) -> Iterator[tuple[memoryview, memoryview]]:
        """Yields entries like `entries`, but checks them and skips damaged ones.

        The values have no checksums.
        """
        for key, stored in self.entries(db, prefix, start):
            value = self._data_if_sound(key, stored, db)
            if value is not None:
                yield key, value

    def _read_stored(self, key: bytes, db: Database) -> memoryview | None:
        """Returns a key's value with its checksums, which are not checked, or None.

        Raises DataLoss if the header of a document's content is damaged.
        """
        try:
            return self._read_raw(key, db)
        except DamagedContent:
            self._raise_damage(key, db)

    def _read_raw(self, key: bytes, db: Database) -> memoryview | None:
        """Returns the same as `_read_stored`, but raises DamagedContent instead of DataLoss."""
        if db.part is not None:
            stored_content = self._read_content(key, db, db.part)
            return None if stored_content is None else stored_content.part(db.part)
        return self.raw.get(key[: db.key_bytes], db=db.handle)

    def _read_content(self, address: bytes, db: Database, part: int) -> Content | None:
        """Returns a document's content with at least `part`, or None if it has no content.

        Reads only the first value if the part is inside it, else all values.
        """
        loaded, first_key = self._content, content.value_key(address[: schema.SLOT_BYTES], 0)
        if loaded is None or loaded.address != address:
            first = self.raw.get(first_key, db=db.handle)
            if first is None:
                return None
            loaded = self._content = Content(address, first)
        if len(loaded.data) < loaded.needed_bytes(part):
            values = [loaded.data]
            missing_bytes = loaded.size_bytes - len(loaded.data)
            with self.raw.cursor(db=db.handle) as cursor:
                cursor.set_key(first_key)
                while missing_bytes > 0 and cursor.next():
                    values.append(cursor.value())
                    missing_bytes -= len(values[-1])
            loaded.data = memoryview(b"".join(values))
        return loaded

    def _data_if_sound(self, key: Buffer, value: memoryview, db: Database) -> memoryview | None:
        return self.checked(key, value, db) if self.is_sound(key, value, db) else None

    def _open_blocks(
        self, key: Buffer, value: memoryview, db: Database, checked: bytearray | None = None
    ) -> Blocks:
        key = bytes(key)
        damaged = partial(self._raise_damage, key, db)
        return Blocks(value, partial(seed_of, key, db.seed), damaged, checked)

    def _raise_damage(self, key: bytes, db: Database) -> NoReturn:
        raise DataLoss(
            f"{self._owner_of(self, db.name, key)} is damaged: its entry in {db.name!r} does "
            f"not match its checksum; {schema.remedy(db.name)}; `hrag check` finds all damage"
        )
