"""The checks that every engine makes, with equal messages: shapes, names, versions and quotas."""

from collections.abc import Sequence

from hrag.engine.common.labels import MAX_LEAVES
from hrag.engine.engine_documents import CollectionHandle, PreparedDocument
from hrag.observe import metrics
from hrag.values.collections import CollectionSettings, SummaryUnit
from hrag.values.errors import (
    AliasNotFound,
    CollectionExists,
    CollectionHasAliases,
    CollectionNotFound,
    DocumentChanged,
    DocumentNotFound,
    InvalidArgument,
    NoSummaries,
    StorageQuotaExceeded,
    TooLarge,
)
from hrag.values.limits import MAX_ALIASES
from hrag.values.quotas import TenantUsage


def check_shapes(document: PreparedDocument, settings: CollectionSettings) -> None:
    """Raises InvalidArgument unless levels and vectors match the `settings` of the collection.

    Raises TooLarge for more than MAX_LEAVES leaves.
    """
    levels, expected = len(document.tree.counts), len(settings.tree.level_sizes)
    if levels != expected:
        raise InvalidArgument(
            f"tree has {levels} levels; the collection has {expected}", field="tree"
        )
    shape = (document.tree.counts[settings.tree.embedding_level], settings.dimension)
    if document.vectors.shape != shape:
        raise InvalidArgument(
            f"vectors have shape {document.vectors.shape}; "
            f"the tree and the collection need {shape}",
            field="vectors",
        )
    check_leaf_count(len(document.vectors))


def check_leaf_count(count: int) -> None:
    """Raises TooLarge if a document has more than MAX_LEAVES leaves, which labels cannot number."""
    if count > MAX_LEAVES:
        raise TooLarge(
            f"document has {count} leaves; at most {MAX_LEAVES} are allowed, "
            "split it or use larger chunks",
            field="document",
        )


def check_summaries(document: PreparedDocument, collection: CollectionHandle) -> None:
    """Raises InvalidArgument if a document has summaries and its collection has none."""
    if collection.settings.summaries is SummaryUnit.NONE:
        raise InvalidArgument(
            f"document {document.document_id!r} comes with summaries, and collection "
            f"{collection.name!r} has none",
            field="summaries",
        )


def no_collection(tenant_id: str, name: str) -> CollectionNotFound:
    """Returns the error for a collection name that the tenant does not have."""
    return CollectionNotFound(
        f"tenant {tenant_id!r} has no collection {name!r}", field="collection"
    )


def no_document(handle: CollectionHandle, document_id: str) -> DocumentNotFound:
    """Returns the error for a document id that the collection does not have."""
    return DocumentNotFound(
        f"collection {handle.name!r} of tenant {handle.tenant_id!r} "
        f"has no document {document_id!r}",
        field="document_id",
    )


def no_summaries(name: str) -> NoSummaries:
    """Returns the error for a search by summaries in a collection that has none."""
    return NoSummaries(
        f"collection {name!r} has no summaries; they are requested when a collection is "
        "created, by `summaries` in its settings or by HRAG_SUMMARIES",
        field="mode",
    )


def name_taken_error(tenant_id: str, name: str, field: str, *, is_alias: bool) -> CollectionExists:
    """Returns the error for a new collection or alias whose name is already in use."""
    kind = "an alias" if is_alias else "a collection"
    return CollectionExists(f"tenant {tenant_id!r} has {kind} {name!r} already", field=field)


def check_no_aliases(tenant_id: str, collection: str, aliases: Sequence[str]) -> None:
    """Raises CollectionHasAliases if aliases name the collection that shall be deleted."""
    if aliases:
        raise CollectionHasAliases(
            f"collection {collection!r} of tenant {tenant_id!r} is in use by the aliases "
            f"{', '.join(map(repr, aliases))}; delete them or set them to another collection",
            field="name",
        )


def no_alias(tenant_id: str, alias: str) -> AliasNotFound:
    """Returns the error for an alias that the tenant does not have."""
    return AliasNotFound(f"tenant {tenant_id!r} has no alias {alias!r}", field="alias")


def check_alias_count(tenant_id: str, count: int) -> None:
    """Raises StorageQuotaExceeded if a tenant with `count` aliases may not have another one."""
    if count >= MAX_ALIASES:
        raise StorageQuotaExceeded(
            f"tenant {tenant_id!r} has {count} of the {MAX_ALIASES} aliases it may have; "
            "delete one first",
            field="aliases",
            tenant_id=tenant_id,
        )


def document_changed(document_id: str, expected: int, actual: int) -> DocumentChanged:
    """Returns the error for a change that expects another version than the stored one."""
    return DocumentChanged(
        f"document {document_id!r} no longer has the sequence {expected}: it was written at "
        f"sequence {actual}; read it again",
        field="expected_sequence",
    )


def check_quota(tenant_id: str, used: TenantUsage, more: TenantUsage) -> None:
    """Raises StorageQuotaExceeded unless `used.quota` allows `more`, which may be negative.

    A value that does not grow is never refused, even if the usage already exceeds the quota.
    """
    quota = used.quota
    for name, limit, current, added in (
        ("collections", quota.max_collections, used.collections, more.collections),
        ("documents", quota.max_documents, used.documents, more.documents),
        ("bytes", quota.max_bytes, used.stored_bytes, more.stored_bytes),
    ):
        if limit is not None and added > 0 and current + added > limit:
            metrics.quota_refused(name)
            raise StorageQuotaExceeded(
                f"tenant {tenant_id!r} has {current:,} of the {limit:,} {name} it may have "
                f"(HRAG_TENANT_MAX_{name.upper()}, or its entry in HRAG_TENANT_QUOTAS_FILE), and "
                f"this needs at least {added:,} more; delete something first",
                field=name,
                tenant_id=tenant_id,
            )
