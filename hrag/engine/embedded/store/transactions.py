"""A transaction whose values carry checksums.

What is written gets a checksum, what is read is checked: a flipped bit raises DataLoss with
the name of the document, never a wrong value. `Database` says how the values of each database
are protected; see `schema`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
"""Names the owner of an entry by its database and key; does not trust any value."""
_NO_CACHE = NoCache()


@dataclass(frozen=True, slots=True)
class Database:
    """One LMDB database: its handle, and how its values are protected."""

    name: str
    handle: Any
    seed: int
    key_bytes: int | None
    """Only so much of a key is LMDB's; the rest says whose the value is."""
    checked: bool
    blocks: bool
    part: int | None
    """Of a document's content, whose place in it this is, see `content`."""
    contents: Any
    """The handle of the database that has the contents of documents."""

    @classmethod
    def of(cls, name: str, handle: Any, others: "Mapping[str, Database]") -> "Database":
        """The database with this name of `schema.DATABASES`, of which `others` come first."""
        contents = others.get(schema.CONTENTS)
        return cls(
            name,
            handle,
            seed_of(name.encode(), 0),
            schema.SLOT_BYTES if name in schema.BY_SLOT else None,
            name not in schema.WITHOUT_CHECKSUM,
            name in schema.IN_BLOCKS,
            content.PARTS.index(name) if name in content.PARTS else None,
            handle if contents is None else contents.handle,
        )


def _checksums(key: bytes, data: Buffer, db: Database) -> bytes:
    """What is stored behind the data of an entry."""
    return (block_checksums_of if db.blocks else checksum_of)(data, seed_of(key, db.seed))


class Txn:
    """An LMDB transaction; its values are checked, and live as long as it does.

    `cache` has what transactions that see the same commit have read.
    """

    __slots__ = ("_content", "_owner_of", "cache", "raw")

    def __init__(self, raw: RawTxn, owner_of: OwnerOf, cache: CommitCache = _NO_CACHE) -> None:
        """`owner_of` says whose an entry is, for errors; a writer has no `cache`."""
        self.raw = raw
        self.cache = cache
        self._owner_of = owner_of
        self._content: Content | None = None  # Several parts of one are read in turn.

    def get(self, key: bytes, db: Database) -> memoryview | None:
        """Returns a key's value, or None. Raises DataLoss if it is not what was stored."""
        value = self._stored(key, db)
        return None if value is None else self.checked(key, value, db)

    def get_sound(self, key: bytes, db: Database) -> memoryview | None:
        """Returns a key's value; None if there is none, or it is not what was stored."""
        try:
            value = self._found(key, db)
        except DamagedContent:
            return None
        return None if value is None else self._sound(key, value, db)

    def has(self, key: bytes, db: Database) -> bool:
        """Whether there is such a key; its value is not checked."""
        try:
            return self._found(key, db) is not None
        except DamagedContent:
            return True

    def checksum(self, key: bytes, db: Database) -> bytes:
        """Returns the checksum behind a key's value, b"" without a value; it is not checked.

        Equal checksums under a key mean equal values.
        """
        value = self._stored(key, db)
        return b"" if value is None else bytes(value[-SUM_BYTES:])

    def get_again(self, key: bytes, db: Database) -> memoryview | None:
        """Returns a value that was checked a short while ago, and does not check it."""
        value = self._stored(key, db)
        if value is None:
            return None
        return value[: data_bytes(len(value))] if db.blocks else value[:-SUM_BYTES]

    def get_blocks(
        self, key: bytes, db: Database, checked: bytearray | None = None
    ) -> Blocks | None:
        """Returns a value that is stored in blocks, to be checked where it is read.

        `checked` says which blocks were checked a short while ago, see `Blocks`.
        """
        value = self._stored(key, db)
        return None if value is None else self._blocks(key, value, db, checked)

    def again(self, blocks: Blocks, key: bytes, db: Database) -> Blocks:
        """Returns what `get_blocks` of another transaction of this commit returned."""
        return blocks.reporting(partial(self._damaged, key, db))

    def checked(self, key: Buffer, value: memoryview, db: Database) -> memoryview:
        """Returns the data of an entry as LMDB holds it. Raises DataLoss."""
        if not db.checked:
            return value
        if db.blocks:
            return self._blocks(key, value, db).check_all()
        data = verified(value, seed_of(key, db.seed))
        if data is None:
            self._damaged(bytes(key), db)
        return data

    def is_sound(self, key: Buffer, value: memoryview, db: Database) -> bool:
        """Whether an entry is what was stored."""
        if not db.checked:
            return True
        seed = seed_of(key, db.seed)
        return are_verified(value, seed) if db.blocks else verified(value, seed) is not None

    def put(self, key: bytes, data: Buffer, db: Database, append: bool = False) -> None:
        """Stores a value with its checksum. See `lmdb.Transaction.put`."""
        if db.checked:
            data = b"".join((data, _checksums(key, data, db)))
        self._content = None
        self.raw.put(key[: db.key_bytes], data, db=db.handle, append=append)

    def put_content(
        self, address: bytes, parts: Sequence[tuple[Database, Buffer]], append: bool = False
    ) -> None:
        """Stores the content of a document: its tree, text and vectors, with their checksums.

        Takes the place of the content that the slot has. See `content` for how, and
        `lmdb.Transaction.put`.
        """
        self._content = None
        sealed = [(data, _checksums(address, data, db)) for db, data in parts]
        slot, handle = address[: schema.SLOT_BYTES], parts[0][0].contents
        values = content.cut(content.joined(sealed, address))
        for number, value in enumerate(values):
            self.raw.put(content.value_key(slot, number), value, db=handle, append=append)
        left = len(values)
        while not append and self.raw.delete(content.value_key(slot, left), db=handle):
            left += 1

    def has_content(self, address: bytes, db: Database) -> bool:
        """Whether tree, text and vectors of a document are stored as one content."""
        key = content.value_key(address[: schema.SLOT_BYTES], 0)
        return self.raw.get(key, db=db.contents) is not None

    def delete_content(self, slot: bytes, db: Database) -> None:
        """Deletes what a packed slot has in the database of contents."""
        self._content = None
        with self.raw.cursor(db=db.contents) as cursor:
            cursor.set_range(slot)
            while cursor.key()[: len(slot)] == slot:
                cursor.delete()

    def delete(self, key: bytes, value: bytes = b"", *, db: Database) -> bool:
        """Deletes a key, or one of its values; returns whether it was there."""
        self._content = None
        return bool(self.raw.delete(key[: db.key_bytes], value, db=db.handle))

    def cursor(self, db: Database) -> Any:
        """Returns LMDB's cursor, whose values are not checked."""
        return self.raw.cursor(db=db.handle)

    def stat(self, db: Database) -> dict[str, int]:
        """Returns LMDB's statistics of a database."""
        found: dict[str, int] = self.raw.stat(db.handle)  # type: ignore[assignment]
        return found

    def entries(
        self, db: Database, prefix: bytes = b"", start: bytes = b""
    ) -> Iterator[tuple[memoryview, memoryview]]:
        """Yields entries as LMDB holds them, with `prefix`, in order, from `start` on."""
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
        """Yields keys and values as `entries` does, without checksums, but for damaged ones."""
        for key, stored in self.entries(db, prefix, start):
            value = self._sound(key, stored, db)
            if value is not None:
                yield key, value

    def _stored(self, key: bytes, db: Database) -> memoryview | None:
        """Returns a key's value as LMDB holds it, with its checksums. Raises DataLoss."""
        try:
            return self._found(key, db)
        except DamagedContent:
            self._damaged(key, db)

    def _found(self, key: bytes, db: Database) -> memoryview | None:
        """As `_stored`; raises DamagedContent."""
        if db.part is not None:
            found = self._content_of(key, db, db.part)
            if found is not None:
                return found.part(db.part)
        return self.raw.get(key[: db.key_bytes], db=db.handle)

    def _content_of(self, address: bytes, db: Database, part: int) -> Content | None:
        """A document's content, all of it where its first value lacks the part; None without."""
        found, first_key = self._content, content.value_key(address[: schema.SLOT_BYTES], 0)
        if found is None or found.address != address:
            first = self.raw.get(first_key, db=db.contents)
            if first is None:
                return None
            found = self._content = Content(address, first)
        if len(found.held) < found.needed_bytes(part):
            values = [found.held]
            missing_bytes = found.size_bytes - len(found.held)
            with self.raw.cursor(db=db.contents) as cursor:
                cursor.set_key(first_key)
                while missing_bytes > 0 and cursor.next():
                    values.append(cursor.value())
                    missing_bytes -= len(values[-1])
            found.held = memoryview(b"".join(values))
        return found

    def _sound(self, key: Buffer, value: memoryview, db: Database) -> memoryview | None:
        return self.checked(key, value, db) if self.is_sound(key, value, db) else None

    def _blocks(
        self, key: Buffer, value: memoryview, db: Database, checked: bytearray | None = None
    ) -> Blocks:
        key = bytes(key)
        damaged = partial(self._damaged, key, db)
        return Blocks(value, partial(seed_of, key, db.seed), damaged, checked)

    def _damaged(self, key: bytes, db: Database) -> NoReturn:
        raise DataLoss(
            f"{self._owner_of(self, db.name, key)} is damaged: its entry in {db.name!r} does "
            f"not match its checksum; {schema.remedy(db.name)}; `hrag check` finds all damage"
        )
