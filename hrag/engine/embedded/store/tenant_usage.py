"""The usage record of each tenant: the amount of stored data, and the last sequence number.

The record is updated in the transaction of each change. It is never deleted, so that the tenant's
sequence numbers never start again at 1. Without the record, every commit would have to sum the
counters of the tenant's collections, which takes 3 us for each collection. With ten thousand
collections, this would take longer than the commit's sync to disk.

When a deletion is committed, the usage becomes smaller, so the tenant may store new documents
immediately, although LMDB's pages are freed later, in the background.
"""

from collections.abc import Sequence
from itertools import starmap

from hrag.engine.common.filter_terms import is_format_term
from hrag.engine.common.records import DocumentRecord, Usage
from hrag.engine.embedded.store import content, originals, schema
from hrag.engine.embedded.store.checksums import SUM_BYTES, bytes_in_blocks
from hrag.engine.embedded.store.transactions import Txn

# Sizes in bytes in LMDB's file format 0.9. A page has 4 KiB and begins with a header. An entry is
# called a node; it has a header and a 16-bit offset in its page. If a node would be larger than
# `_LARGEST_NODE`, its value is stored in separate pages, so at least two nodes fit into a page.
_PAGE = 4096
_PAGE_HEADER = 16
_NODE_HEADER = 8 + 2
_LARGEST_NODE = (_PAGE - _PAGE_HEADER) // 2
_U32, _U64 = 4, 8
_IN_COLLECTION = _U32 + _U64

_NOTHING = Usage()


def read_usage(txn: Txn, tenant_id: str) -> Usage:
    """Returns the tenant's usage record; all fields are 0 before the tenant's first change."""
    return txn.tenants.get(tenant_id) or _NOTHING


def stored_bytes(document: DocumentRecord, terms: Sequence[bytes], tree_bytes: int) -> int:
    """Estimates by how many bytes LMDB's file grows when a document is added.

    The estimate may be wrong by a factor of up to two. `terms` are the document's keys in the
    database `terms`. `tree_bytes` is the size of the encoded tree.

    Counts the record, and the LMDB values that contain the tree, the text, the vectors and the
    original. A large value has pages of its own, and these pages are counted whole. A small value
    shares its page with values of other documents, so only its share of a page is counted. Also
    counts the document's entries in other databases: its terms, its id, its ordinal and its log
    entry. A term is counted as if no other document had it. Only the term of the format is not
    counted, because nearly all documents share it with others. Free space that an update leaves for
    later writes is not counted.

    The record contains three integers that depend on the store: collection id, sequence number and
    stored bytes. Each of them is counted as one digit. So a document has the same size in every
    store and at every time.
    """
    numbers = (document.collection, document.sequence, document.stored_bytes)
    # The digits of the JSON record that are not counted: for each of the three integers, all digits
    # except one.
    digits = sum(len(str(number)) - 1 for number in numbers)
    parts = [
        tree_bytes + SUM_BYTES,
        bytes_in_blocks(document.text_bytes),
        document.vector_bytes + SUM_BYTES,
    ]
    record_bytes = len(document.to_short_bytes()) - digits
    values = [record_bytes + SUM_BYTES, *content.value_lengths(content.size_bytes(parts))]
    values += originals.value_lengths(document.original)
    id_bytes = len(schema.document_id(0, document.document_id))
    entries = [(id_bytes, _U64), (_IN_COLLECTION, _U32 + _U64), (_IN_COLLECTION, 2 * _U64)]
    entries = [(key, value + SUM_BYTES) for key, value in [*entries, (_U64, _U32)]]
    entries += [
        (len(term), _U64) for term in terms if not is_format_term(term[schema.COLLECTION_BYTES :])
    ]
    return sum(map(_appended_bytes, values)) + sum(starmap(_inserted_bytes, entries))


def _appended_bytes(value_bytes: int) -> int:
    """Returns the disk space in bytes of a value whose key is larger than all existing keys.

    The key of a value in a new slot is such a key. LMDB appends these values at the end of the
    database and fills the pages completely.
    """
    node_bytes = _node_bytes(_U64, value_bytes)
    if node_bytes > _LARGEST_NODE:
        pages = -(-(_PAGE_HEADER + value_bytes) // _PAGE)
        return pages * _PAGE + _node_bytes(_U64, _U64)
    return _PAGE // ((_PAGE - _PAGE_HEADER) // node_bytes)


def _inserted_bytes(key_bytes: int, value_bytes: int) -> int:
    """Returns the disk space in bytes of a short entry that is inserted between existing keys.

    LMDB's pages with such entries are about two thirds full.
    """
    return _node_bytes(key_bytes, value_bytes) * 3 // 2


def _node_bytes(key_bytes: int, value_bytes: int) -> int:
    size = _NODE_HEADER + key_bytes + value_bytes
    return size + size % 2
