"""A transaction, with every table of the store as an attribute.

Each table has codecs, which convert its keys and values to bytes. The module `schema` describes the
stored bytes.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, TypeAlias

from hrag.engine.embedded.store import codecs, schema
from hrag.engine.embedded.store.commit_cache import CommitCache, NoCache
from hrag.engine.embedded.store.content import Content
from hrag.engine.embedded.store.content_table import ContentField
from hrag.engine.embedded.store.metadata_terms import TermField, TermTable
from hrag.engine.embedded.store.originals import OriginalField
from hrag.engine.embedded.store.tables import (
    Database,
    Keys,
    KeySetField,
    RawTxn,
    Table,
    TableField,
)
from hrag.values.errors import DataLoss

OwnerOf: TypeAlias = "Callable[[Txn, str, bytes], str]"
"""Returns the name of the document or collection to which an entry belongs.

The arguments are a transaction, the database's name and the encoded key. Raises no error if stored
values are damaged."""
_NO_CACHE = NoCache()


class Txn:
    """An LMDB transaction, with every table of the store as an attribute.

    Values that are returned without a copy are valid until the transaction ends. `cache` contains
    values that were read earlier, in any transaction that sees the same commit.
    """

    __slots__ = ("_owner_of", "cache", "databases", "last_content", "raw")

    meta = TableField("meta", codecs.NAME, codecs.BYTES)
    collection_names = TableField(
        "collection_names", codecs.COLLECTION_NAME, codecs.NAMED_COLLECTION
    )
    collections = TableField("collections", codecs.COLLECTION, codecs.COLLECTION_RECORD)
    counters = TableField("counters", codecs.COLLECTION, codecs.COUNTERS)
    tenants = TableField("tenants", codecs.TENANT, codecs.USAGE)
    deleted_collections = KeySetField("deleted_collections", codecs.COLLECTION)
    document_ids = TableField("document_ids", codecs.DOCUMENT_ID, codecs.U64)
    ordinals = TableField("ordinals", codecs.IN_COLLECTION, codecs.DOCUMENT_ENTRY)
    documents = TableField("documents", codecs.ADDRESS, codecs.DOCUMENT_RECORD)
    contents = ContentField()
    originals = OriginalField()
    free_slots = KeySetField("free_slots", codecs.SLOT)
    terms = TermField()
    changes = TableField("changes", codecs.IN_COLLECTION, codecs.CHANGE)
    commits = TableField("commits", codecs.CURSOR, codecs.U32)
    segments = TableField("segments", codecs.IN_COLLECTION, codecs.SEGMENT_RECORD)
    deleted_leaves = TableField("deleted_leaves", codecs.IN_COLLECTION, codecs.U64)
    tombstones = TableField("tombstones", codecs.IN_COLLECTION, codecs.U32)
    unsummarised = KeySetField("unsummarised", codecs.IN_COLLECTION)
    summarised = TableField("summarised", codecs.IN_COLLECTION, codecs.SUMMARISED)

    def __init__(
        self,
        raw: RawTxn,
        databases: dict[str, Database],
        owner_of: OwnerOf,
        cache: CommitCache = _NO_CACHE,
    ) -> None:
        """Wraps LMDB's transaction `raw`.

        `owner_of` is a function that returns the name of the document or collection to which an
        entry belongs, for error messages. Do not pass a `cache` for a write transaction, because
        the transaction changes what it reads.
        """
        self.raw = raw
        self.databases = databases
        self.cache = cache
        # The text, tree and vectors of the document that was read last. Callers often read tree and
        # text one after another; then the document's LMDB values need to be joined only once.
        self.last_content: Content | None = None
        self._owner_of = owner_of

    def number(self, name: bytes) -> int:
        """Returns the integer that the database `meta` has under `name`; 0 if there is none."""
        value = self.meta.get(name)
        return 0 if value is None else schema.read_u64(value)

    def put_number(self, name: bytes, number: int) -> None:
        """Stores an integer in the database `meta` under `name`."""
        self.meta.put(name, schema.u64(number))

    def next_number(self, name: bytes) -> int:
        """Increments the integer in the database `meta` under `name`; returns the new value."""
        number = self.number(name) + 1
        self.put_number(name, number)
        return number

    def entry_counts(self) -> dict[str, int]:
        """Returns a dictionary from the name of each LMDB database to the count of its entries."""
        return {
            name: self.raw.stat(database.handle)["entries"]
            for name, database in self.databases.items()
        }

    def page_bytes(self) -> int:
        """Returns the bytes of the pages that the LMDB databases occupy, without free pages."""
        stats = [self.raw.stat(database.handle) for database in self.databases.values()]
        return sum(
            stat["psize"] * (stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"])
            for stat in stats
        )

    def tables(self) -> Iterator[Table[Any, Any, Any]]:
        """Yields each attribute of this object that is a `Table`, in the order of `DATABASES`.

        Skips each `KeySet`, because it has no values. Skips `contents`, `originals` and `terms`,
        because their checksums are not stored as in a `Table`.
        """
        for name in schema.DATABASES:
            table = getattr(self, name, None)
            if isinstance(table, Table):
                yield table

    def tables_by_collection(self) -> "Sequence[Keys[Any, int] | TermTable]":
        """Returns the tables whose keys begin with a collection id."""
        return [getattr(self, name) for name in schema.BY_COLLECTION]

    def raise_damage(self, database: str, key: bytes) -> NoReturn:
        """Raises DataLoss with the message that an entry does not match its checksum.

        `database` is the name of the entry's database, and `key` is the entry's encoded key.
        """
        raise DataLoss(
            f"{self._owner_of(self, database, key)} is damaged: its entry in {database!r} does "
            f"not match its checksum; {schema.remedy(database)}; `hrag check` finds all damage"
        )
