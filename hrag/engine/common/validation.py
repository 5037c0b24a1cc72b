"""The checks that every engine makes, and their errors, so that all engines send equal messages.

The checks are about the shapes of trees and vectors, names, versions of documents, and quotas.
"""

from collections.abc import Sequence

from hrag.engine.common.labels import MAX_LEAVES
from hrag.engine.common.records import CollectionRecord
from hrag.engine.engine_documents import CollectionHandle, PreparedDocument
from hrag.observe import metrics
from hrag.values.collections import CollectionSettings, SummaryUnit
from hrag.values.errors import (
    AliasNotFound,
    CollectionExists,
    CollectionHasAliases,
    CollectionNotFound,
    CopyInProgress,
    DocumentChanged,
    DocumentNotFound,
    InvalidArgument,
    NoSummaries,
    OriginalNotFound,
    StorageQuotaExceeded,
    TooLarge,
)
from hrag.values.limits import MAX_ALIASES
from hrag.values.quotas import TenantUsage


def check_shapes(document: PreparedDocument, settings: CollectionSettings) -> None:
    """Checks that a document matches the `settings` of its collection.

    Raises InvalidArgument if the count of levels or the shape of the vectors does not match, or if
    the document has an original, which the collection does not keep. Raises TooLarge if the
    document has more than MAX_LEAVES leaves.
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
            f"the document's leaves and the collection's dimension need {shape}",
            field="vectors",
        )
    check_leaf_count(len(document.vectors))
    if document.original is not None and not settings.keep_originals:
        raise InvalidArgument(
            f"document {document.document_id!r} has an original, but the collection was created "
            "without keep_originals",
            field="original",
        )


def check_leaf_count(count: int) -> None:
    """Raises TooLarge if a document with `count` leaves has more than MAX_LEAVES leaves.

    A label has a fixed count of bits for the index of a leaf, so the index of a further leaf would
    not fit into a label.
    """
    if count > MAX_LEAVES:
        raise TooLarge(
            f"document has {count} leaves; at most {MAX_LEAVES} are allowed; "
            "split the document or use larger chunks",
            field="document",
            limit="document_leaves",
        )


def check_summaries(document: PreparedDocument, collection: CollectionHandle) -> None:
    """Raises InvalidArgument if the collection was created without summaries.

    Must be called only if `document` has summaries.
    """
    if collection.settings.summaries is SummaryUnit.NONE:
        raise InvalidArgument(
            f"document {document.document_id!r} has summaries, but collection "
            f"{collection.name!r} was created without summaries",
            field="summaries",
        )


def no_collection(tenant_id: str, name: str) -> CollectionNotFound:
    """Returns the error for the name of a collection that does not exist in the tenant."""
    return CollectionNotFound(
        f"tenant {tenant_id!r} has no collection {name!r}", field="collection"
    )


def no_document(handle: CollectionHandle, document_id: str) -> DocumentNotFound:
    """Returns the error for the id of a document that does not exist in the collection."""
    return DocumentNotFound(
        f"collection {handle.name!r} of tenant {handle.tenant_id!r} "
        f"has no document {document_id!r}",
        field="document_id",
    )


def no_original(document_id: str) -> OriginalNotFound:
    """Returns the error for a document whose original is not stored."""
    return OriginalNotFound(
        f"the original of document {document_id!r} is not stored; it is stored if the document is "
        "sent as the bytes of a file to a collection that was created with keep_originals",
        field="document_id",
    )


def no_summaries(name: str) -> NoSummaries:
    """Returns the error for a search that needs summaries, in a collection without summaries."""
    return NoSummaries(
        f"collection {name!r} has no summaries; they are requested when a collection is "
        "created, by `summaries` in its settings or by HRAG_SUMMARIES",
        field="mode",
    )


def name_taken_error(tenant_id: str, name: str, field: str, *, is_alias: bool) -> CollectionExists:
    """Returns the error for a new collection or a new alias whose name is already in use.

    `is_alias` is True if the name is in use as an alias, False if it is the name of a collection.
    `field` is the field of the request that contains the name.
    """
    kind = "an alias" if is_alias else "a collection"
    return CollectionExists(f"tenant {tenant_id!r} has {kind} {name!r} already", field=field)


def check_no_aliases(tenant_id: str, collection: str, aliases: Sequence[str]) -> None:
    """Raises CollectionHasAliases if `aliases` is not empty.

    Called before `collection` is deleted. `aliases` are the aliases of this collection.
    """
    if aliases:
        raise CollectionHasAliases(
            f"collection {collection!r} of tenant {tenant_id!r} is in use by the aliases "
            f"{', '.join(map(repr, aliases))}; delete them or set them to another collection",
            field="name",
        )


def check_is_no_copy(record: CollectionRecord) -> None:
    """Raises CopyInProgress if the collection is the copy of a collection that is embedded again.

    Only the copying writes to a copy. Otherwise the copy could contain documents that its
    collection does not have. A copy has no alias, because it may be deleted with its collection.
    """
    if record.copy_of:
        raise CopyInProgress(
            f"collection {record.name!r} of tenant {record.tenant_id!r} is the unfinished copy of "
            "a collection that is embedded again; use that collection, or delete the copy to give "
            "up",
            field="collection",
        )


def check_same_copy(copy: CollectionRecord, name: str, settings: CollectionSettings) -> None:
    """Raises CopyInProgress if the existing copy of a collection is not the one that is asked for.

    `copy` is the record of the existing copy. `name` and `settings` are those of the copy that is
    asked for. Two copies are the same if their names and embedders are equal.
    """
    existing, wanted = copy.settings, (settings.embedder, settings.dimension)
    if copy.name == name and (existing.embedder, existing.dimension) == wanted:
        return
    raise CopyInProgress(
        f"the collection is being copied already, to {copy.name!r} with embedder "
        f"{existing.embedder} ({existing.dimension} dimensions); finish this copy, or delete "
        f"collection {copy.name!r} to give it up",
        field="copy",
    )


def no_copy(handle: CollectionHandle) -> CollectionNotFound:
    """Returns the error for a collection whose copy does not exist, or was deleted meanwhile."""
    return CollectionNotFound(
        f"collection {handle.name!r} of tenant {handle.tenant_id!r} has no copy any more; the copy "
        "was deleted meanwhile",
        field="collection",
    )


def no_alias(tenant_id: str, alias: str) -> AliasNotFound:
    """Returns the error for an alias that does not exist in the tenant."""
    return AliasNotFound(f"tenant {tenant_id!r} has no alias {alias!r}", field="alias")


def check_alias_count(tenant_id: str, count: int) -> None:
    """Raises StorageQuotaExceeded if a tenant that has `count` aliases may not create another one.

    The limit is MAX_ALIASES.
    """
    if count >= MAX_ALIASES:
        raise StorageQuotaExceeded(
            f"tenant {tenant_id!r} has {count} of the {MAX_ALIASES} aliases it may have; "
            "delete one first",
            field="aliases",
            tenant_id=tenant_id,
        )


def document_changed(document_id: str, expected: int, actual: int) -> DocumentChanged:
    """Returns the error for a change of a document that was changed since the caller read it.

    `expected` is the sequence number that the caller read, and `actual` is the stored one.
    """
    return DocumentChanged(
        f"document {document_id!r} no longer has the sequence number {expected}, because it was "
        f"changed at sequence number {actual}; read the document again",
        field="expected_sequence",
    )


def check_quota(tenant_id: str, used: TenantUsage, more: TenantUsage) -> None:
    """Raises StorageQuotaExceeded if a change would let the tenant's usage exceed its quota.

    `used` is the usage before the change, with the quota. `more` is what the change adds to each
    field; it may be negative. Fields that the change does not increase are not checked, even if
    they already exceed the quota.
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
                f"this request needs at least {added:,} more; delete something first",
                field=name,
                tenant_id=tenant_id,
            )
