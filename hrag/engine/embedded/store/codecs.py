"""Codecs of the tables' keys and values: pure functions between Python values and stored bytes.

The module `schema` describes the bytes. The module `transactions` says which table uses which
codecs. The codecs use neither LMDB nor checksums.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, NamedTuple, NoReturn, TypeVar

from hrag.engine.common.records import CollectionRecord, DocumentRecord, Summarised, Usage
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.checksums import Buffer
from hrag.engine.embedded.store.lmdb_records import Change, Counters, SegmentRecord

K = TypeVar("K")
V = TypeVar("V")
G = TypeVar("G")


@dataclass(frozen=True, slots=True)
class KeyCodec(Generic[K, G]):
    """Converts the keys of a table between Python values and bytes.

    `pack` encodes a key as bytes, and `unpack` decodes the bytes. The keys of some tables are
    grouped: each key begins with its group, which is a collection id or a tenant. `prefix` returns
    the bytes with which all keys of a group begin. In a table without groups, the group is None.
    """

    pack: Callable[[K], bytes]
    unpack: Callable[[Buffer], K]
    prefix: Callable[[G], bytes]
    lmdb_bytes: int | None = None
    """LMDB stores this many bytes from the start of an encoded key; None means all bytes.

    The other bytes identify the document that the value belongs to. They are not stored, but the
    seed of the value's checksum depends on them.
    """


@dataclass(frozen=True, slots=True)
class ValueCodec(Generic[V]):
    """Converts the values of a table between Python values and bytes.

    `encode` encodes a value as bytes, and `decode` decodes the bytes. `decode` copies them, so a
    decoded value stays valid after the end of the transaction.
    """

    encode: Callable[[V], Buffer]
    decode: Callable[[memoryview], V]


class CollectionName(NamedTuple):
    """The value of a collection's name or alias in the database `collection_names`.

    `collection` is the collection's id. `is_alias` is True for an alias.
    """

    collection: int
    is_alias: bool = False


class DocumentEntry(NamedTuple):
    """The leaf count of a document, and its slot: the key under which LMDB stores the document.

    The slot is encoded as bytes.
    """

    leaf_count: int
    slot: bytes


# The following codecs convert the keys of tables. Text that is not UTF-8 can only come from a
# damaged key. It is decoded with "surrogateescape", so that encoding it again returns the same
# bytes.


def _no_prefix(_: None) -> bytes:
    return b""


def _text(packed: Buffer) -> str:
    return str(packed, "utf-8", "surrogateescape")


def _unpack_name(packed: Buffer) -> tuple[str, str]:
    tenant_id, _, name = _text(packed).partition("\0")
    return tenant_id, name


def _unpack_document_id(packed: Buffer) -> tuple[int, str]:
    collection = schema.read_u32(packed[: schema.COLLECTION_BYTES])
    return collection, _text(packed[schema.COLLECTION_BYTES :])


def _refuse_slot(_: Buffer) -> NoReturn:
    raise TypeError("the address cannot be decoded: LMDB stores only a part of it as the key")


NAME: KeyCodec[bytes, None] = KeyCodec(bytes, bytes, _no_prefix)
"""The name of a value in the database `meta`."""
CURSOR: KeyCodec[int, None] = KeyCodec(schema.u64, schema.read_u64, _no_prefix)
"""The position of an entry in the list of commits."""
COLLECTION: KeyCodec[int, int] = KeyCodec(schema.u32, schema.read_u32, schema.u32)
"""A collection id. Each key is a group of its own."""
IN_COLLECTION: KeyCodec[tuple[int, int], int] = KeyCodec(
    schema.key_in_collection, schema.read_in_collection, schema.u32
)
"""A collection id, and an ordinal or a sequence number; grouped by collection."""
DOCUMENT_ID: KeyCodec[tuple[int, str], int] = KeyCodec(
    lambda key: schema.document_id(*key), _unpack_document_id, schema.u32
)
"""A collection id and the id of one of the collection's documents; grouped by collection."""
COLLECTION_NAME: KeyCodec[tuple[str, str], str] = KeyCodec(
    lambda key: schema.collection_name(*key),
    _unpack_name,
    lambda tenant_id: schema.collection_name(tenant_id, ""),
)
"""A tenant and the name or alias of a collection; grouped by tenant."""
TENANT: KeyCodec[str, None] = KeyCodec(schema.tenant, _text, _no_prefix)
"""A tenant id."""
SLOT: KeyCodec[bytes, None] = KeyCodec(bytes, bytes, _no_prefix)
"""A slot, the key under which LMDB stores a document. It is encoded as bytes already."""
ADDRESS: KeyCodec[bytes, None] = KeyCodec(bytes, _refuse_slot, _no_prefix, schema.SLOT_BYTES)
"""The address of a document, of which LMDB stores only the first part; see `schema.address`."""


# The following codecs convert the values of tables.


@lru_cache(maxsize=1024)
def _decode_collection(value: bytes) -> CollectionRecord:
    """Decodes a collection's record.

    The result is cached, because every change of a document reads the record of its collection,
    and that record rarely changes.
    """
    return CollectionRecord.from_bytes(value)


def _encode_name(name: CollectionName) -> bytes:
    return schema.alias(name.collection) if name.is_alias else schema.u32(name.collection)


BYTES: ValueCodec[bytes] = ValueCodec(bytes, bytes)
U32: ValueCodec[int] = ValueCodec(schema.u32, schema.read_u32)
U64: ValueCodec[int] = ValueCodec(schema.u64, schema.read_u64)
NAMED_COLLECTION: ValueCodec[CollectionName] = ValueCodec(
    _encode_name, lambda value: CollectionName(*schema.read_name(value))
)
COLLECTION_RECORD: ValueCodec[CollectionRecord] = ValueCodec(
    CollectionRecord.to_bytes, lambda value: _decode_collection(bytes(value))
)
COUNTERS: ValueCodec[Counters] = ValueCodec(Counters.to_bytes, Counters.from_bytes)
USAGE: ValueCodec[Usage] = ValueCodec(Usage.to_bytes, Usage.from_bytes)
DOCUMENT_ENTRY: ValueCodec[DocumentEntry] = ValueCodec(
    lambda entry: schema.document_entry(*entry),
    lambda value: DocumentEntry._make(schema.read_document_entry(value)),
)
DOCUMENT_RECORD: ValueCodec[DocumentRecord] = ValueCodec(
    DocumentRecord.to_short_bytes, DocumentRecord.from_bytes
)
CHANGE: ValueCodec[Change] = ValueCodec(Change.to_bytes, Change.from_bytes)
SEGMENT_RECORD: ValueCodec[SegmentRecord] = ValueCodec(
    SegmentRecord.to_bytes, SegmentRecord.from_bytes
)
SUMMARISED: ValueCodec[Summarised] = ValueCodec(Summarised.to_bytes, Summarised.from_bytes)
