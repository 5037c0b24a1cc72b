"""Lists every LMDB database of a store, with its key and its value.

Integers in keys are fixed-width big-endian, so keys sort by integer and share prefixes. Only names
and ids of documents have a variable length. They come last in a key, so the entries with the same
prefix are in order of name. "collection" in the table is a collection's id.

| database            | key                          | value                                |
| ------------------- | ---------------------------- | ------------------------------------ |
| meta                | name                         | u64, or text for `store_id`          |
| collection_names    | tenant NUL name or alias     | collection u32; an alias has one     |
|                     |                              | more byte, 1, after it               |
| collections         | collection u32               | CollectionRecord (JSON)              |
| counters            | collection u32               | Counters (packed u64)                |
| tenants             | tenant                       | Usage (packed u64); never deleted    |
| deleted_collections | collection u32               | empty; the background reclaim        |
|                     |                              | deletes what the collection stored   |
| document_ids        | collection u32, document id  | ordinal u64                          |
| ordinals            | collection u32, ordinal u64  | leaf count u32, slot u64             |
| documents           | slot u64                     | DocumentRecord (JSON array)          |
| texts               | slot u64, index u8           | content: tree, text and vectors of a |
|                     |                              | document, cut into several values;   |
|                     |                              | see `content.py`                     |
| free_slots          | slot u64                     | empty                                |
| terms               | see `metadata_terms.py`      | ordinals of the documents that have  |
|                     |                              | the term, ascending; each u64 is an  |
|                     |                              | ordinal and a checksum of 20 bits    |
| changes             | collection u32, sequence u64 | Change (packed)                      |
| commits             | cursor u64                   | collection u32 that a commit changed |
| segments            | collection u32, last ordinal | SegmentRecord (JSON)                 |
| deleted_leaves      | collection u32, last ordinal | deleted leaves in that segment, u64  |
| tombstones          | collection u32, ordinal u64  | leaf count u32 of a deleted document |
|                     |                              | that a segment still holds           |
| unsummarised        | collection u32, ordinal u64  | empty; the document's summaries are  |
|                     |                              | not written yet                      |
| summarised          | collection u32, ordinal u64  | Summarised (packed): which leaves of |
|                     |                              | which document the leaves of this    |
|                     |                              | summary document summarise           |

A store may also have the databases `trees` and `vectors`. They are empty and no longer used.

A checksum of 64 bits follows every value; a text has one checksum for each of its blocks. See
`checksums.py`. The seed of a checksum is computed from the database and the key. In the databases
whose key is a slot, it is also computed from the document that the slot stores. Empty values have
no checksum, and each entry of `terms` contains a checksum of 20 bits.

An ordinal is the id of one version of one document and is never used twice. `labels.py` packs an
ordinal and a leaf's index into a label. A slot is the key under which a document is stored. The
next version of the document reuses the slot. After the document is deleted, another document reuses
the slot. If every version had a new slot, the pages with old slots would stay mostly empty.

A sequence number counts the changes of one tenant. `tenants` stores the sequence number of the
tenant's last change. The cursor counts the entries that were added to `commits`, across all
tenants. Publishing a segment adds an entry to `commits` too. A reader reads `commits` after its
last cursor to learn which collections have changed.
"""

import struct

SCHEMA_VERSION = 9

DATABASES = (
    "meta",
    "collection_names",
    "collections",
    "counters",
    "tenants",
    "deleted_collections",
    "document_ids",
    "ordinals",
    "documents",
    "texts",
    "free_slots",
    "terms",
    "changes",
    "commits",
    "segments",
    "deleted_leaves",
    "tombstones",
    "unsummarised",
    "summarised",
)
# The keys of these databases begin with a collection id.
BY_COLLECTION = (
    "counters",
    "document_ids",
    "ordinals",
    "terms",
    "changes",
    "segments",
    "deleted_leaves",
    "tombstones",
    "unsummarised",
    "summarised",
)
# In these databases, a key may have several values, all of the same size (LMDB's DUPFIXED).
MANY_VALUED = ("terms",)
# This database contains the contents of documents.
CONTENTS = "texts"
# The keys of these databases are addresses; see `address`. The last three names are also the names
# of the parts of a content; see `content.PARTS`.
BY_SLOT = ("documents", "texts", "trees", "vectors")
# Ingesting a document again replaces its entries in these databases and its parts of a content.
OF_DOCUMENT = (*BY_SLOT, "ordinals", "document_ids", "summarised")
# `hrag check --repair` rebuilds these databases from the other databases, or deletes those of their
# damaged entries that are not needed.
REPAIRED = (
    "counters",
    "tenants",
    "terms",
    "changes",
    "commits",
    "segments",
    "deleted_leaves",
    "tombstones",
)
NUMBER_BYTES = SLOT_BYTES = 8
COLLECTION_BYTES = 4

SCHEMA = b"schema_version"
STORE_ID = b"store_id"
COMMIT_CURSOR = b"commit_cursor"
LAST_COLLECTION = b"last_collection"
LAST_ORDINAL = b"last_ordinal"
LAST_SLOT = b"last_slot"
LAST_SEGMENT = b"last_segment"

_ALIAS = b"\x01"
_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")
_U32_U64 = struct.Struct(">IQ")
_DOCUMENT_ENTRY = struct.Struct(f">I{SLOT_BYTES}s")

u32 = _U32.pack
u64 = _U64.pack


def read_u32(value: bytes | memoryview) -> int:
    """Returns the integer that `u32` packed."""
    number: int = _U32.unpack(value)[0]
    return number


def read_u64(value: bytes | memoryview) -> int:
    """Returns the integer that `u64` packed."""
    number: int = _U64.unpack(value)[0]
    return number


def in_collection(collection: int, number: int) -> bytes:
    """Returns a key that consists of a collection id and a u64, for example an ordinal."""
    return _U32_U64.pack(collection, number)


def key_in_collection(key: tuple[int, int]) -> bytes:
    """Returns the same key as `in_collection`, from a pair of a collection id and a u64."""
    return _U32_U64.pack(*key)


def read_in_collection(key: bytes | memoryview) -> tuple[int, int]:
    """Returns the collection id and the u64 that `in_collection` packed."""
    collection, number = _U32_U64.unpack(key)
    return collection, number


def remedy(database: str) -> str:
    """Returns the part of an error message that says how to repair an entry of `database`."""
    if database in OF_DOCUMENT:
        return "ingesting the document again repairs it"
    if database in REPAIRED:
        return "`hrag check --repair` repairs it"
    return "`hrag restore` of a backup replaces it"


def document_entry(leaf_count: int, slot: bytes) -> bytes:
    """Returns a packed value of the database `ordinals`; `slot` is already packed."""
    return _U32.pack(leaf_count) + slot


def read_document_entry(value: memoryview) -> tuple[int, bytes]:
    """Returns the leaf count and the packed slot in a value of the database `ordinals`."""
    leaf_count, slot = _DOCUMENT_ENTRY.unpack(value)
    return leaf_count, slot


def address(slot: bytes, collection: int, ordinal: int) -> bytes:
    """Returns a document's address, the key of its record and of its content.

    The address is the packed slot, followed by the packed collection id and ordinal of the document
    that is stored in the slot. LMDB's key is only the slot. The remainder determines the seed of
    checksums.
    """
    return slot + _U32_U64.pack(collection, ordinal)


def printable(text: str) -> str:
    """Returns the text of a key for use in a message; replaces bytes that are not UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def collection_name(tenant_id: str, name: str) -> bytes:
    """Returns a key of the database `collection_names`; no argument may contain NUL."""
    return f"{tenant_id}\0{name}".encode("utf-8", "surrogateescape")


def alias(collection: int) -> bytes:
    """Returns the value of an alias of a collection, in the database `collection_names`."""
    return _U32.pack(collection) + _ALIAS


def read_name(value: memoryview) -> tuple[int, bool]:
    """Returns the collection id in a value of `collection_names`, and True for an alias."""
    return read_u32(value[: _U32.size]), value[_U32.size :] == _ALIAS


def tenant(tenant_id: str) -> bytes:
    """Returns a key of the database `tenants`."""
    return tenant_id.encode("utf-8", "surrogateescape")


def document_id(collection: int, name: str) -> bytes:
    """Returns a key of the database `document_ids`; `name` is the document's id."""
    return _U32.pack(collection) + name.encode("utf-8", "surrogateescape")
