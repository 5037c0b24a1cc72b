"""Lists every LMDB database of a store, with its key and its value.

Integers in keys are big-endian and have a fixed length, so LMDB sorts keys by their integers. Only
names and ids of documents have a variable length. They come last in a key, so the entries of one
collection or tenant are in order of name or id. "collection" in the table is a collection's id.

| database            | key                          | value                                |
| ------------------- | ---------------------------- | ------------------------------------ |
| meta                | name                         | u64, or text for `store_id`          |
| collection_names    | tenant NUL name or alias     | collection u32; if the key contains  |
|                     |                              | an alias, the byte 1 follows the u32 |
| collections         | collection u32               | CollectionRecord (JSON)              |
| counters            | collection u32               | Counters (binary)                    |
| tenants             | tenant                       | Usage (binary); never deleted        |
| deleted_collections | collection u32               | empty; the background reclaim        |
|                     |                              | deletes what the collection stored   |
| document_ids        | collection u32, document id  | ordinal u64                          |
| ordinals            | collection u32, ordinal u64  | leaf count u32, slot u64             |
| documents           | slot u64                     | DocumentRecord (JSON array)          |
| texts               | slot u64, index u8           | content: tree, text and vectors of a |
|                     |                              | document, cut into several values;   |
|                     |                              | see `content.py`                     |
|                     | slot u64, byte 255,          | a piece of the document's original;  |
|                     | index u32                    | see `originals.py`                   |
| free_slots          | slot u64                     | empty                                |
| terms               | see `metadata_terms.py`      | ordinals of the documents that have  |
|                     |                              | the term, ascending; each u64 is an  |
|                     |                              | ordinal and a checksum of 20 bits    |
| changes             | collection u32, sequence u64 | Change (binary)                      |
| commits             | cursor u64                   | collection u32 that a commit changed |
| segments            | collection u32, last ordinal | SegmentRecord (JSON)                 |
| deleted_leaves      | collection u32, last ordinal | count of the deleted leaves in the   |
|                     |                              | segment with that last ordinal, u64  |
| tombstones          | collection u32, ordinal u64  | leaf count u32 of a deleted document |
|                     |                              | that a segment still contains        |
| unsummarised        | collection u32, ordinal u64  | empty; the document's summaries are  |
|                     |                              | not written yet                      |
| summarised          | collection u32, ordinal u64  | Summarised (binary): which leaves of |
|                     |                              | which document the leaves of this    |
|                     |                              | summary document summarise           |

A store may also have the databases `trees` and `vectors`. They are empty and no longer used.

A checksum of 64 bits follows every value; a text has one checksum for each of its blocks. See
`checksums.py`. The seed of a checksum is computed from the database's name and the key. In the
databases whose key is a slot, the seed is also computed from the collection id and the ordinal of
the document in the slot. Empty values have no checksum, and each entry of `terms` contains a
checksum of 20 bits.

An ordinal is the id of one version of one document and is never used twice. `labels.py` packs an
ordinal and a leaf's index into a label. A slot is the key under which a document is stored. The
next version of the document uses the same slot, and after the document is deleted, another document
uses it. If every version had a new slot, the pages with old slots would stay mostly empty.

The changes of a tenant are counted, and the number of a change is its sequence number. `tenants`
stores the sequence number of the tenant's last change. The entries of `commits` are counted across
all tenants, and the number of an entry is its cursor. Publishing a segment adds an entry to
`commits`, too. To learn which collections have changed, the engine's `Reader` reads the entries of
`commits` that it has not read yet.
"""

import struct

SCHEMA_VERSION = 10

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
# This database contains the text, tree, vectors and original of each document.
CONTENTS = "texts"
# In error messages and in the seeds of checksums, this is the name of the originals.
ORIGINALS = "originals"
# A document's entries in these databases are found by the document's address; see `address`. In
# error messages, "texts", "trees" and "vectors" also name the text, the tree and the vectors of a
# document, as in `content.PARTS`, and "originals" names its original.
BY_SLOT = ("documents", "texts", "trees", "vectors", ORIGINALS)
# Ingesting a document again replaces its entries in these databases.
OF_DOCUMENT = (*BY_SLOT, "ordinals", "document_ids", "summarised")
# `hrag check --repair` repairs damaged entries of these databases: it computes the entries again
# from other databases, or deletes them.
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
    """Decodes an integer that `u32` has encoded as 4 big-endian bytes."""
    number: int = _U32.unpack(value)[0]
    return number


def read_u64(value: bytes | memoryview) -> int:
    """Decodes an integer that `u64` has encoded as 8 big-endian bytes."""
    number: int = _U64.unpack(value)[0]
    return number


def in_collection(collection: int, number: int) -> bytes:
    """Returns a key that consists of a collection id and a u64, for example an ordinal."""
    return _U32_U64.pack(collection, number)


def key_in_collection(key: tuple[int, int]) -> bytes:
    """Returns a key that consists of a collection id and a u64.

    It is the same key as that of `in_collection`, but `key` has both numbers as one tuple.
    """
    return _U32_U64.pack(*key)


def read_in_collection(key: bytes | memoryview) -> tuple[int, int]:
    """Decodes a key that `in_collection` has encoded. Returns the collection id and the u64."""
    collection, number = _U32_U64.unpack(key)
    return collection, number


def remedy(database: str) -> str:
    """Returns the words of an error message that say how to repair an entry of `database`."""
    if database in OF_DOCUMENT:
        return "ingesting the document again repairs it"
    if database in REPAIRED:
        return "`hrag check --repair` repairs it"
    return "`hrag restore` of a backup replaces it"


def document_entry(leaf_count: int, slot: bytes) -> bytes:
    """Encodes a value of the database `ordinals`: a document's leaf count and slot.

    `slot` is encoded already. It is the key under which LMDB stores the document.
    """
    return _U32.pack(leaf_count) + slot


def read_document_entry(value: memoryview) -> tuple[int, bytes]:
    """Decodes a value of the database `ordinals`: the leaf count, and the slot.

    The slot is returned as bytes, because it is used only as a key.
    """
    leaf_count, slot = _DOCUMENT_ENTRY.unpack(value)
    return leaf_count, slot


def address(slot: bytes, collection: int, ordinal: int) -> bytes:
    """Returns a document's address: its slot, collection id and ordinal, all encoded as bytes.

    The slot is the key under which LMDB stores the document's record, text, tree and vectors. The
    slot of a deleted document is reused for another document. So the seeds of the checksums are
    computed from the whole address. Then data that was stored for the deleted document does not
    match the checksums of the new document.
    """
    return slot + _U32_U64.pack(collection, ordinal)


def printable(text: str) -> str:
    """Returns `text` for use in an error message.

    `text` is a name or an id that was decoded from a key. Bytes of the key that are not UTF-8 are
    replaced by U+FFFD.
    """
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def collection_name(tenant_id: str, name: str) -> bytes:
    """Returns a key of the database `collection_names`.

    Neither `tenant_id` nor `name` may contain a NUL character.
    """
    return f"{tenant_id}\0{name}".encode("utf-8", "surrogateescape")


def alias(collection: int) -> bytes:
    """Returns the value that the database `collection_names` has for an alias of a collection."""
    return _U32.pack(collection) + _ALIAS


def read_name(value: memoryview) -> tuple[int, bool]:
    """Decodes a value of `collection_names`.

    Returns the collection id, and True if the name in the value's key is an alias.
    """
    return read_u32(value[: _U32.size]), value[_U32.size :] == _ALIAS


def tenant(tenant_id: str) -> bytes:
    """Returns the key of a tenant in the database `tenants`."""
    return tenant_id.encode("utf-8", "surrogateescape")


def document_id(collection: int, name: str) -> bytes:
    """Returns the key of a document in the database `document_ids`; `name` is the document's id."""
    return _U32.pack(collection) + name.encode("utf-8", "surrogateescape")
