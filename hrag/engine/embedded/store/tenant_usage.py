"""What each tenant has stored, the number of its last change, and the check of its quota.

The record is updated in the transaction of each change. Adding up the counters of a
tenant's collections instead would cost 3 us a collection: with ten thousand of them, every
commit would take longer than its sync to disk. A deletion frees quota when it commits,
though LMDB's pages are freed in the background.
"""

from collections.abc import Sequence
from dataclasses import replace

from hrag.engine import validation
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.records import DocumentRecord, Usage
from hrag.quota.quotas import Quota, TenantUsage

_ORDINAL_BYTES = 8  # The value of each term.
_NOTHING = Usage()


def read_usage(store: Store, txn: Txn, tenant_id: str) -> Usage:
    """The tenant's record; all zero before its first change."""
    value = txn.get(schema.tenant(tenant_id), db=store.db["tenants"])
    return _NOTHING if value is None else Usage.from_bytes(value)


def write_usage(store: Store, txn: Txn, tenant_id: str, usage: Usage) -> None:
    """Stores the tenant's record; there is no way to delete one, see `Usage`."""
    txn.put(schema.tenant(tenant_id), usage.to_bytes(), db=store.db["tenants"])


def stored_bytes(document: DocumentRecord, terms: Sequence[bytes], tree_bytes: int) -> int:
    """Bytes stored for a document: text, tree, vectors, record and terms.

    The digits of the store's own numbers in the record do not count, so that a document
    takes as much wherever and whenever it is stored.
    """
    record = replace(document, collection=0, sequence=0, stored_bytes=0).to_bytes()
    term_bytes = sum(map(len, terms)) + _ORDINAL_BYTES * len(terms)
    return document.text_bytes + tree_bytes + document.vector_bytes + len(record) + term_bytes


def check_quota(tenant_id: str, quota: Quota, used: Usage, more: Usage) -> None:
    """Raises StorageQuotaExceeded unless the tenant may have `more`, which may be negative."""
    more_usage = TenantUsage(more.collections, more.documents, more.stored_bytes)
    validation.check_quota(tenant_id, tenant_usage(used, quota), more_usage)


def tenant_usage(used: Usage, quota: Quota) -> TenantUsage:
    """The record's public fields, with the tenant's quota."""
    return TenantUsage(used.collections, used.documents, used.stored_bytes, quota)
