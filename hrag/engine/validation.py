"""What every engine refuses, in the same words: documents that do not fit, quotas used up."""

from hrag import metrics
from hrag.engine.documents import CollectionHandle, PreparedDocument
from hrag.errors import InvalidArgument, StorageQuotaExceeded
from hrag.quota.quotas import TenantUsage
from hrag.types import CollectionSettings, SummaryUnit


def check_shapes(document: PreparedDocument, settings: CollectionSettings) -> None:
    """Raises InvalidArgument unless tree and vectors have the levels and sizes of `settings`."""
    levels, expected = len(document.tree.counts), len(settings.tree.level_sizes)
    if levels != expected:
        raise InvalidArgument(
            f"tree has {levels} levels; the collection's have {expected}", field="tree"
        )
    shape = (document.tree.counts[settings.tree.embedding_level], settings.dimension)
    if document.vectors.shape != shape:
        raise InvalidArgument(
            f"vectors have shape {document.vectors.shape}; "
            f"the tree and the collection need {shape}",
            field="vectors",
        )


def check_summaries(document: PreparedDocument, collection: CollectionHandle) -> None:
    """Raises InvalidArgument for a document with summaries if its collection has none."""
    if collection.settings.summaries is SummaryUnit.NONE:
        raise InvalidArgument(
            f"document {document.document_id!r} comes with summaries, and collection "
            f"{collection.name!r} has none",
            field="summaries",
        )


def check_quota(tenant_id: str, used: TenantUsage, more: TenantUsage) -> None:
    """Raises StorageQuotaExceeded unless `used.quota` allows `more`, which may be negative.

    What does not grow is never refused, even where a quota was lowered below the usage.
    """
    quota = used.quota
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
