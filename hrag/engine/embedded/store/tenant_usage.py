"""What each tenant has stored, and the number of its last change.

The record is updated in the transaction of each change. Adding up the counters of a
tenant's collections instead would cost 3 us a collection: with ten thousand of them, every
commit would take longer than its sync to disk. A deletion frees quota when it commits,
though LMDB's pages are freed in the background.
"""

from collections.abc import Sequence
from itertools import starmap

from hrag.engine.common.records import DocumentRecord, Usage
from hrag.engine.embedded.store import content, schema
from hrag.engine.embedded.store.checksums import SUM_BYTES, bytes_in_blocks
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.lmdb_records import packed_document

# LMDB 0.9: pages of 4 KiB with a header; an entry has a header and a 16-bit offset. Larger
# ones have pages of their own, so that each page holds two at least.
_PAGE = 4096
_PAGE_HEADER = 16
_NODE_HEADER = 8 + 2
_LARGEST_NODE = (_PAGE - _PAGE_HEADER) // 2
_U32, _U64 = 4, 8
_IN_COLLECTION = _U32 + _U64

_NOTHING = Usage()


def read_usage(store: Store, txn: Txn, tenant_id: str) -> Usage:
    """The tenant's record; all zero before its first change."""
    value = txn.get(schema.tenant(tenant_id), db=store.db["tenants"])
    return _NOTHING if value is None else Usage.from_bytes(value)


def write_usage(store: Store, txn: Txn, tenant_id: str, usage: Usage) -> None:
    """Stores the tenant's record; there is no way to delete one, see `Usage`."""
    txn.put(schema.tenant(tenant_id), usage.to_bytes(), db=store.db["tenants"])


def stored_bytes(
    document: DocumentRecord, terms: Sequence[bytes], tree_bytes: int, *, has_content: bool = True
) -> int:
    """By how many bytes LMDB's file grows for a document, within a factor of two.

    Counts the record and the values of the content, each in pages of its own or packed with
    those of other documents, and the entries by which the document is found: its terms, id,
    ordinal and place in the log. Without `has_content`, the document is as schema 8 stored it.
    A term is counted as if no other document had it. Entries that an update leaves for later
    ones to use are not counted.

    The digits of the store's own numbers in the record do not count, so that a document
    takes as much wherever and whenever it is stored.
    """
    numbers = (document.collection, document.sequence, document.stored_bytes)
    digits = sum(len(str(number)) - 1 for number in numbers)  # As if each were 0.
    parts = [
        tree_bytes + SUM_BYTES,
        bytes_in_blocks(document.text_bytes),
        document.vector_bytes + SUM_BYTES,
    ]
    values = content.value_lengths(content.size_bytes(parts)) if has_content else parts
    record_bytes = len(packed_document(document, has_content=has_content)) - digits
    values = [record_bytes + SUM_BYTES, *values]
    id_bytes = len(schema.document_id(0, document.document_id))
    entries = [(id_bytes, _U64), (_IN_COLLECTION, _U32 + _U64), (_IN_COLLECTION, 2 * _U64)]
    entries = [(key, value + SUM_BYTES) for key, value in [*entries, (_U64, _U32)]]
    entries += [(len(term), _U64) for term in terms]
    return sum(map(_packed_bytes, values)) + sum(starmap(_scattered_bytes, entries))


def _packed_bytes(value_bytes: int) -> int:
    """What a value takes under a slot: slots ascend, so LMDB fills its pages."""
    node_bytes = _node_bytes(_U64, value_bytes)
    if node_bytes > _LARGEST_NODE:
        pages = -(-(_PAGE_HEADER + value_bytes) // _PAGE)
        return pages * _PAGE + _node_bytes(_U64, _U64)
    return _PAGE // ((_PAGE - _PAGE_HEADER) // node_bytes)


def _scattered_bytes(key_bytes: int, value_bytes: int) -> int:
    """What a short entry takes that comes between others: pages are about two thirds full."""
    return _node_bytes(key_bytes, value_bytes) * 3 // 2


def _node_bytes(key_bytes: int, value_bytes: int) -> int:
    size = _NODE_HEADER + key_bytes + value_bytes
    return size + size % 2
