"""Tables: LMDB databases with typed keys and values, seen through one transaction.

Every value of a table ends with a checksum, which is added when the value is written and verified
when the value is read. If a bit has flipped, reading the value raises DataLoss with a message that
names the document. So a wrong value is never returned. The module `transactions` lists all tables
with the types of their keys and values.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, Protocol, Self, TypeAlias, TypeVar, overload

import lmdb

from hrag.engine.embedded.store.checksums import (
    SUM_BYTES,
    Buffer,
    checksum_of,
    seed_of,
    verified,
)
from hrag.engine.embedded.store.codecs import KeyCodec, ValueCodec
from hrag.engine.embedded.store.content import Content
from hrag.values.errors import DataLoss

RawTxn: TypeAlias = "lmdb.Transaction[memoryview]"

K = TypeVar("K")
V = TypeVar("V")
G = TypeVar("G")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Database:
    """An open LMDB database: its name, its handle, and the seed of the checksums in it."""

    name: str
    handle: Any
    seed: int

    @classmethod
    def of(cls, name: str, handle: Any) -> "Database":
        """Creates a Database and computes its seed from `name`, one of `schema.DATABASES`.

        `handle` is the handle with which the package lmdb identifies the database.
        """
        return cls(name, handle, seed_of(name.encode(), 0))


class TableTxn(Protocol):
    """A transaction, with the attributes and methods that tables need."""

    @property
    def raw(self) -> RawTxn:
        """The transaction object of the package lmdb."""

    @property
    def databases(self) -> "dict[str, Database]":
        """A dictionary from the name of each LMDB database to the open database."""

    last_content: Content | None
    """The text, tree and vectors of the document that was read last, as far as they were read.

    Every write sets the attribute to None, because LMDB may then move pages.
    """

    def raise_damage(self, database: str, key: bytes) -> NoReturn:
        """Raises DataLoss with the message that an entry does not match its checksum.

        `database` is the name of the entry's database, and `key` is the entry's encoded key.
        """


def required(value: Value | None) -> Value:
    """Returns `value`, which was read from the store. Raises DataLoss if it is None.

    The caller knows that the value must exist, because another entry of the store refers to it.
    """
    if value is None:
        raise DataLoss("the store is damaged: an entry is missing; `hrag check` names the entry")
    return value


def stored_entries(
    txn: TableTxn, database: Database, prefix: bytes = b"", start: bytes = b""
) -> Iterator[tuple[memoryview, memoryview]]:
    """Yields the keys and values of a database, as bytes, in order of key.

    Yields only keys that begin with `prefix`, and skips keys that are less than `start`. Each value
    ends with its checksum, which is not verified.
    """
    with txn.raw.cursor(db=database.handle) as cursor:
        if not cursor.set_range(max(prefix, start)):
            return
        for key, value in cursor.iternext():
            if key[: len(prefix)] != prefix:
                return
            yield key, value


class Keys(Generic[K, G]):
    """The keys of a table.

    If a method is called with a `group`, a collection id or a tenant, it reads only keys that begin
    with this collection id or tenant. Else it reads all keys. If a method is called with a `start`,
    it skips keys that are less than `start`.
    """

    __slots__ = ("_codec", "_database", "_txn")

    def __init__(self, txn: TableTxn, database: Database, codec: KeyCodec[K, G]) -> None:
        self._txn = txn
        self._database = database
        self._codec = codec

    @property
    def name(self) -> str:
        """The name of the LMDB database."""
        return self._database.name

    @property
    def size(self) -> int:
        """The count of all entries of the table."""
        statistics: dict[str, int] = self._txn.raw.stat(self._database.handle)  # type: ignore[assignment]
        return statistics["entries"]

    def has(self, key: K) -> bool:
        """Returns True if the key exists. Does not verify the value under the key."""
        packed = self._codec.pack(key)[: self._codec.lmdb_bytes]
        return self._txn.raw.get(packed, db=self._database.handle) is not None

    def keys(self, group: G | None = None, *, start: K | None = None) -> Iterator[K]:
        """Yields the keys in order. Does not verify the values under the keys."""
        unpack = self._codec.unpack
        for key, _ in self.stored(group, start=start):
            yield unpack(key)

    def count(self, group: G) -> int:
        """Returns how many entries of this table belong to `group`, a collection id or a tenant."""
        return sum(1 for _ in self.stored(group))

    def delete(self, key: K) -> bool:
        """Deletes a key and its value. Returns True if the key existed."""
        self._txn.last_content = None
        packed = self._codec.pack(key)[: self._codec.lmdb_bytes]
        return bool(self._txn.raw.delete(packed, db=self._database.handle))

    def clear(self, group: G) -> None:
        """Deletes all entries of this table that belong to `group`, a collection id or a tenant.

        Damaged entries are deleted too.
        """
        self._txn.last_content = None
        for key in {bytes(key) for key, _ in self.stored(group)}:
            self._txn.raw.delete(key, db=self._database.handle)

    def stored(
        self, group: G | None = None, *, start: K | None = None
    ) -> Iterator[tuple[memoryview, memoryview]]:
        """Yields the keys and values in order, as the bytes that LMDB stores.

        Each value ends with its checksum, which is not verified.
        """
        prefix = b"" if group is None else self._codec.prefix(group)
        first = b"" if start is None else self._codec.pack(start)
        return stored_entries(self._txn, self._database, prefix, first)


class KeySet(Keys[K, G]):
    """A table whose entries have empty values and therefore no checksums."""

    __slots__ = ()

    def add(self, key: K) -> None:
        """Adds a key. Does nothing if the key exists already."""
        self._txn.last_content = None
        self._txn.raw.put(self._codec.pack(key), b"", db=self._database.handle)


class Table(Keys[K, G], Generic[K, V, G]):
    """A table with a value for each key. Reading a damaged value raises DataLoss."""

    __slots__ = ("_value",)

    def __init__(
        self, txn: TableTxn, database: Database, codec: KeyCodec[K, G], value: ValueCodec[V]
    ) -> None:
        self._txn = txn
        self._database = database
        self._codec = codec
        self._value = value

    def get(self, key: K) -> V | None:
        """Returns a key's value, or None if the key does not exist.

        Raises DataLoss if the value is damaged.
        """
        data = self.get_data(key)
        return None if data is None else self._value.decode(data)

    def require(self, key: K) -> V:
        """Returns the value of a key to which another entry refers.

        Raises DataLoss if the key does not exist or its value is damaged.
        """
        return self._value.decode(required(self.get_data(key)))

    def get_data(self, key: K) -> memoryview | None:
        """Returns a key's encoded value without its checksum; None if the key does not exist.

        The returned memory is valid until the next write. Raises DataLoss if the value is damaged.
        """
        packed = self._codec.pack(key)
        database = self._database
        value = self._txn.raw.get(packed[: self._codec.lmdb_bytes], db=database.handle)
        if value is None:
            return None
        data = verified(value, seed_of(packed, database.seed))
        if data is None:
            self._txn.raise_damage(database.name, packed)
        return data

    def get_sound(self, key: K) -> V | None:
        """Returns a key's value; None if the key does not exist or its value is damaged."""
        packed = self._codec.pack(key)
        value = self._txn.raw.get(packed[: self._codec.lmdb_bytes], db=self._database.handle)
        data = None if value is None else self._data_if_sound(packed, value)
        return None if data is None else self._value.decode(data)

    def checksum(self, key: K) -> bytes:
        """Returns the checksum that is stored with a key's value, or b"" if there is no value.

        Does not verify the value. To learn whether the value of a key has changed, a caller can
        compare the checksum with an earlier checksum of this key.
        """
        packed = self._codec.pack(key)[: self._codec.lmdb_bytes]
        value = self._txn.raw.get(packed, db=self._database.handle)
        return b"" if value is None else bytes(value[-SUM_BYTES:])

    def put(self, key: K, value: V, *, append: bool = False) -> None:
        """Encodes a value and stores it under `key`.

        `append` may be True only if `key` is larger than all keys of the table; then LMDB need not
        search for the key's place. `append` is passed to `lmdb.Transaction.put`.
        """
        self.put_data(self._codec.pack(key), self._value.encode(value), append=append)

    def put_data(self, key: bytes, data: Buffer, *, append: bool = False) -> None:
        """Stores `data`, an encoded value, under `key`, an encoded key.

        The stored value ends with a checksum.
        """
        database = self._database
        value = b"".join((data, checksum_of(data, seed_of(key, database.seed))))
        self._txn.last_content = None
        lmdb_key = key[: self._codec.lmdb_bytes]
        self._txn.raw.put(lmdb_key, value, db=database.handle, append=append)

    def entries(self, group: G | None = None, *, start: K | None = None) -> Iterator[tuple[K, V]]:
        """Yields keys and values in order of key. Raises DataLoss at the first damaged value."""
        unpack, decode = self._codec.unpack, self._value.decode
        for key, value in self.stored(group, start=start):
            data = self._data_if_sound(key, value)
            if data is None:
                self._txn.raise_damage(self._database.name, bytes(key))
            yield unpack(key), decode(data)

    def values(self, group: G | None = None) -> Iterator[V]:
        """Yields values in order of key. Raises DataLoss at the first damaged value."""
        return (value for _, value in self.entries(group))

    def sound_entries(
        self, group: G | None = None, *, start: K | None = None
    ) -> Iterator[tuple[K, V]]:
        """Yields keys and values in order of key. Skips damaged values."""
        for key, value in self.stored(group, start=start):
            data = self._data_if_sound(key, value)
            if data is not None:
                yield self._codec.unpack(key), self._value.decode(data)

    def damaged(self) -> Iterator[bytes]:
        """Yields the encoded key of each value that does not match its checksum."""
        for key, value in self.stored():
            if self._data_if_sound(key, value) is None:
                yield bytes(key)

    def _data_if_sound(self, packed: Buffer, value: memoryview) -> memoryview | None:
        return verified(value, seed_of(packed, self._database.seed))


class KeySetField(Generic[K, G]):
    """The descriptor of an attribute of `Txn` whose value is a KeySet of the transaction.

    `name` is the name of the LMDB database.
    """

    def __init__(self, name: str, codec: KeyCodec[K, G]) -> None:
        self._name = name
        self._codec = codec

    @overload
    def __get__(self, txn: None, owner: type) -> Self: ...

    @overload
    def __get__(self, txn: TableTxn, owner: type) -> KeySet[K, G]: ...

    def __get__(self, txn: TableTxn | None, owner: type) -> Self | KeySet[K, G]:
        if txn is None:
            return self
        return KeySet(txn, txn.databases[self._name], self._codec)


class TableField(Generic[K, V, G]):
    """The descriptor of an attribute of `Txn` whose value is a Table of the transaction.

    `name` is the name of the LMDB database. The Table is created when the attribute is read. So a
    transaction that does not use a table takes no time to create it.
    """

    def __init__(self, name: str, codec: KeyCodec[K, G], value: ValueCodec[V]) -> None:
        self._name = name
        self._codec = codec
        self._value = value

    @overload
    def __get__(self, txn: None, owner: type) -> Self: ...

    @overload
    def __get__(self, txn: TableTxn, owner: type) -> Table[K, V, G]: ...

    def __get__(self, txn: TableTxn | None, owner: type) -> Self | Table[K, V, G]:
        if txn is None:
            return self
        return Table(txn, txn.databases[self._name], self._codec, self._value)
