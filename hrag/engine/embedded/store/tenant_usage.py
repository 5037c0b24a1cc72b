"""What each tenant has stored in all its collections, and whether it may store more.

Kept beside the collections' counters, in the transaction of each change: to add up the
counters costs 3 us a collection, and with ten thousand of them every commit would take
longer than its sync of the disk. Room is counted as free as soon as a deletion is
committed, though LMDB's pages are freed in the background.
"""

from collections.abc import Sequence
from dataclasses import replace

from hrag import metrics
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.records import DocumentHead, Usage
from hrag.errors import StorageQuotaExceeded
from hrag.quota.quotas import Quota

_ORDINAL_BYTES = 8  # Behind each term.
_NOTHING = Usage()


def read_usage(store: Store, txn: Txn, tenant_id: str) -> Usage:
    """What a tenant has stored."""
    value = txn.get(schema.tenant(tenant_id), db=store.db["tenants"])
    return _NOTHING if value is None else Usage.from_bytes(value)


def write_usage(store: Store, txn: Txn, tenant_id: str, usage: Usage) -> None:
    """Nothing is kept of a tenant that has nothing."""
    if usage == _NOTHING:
        txn.delete(schema.tenant(tenant_id), db=store.db["tenants"])
    else:
        txn.put(schema.tenant(tenant_id), usage.to_bytes(), db=store.db["tenants"])


def stored_bytes(head: DocumentHead, terms: Sequence[bytes], tree_bytes: int) -> int:
    """What is kept of a document: text, tree, vectors, head and terms.

    Of the head all but the digits of the store's own numbers, so that a document takes as
    much wherever and whenever it is stored.
    """
    own = replace(head, collection=0, sequence=0, stored_bytes=0).to_bytes()
    found_by = sum(map(len, terms)) + _ORDINAL_BYTES * len(terms)
    return head.text_bytes + tree_bytes + head.vector_bytes + len(own) + found_by


def require_room(tenant_id: str, quota: Quota, used: Usage, more: Usage) -> None:
    """Raises StorageQuotaExceeded unless the tenant may have `more`, which may be negative.

    What does not grow is never refused, even where a quota was lowered below what is used.
    """
    for name, limit, has, takes in (
        ("collections", quota.max_collections, used.collections, more.collections),
        ("documents", quota.max_documents, used.documents, more.documents),
        ("bytes", quota.max_bytes, used.stored_bytes, more.stored_bytes),
    ):
        if limit is not None and takes > 0 and has + takes > limit:
            metrics.quota_refused(name)
            raise StorageQuotaExceeded(
                f"tenant {tenant_id!r} has {has:,} of the {limit:,} {name} it may have "
                f"(HRAG_TENANT_MAX_{name.upper()}, or its own in HRAG_TENANT_QUOTAS_FILE), and "
                f"this takes at least {takes:,} more; delete something first",
                field=name,
                tenant_id=tenant_id,
            )
