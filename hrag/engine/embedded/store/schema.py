"""Every LMDB database of a store, once, with its key and value.

Numbers in keys are fixed-width big-endian, so keys sort by number and share prefixes.
Names are the only variable part and come last, so a prefix lists them in order.

| database            | key                          | value                                |
| ------------------- | ---------------------------- | ------------------------------------ |
| meta                | name                         | u64, or text for `store_id`          |
| collection_names    | tenant NUL name or alias     | collection u32; behind it 1, in one  |
|                     |                              | byte, if the name is an alias        |
| collections         | collection u32               | CollectionRecord (JSON)              |
| counters            | collection u32               | Counters (packed u64)                |
| tenants             | tenant                       | Usage (packed u64); never deleted    |
| deleted_collections | collection u32               | empty; to be reclaimed               |
| document_ids        | collection u32, document id  | ordinal u64                          |
| ordinals            | collection u32, ordinal u64  | leaf count u32, slot u64             |
| documents           | slot u64                     | DocumentRecord (JSON array)          |
| texts               | slot u64, number u8          | content: tree, text and vectors of a |
|                     |                              | document, cut; see `content.py`      |
| trees               |                              | see below                            |
| vectors             |                              | see below                            |
| free_slots          | slot u64                     | empty                                |
| terms               | see `metadata_terms.py`      | ordinals that have it, sorted, each  |
|                     |                              | with a checksum of 20 bits in a u64  |
| changes             | collection u32, sequence u64 | Change (packed)                      |
| commits             | cursor u64                   | collection u32 that a commit changed |
| segments            | collection u32, last ordinal | SegmentRecord (JSON)                 |
| deleted_leaves      | collection u32, last ordinal | deleted leaves in that segment, u64  |
| tombstones          | collection u32, ordinal u64  | leaf count u32 of a deleted document |
|                     |                              | that a segment still holds           |
| unsummarised        | collection u32, ordinal u64  | empty; the document's summaries are  |
|                     |                              | not written yet                      |
| summarised          | collection u32, ordinal u64  | Summarised (packed): what the leaves |
|                     |                              | of this document are summaries of    |

A document that schema 8 or an older one wrote has three values under its slot in place of a
content: `texts` has its UTF-8, `trees` a `hrag.values.tree.Tree`, `vectors`
float32[leaves, dimension], LE. Its record is a JSON object. It stays so until it is ingested again.

Every value is followed by a checksum of 64 bits, a text by one for each block; see
`checksums.py`. Its seed comes from the database and the key; of the databases by slot from
the slot's document too. Values that are empty have none, and terms one of their own.

An ordinal names one version of one document and is never used twice; `labels.py` packs it
with a leaf's index into a label. A slot is where a document is stored. The document's next
version reuses it, and another document once this one is deleted: with ever new keys, the pages
of old ones would stay mostly empty.

A sequence numbers the changes of one tenant: `tenants` has its last one. The cursor numbers
the entries of `commits` across all tenants, segments that were published included; a reader
follows it to learn which collections to look at.
"""

import struct

SCHEMA_VERSION = 9
OLDEST_VERSION = 7  # It is opened as it is; a writer makes it the newest.

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
    "trees",
    "vectors",
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
BY_COLLECTION = (  # Their keys begin with a collection's number.
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
MANY_VALUED = ("terms",)  # A key has several values, all of one size.
BY_SLOT = ("documents", "texts", "trees", "vectors")  # Their keys in `Txn` are addresses.
CONTENTS = "texts"  # The database that has the contents of documents.
IN_BLOCKS = ("texts",)  # Searches read parts of these values.
OF_DOCUMENT = (*BY_SLOT, "ordinals", "document_ids", "summarised")  # Replaced with a document.
REPAIRED = (  # Made again from the rest, or emptied because the rest does without.
    "counters",
    "tenants",
    "terms",
    "changes",
    "commits",
    "segments",
    "deleted_leaves",
    "tombstones",
)
WITHOUT_CHECKSUM = ("deleted_collections", "free_slots", "terms", "unsummarised")

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

u32 = _U32.pack
u64 = _U64.pack


def read_u32(value: bytes | memoryview) -> int:
    """Unpacks what `u32` packed."""
    number: int = _U32.unpack(value)[0]
    return number


def read_u64(value: bytes | memoryview) -> int:
    """Unpacks what `u64` packed."""
    number: int = _U64.unpack(value)[0]
    return number


def in_collection(collection: int, number: int) -> bytes:
    """Key of `ordinals` and of every other database keyed by collection and a u64."""
    return _U32_U64.pack(collection, number)


def read_in_collection(key: bytes | memoryview) -> tuple[int, int]:
    """Unpacks what `in_collection` packed."""
    collection, number = _U32_U64.unpack(key)
    return collection, number


def remedy(database: str) -> str:
    """Returns what mends a damaged entry of a database."""
    if database in OF_DOCUMENT:
        return "ingesting the document again mends it"
    if database in REPAIRED:
        return "`hrag check --repair` mends it"
    return "`hrag restore` of a backup replaces it"


def document_entry(leaf_count: int, slot: bytes) -> bytes:
    """Value of `ordinals`; `slot` is already packed."""
    return _U32.pack(leaf_count) + slot


def read_document_entry(value: memoryview) -> tuple[int, bytes]:
    """Unpacks the leaf count and the slot, which stays packed."""
    return read_u32(value[: _U32.size]), bytes(value[_U32.size :])


def address(slot: bytes, collection: int, ordinal: int) -> bytes:
    """A packed slot with the document that lies there: key of the databases by slot."""
    return slot + _U32_U64.pack(collection, ordinal)


def collection_name(tenant_id: str, name: str) -> bytes:
    """Key of `collection_names`; neither part can hold NUL."""
    return f"{tenant_id}\0{name}".encode()


def alias(collection: int) -> bytes:
    """Value of `collection_names` for an alias of the collection."""
    return _U32.pack(collection) + _ALIAS


def read_name(value: memoryview) -> tuple[int, bool]:
    """Unpacks a value of `collection_names`: the collection, and whether the name is an alias."""
    return read_u32(value[: _U32.size]), value[_U32.size :] == _ALIAS


def tenant(tenant_id: str) -> bytes:
    """Key of `tenants`."""
    return tenant_id.encode()


def document_id(collection: int, name: str) -> bytes:
    """Key of `document_ids`."""
    return _U32.pack(collection) + name.encode()
