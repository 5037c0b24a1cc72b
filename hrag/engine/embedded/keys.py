"""Every LMDB database of a store, once, with its key and value.

Numbers in keys are fixed-width big-endian, so keys sort by number and share prefixes.
Names are the only variable part and come last, so a prefix lists them in order.

| database          | key                            | value                              |
| ----------------- | ------------------------------ | ---------------------------------- |
| meta              | name                           | u64, or text for `store_id`        |
| collection_names  | tenant NUL name                | collection u32                     |
| collections       | collection u32                 | CollectionRecord (JSON)            |
| counters          | collection u32                 | Counters (packed u64)              |
| dropped           | collection u32                 | nothing; documents to be purged    |
| document_ids      | collection u32, document id    | ordinal u64                        |
| ordinals          | collection u32, ordinal u64    | leaf count u32                     |
| heads             | ordinal u64                    | DocumentHead (JSON)                |
| texts             | ordinal u64                    | UTF-8                              |
| trees             | ordinal u64                    | `hrag.tree.Tree`                   |
| vectors           | ordinal u64                    | float32[leaves, dimension], LE     |
| changes           | collection u32, sequence u64   | Change (packed)                    |
| segments          | collection u32, segment u64    | SegmentRecord (JSON)               |

An ordinal names one version of one document and is never used twice. A label is
`ordinal << 20 | leaf index`.
"""

import struct

SCHEMA_VERSION = 1

DATABASES = (
    "meta",
    "collection_names",
    "collections",
    "counters",
    "dropped",
    "document_ids",
    "ordinals",
    "heads",
    "texts",
    "trees",
    "vectors",
    "changes",
    "segments",
)

LEAF_BITS = 20
MAX_LEAVES = 1 << LEAF_BITS  # Leaves of one document, so that a label holds the index.

SCHEMA = b"schema_version"
STORE_ID = b"store_id"
SEQUENCE = b"sequence"
LAST_COLLECTION = b"last_collection"
LAST_ORDINAL = b"last_ordinal"
LAST_SEGMENT = b"last_segment"

_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")
_U32_U64 = struct.Struct(">IQ")

u32 = _U32.pack
u64 = _U64.pack


def read_u32(value: bytes | memoryview) -> int:
    """The number that `u32` packed."""
    number: int = _U32.unpack(value)[0]
    return number


def read_u64(value: bytes | memoryview) -> int:
    """The number that `u64` packed."""
    number: int = _U64.unpack(value)[0]
    return number


def in_collection(collection: int, number: int) -> bytes:
    """Key of `ordinals`, `changes` and `segments`."""
    return _U32_U64.pack(collection, number)


def read_in_collection(key: bytes | memoryview) -> tuple[int, int]:
    """The collection and the number of such a key."""
    collection, number = _U32_U64.unpack(key)
    return collection, number


def collection_name(tenant_id: str, name: str) -> bytes:
    """Key of `collection_names`; neither part can hold NUL."""
    return f"{tenant_id}\0{name}".encode()


def document_id(collection: int, name: str) -> bytes:
    """Key of `document_ids`."""
    return _U32.pack(collection) + name.encode()
