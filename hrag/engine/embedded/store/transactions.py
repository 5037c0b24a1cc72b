"""A transaction whose values carry checksums.

What is written gets a checksum, what is read is checked: a flipped bit raises DataLoss with
the name of the document, never a wrong value. `Database` says how the values of each database
are protected; see `schema`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, TypeAlias

import lmdb

from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.checksums import (
    SUM_BYTES,
    Blocks,
    Buffer,
    are_verified,
    data_bytes,
    seed_of,
    verified,
    with_block_checksums,
    with_checksum,
)
from hrag.errors import DataLoss

RawTxn: TypeAlias = "lmdb.Transaction[memoryview]"
OwnerOf: TypeAlias = "Callable[[Txn, str, bytes], str]"
"""Names the owner of an entry by its database and key; does not trust any value."""


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

    @classmethod
    def of(cls, name: str, handle: Any) -> "Database":
        """The database with this name of `schema.DATABASES`."""
        return cls(
            name,
            handle,
            seed_of(name.encode(), 0),
            schema.SLOT_BYTES if name in schema.BY_SLOT else None,
            name not in schema.WITHOUT_CHECKSUM,
            name in schema.IN_BLOCKS,
        )


class Txn:
    """An LMDB transaction; its values are checked, and live as long as it does."""

    __slots__ = ("_owner_of", "raw")

    def __init__(self, raw: RawTxn, owner_of: OwnerOf) -> None:
        """`owner_of` says whose an entry is, for errors."""
        self.raw = raw
        self._owner_of = owner_of

    def get(self, key: bytes, db: Database) -> memoryview | None:
        """Returns a key's value, or None. Raises DataLoss if it is not what was stored."""
        value = self.raw.get(key[: db.key_bytes], db=db.handle)
        return None if value is None else self.checked(key, value, db)

    def get_sound(self, key: bytes, db: Database) -> memoryview | None:
        """Returns a key's value; None if there is none, or it is not what was stored."""
        value = self.raw.get(key[: db.key_bytes], db=db.handle)
        return None if value is None else self._sound(key, value, db)

    def has(self, key: bytes, db: Database) -> bool:
        """Whether there is such a key; its value is not checked."""
        return self.raw.get(key[: db.key_bytes], db=db.handle) is not None

    def checksum(self, key: bytes, db: Database) -> bytes:
        """Returns the checksum behind a key's value, b"" without a value; it is not checked.

        Equal checksums under a key mean equal values.
        """
        value = self.raw.get(key[: db.key_bytes], db=db.handle)
        return b"" if value is None else bytes(value[-SUM_BYTES:])

    def get_again(self, key: bytes, db: Database) -> memoryview | None:
        """Returns a value that was checked a short while ago, and does not check it."""
        value = self.raw.get(key[: db.key_bytes], db=db.handle)
        if value is None:
            return None
        return value[: data_bytes(len(value))] if db.blocks else value[:-SUM_BYTES]

    def get_blocks(
        self, key: bytes, db: Database, checked: bytearray | None = None
    ) -> Blocks | None:
        """Returns a value that is stored in blocks, to be checked where it is read.

        `checked` says which blocks were checked a short while ago, see `Blocks`.
        """
        value = self.raw.get(key[: db.key_bytes], db=db.handle)
        return None if value is None else self._blocks(key, value, db, checked)

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
            seal = with_block_checksums if db.blocks else with_checksum
            data = seal(data, seed_of(key, db.seed))  # type: ignore[arg-type]
        self.raw.put(key[: db.key_bytes], data, db=db.handle, append=append)

    def delete(self, key: bytes, value: bytes = b"", *, db: Database) -> bool:
        """Deletes a key, or one of its values; returns whether it was there."""
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
        self, db: Database, prefix: bytes = b""
    ) -> Iterator[tuple[memoryview, memoryview]]:
        """Yields the keys with `prefix` and their values, in order, but for damaged ones."""
        for key, stored in self.entries(db, prefix):
            value = self._sound(key, stored, db)
            if value is not None:
                yield key, value

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
