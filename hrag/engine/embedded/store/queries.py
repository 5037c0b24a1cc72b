"""Queries and deletions that several packages share. The caller passes its transaction."""

from collections.abc import Iterator
from dataclasses import replace

from hrag.engine.common.labels import MAX_ORDINAL
from hrag.engine.common.records import DocumentRecord
from hrag.engine.common.validation import no_collection, no_document
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.lmdb_records import SegmentRecord
from hrag.engine.embedded.store.metadata_terms import terms_of
from hrag.engine.embedded.store.transactions import Txn
from hrag.engine.engine_documents import CollectionHandle, info_bytes, read_part
from hrag.values.collections import Alias, Collection
from hrag.values.documents import ByteRange, DocumentInfo
from hrag.values.reply_limit import ReplyLimit, field_bytes


def find_collection(txn: Txn, tenant_id: str, name: str) -> int:
    """Returns the id of the collection with this name or alias.

    Only this function resolves aliases. Raises CollectionNotFound.
    """
    named = txn.collection_names.get((tenant_id, name))
    if named is None:
        raise no_collection(tenant_id, name)
    return named.collection


def collection_ids(txn: Txn, tenant_id: str | None = None, after: str = "") -> Iterator[int]:
    """Yields the ids of a tenant's collections, or of all collections if `tenant_id` is None.

    The order is by tenant and name. With `after`, skips the tenant's collections up to and
    including the name `after`. Aliases are skipped, so each collection is yielded once.
    """
    start = (tenant_id, f"{after}\0") if tenant_id is not None and after else None
    for _, named in txn.collection_names.entries(tenant_id, start=start):
        if not named.is_alias:
            yield named.collection


def aliases_of(txn: Txn, tenant_id: str) -> Iterator[tuple[str, int]]:
    """Yields each alias of a tenant with the id of its collection, in order of alias."""
    for (_, name), named in txn.collection_names.entries(tenant_id):
        if named.is_alias:
            yield name, named.collection


def describe_aliases(txn: Txn, tenant_id: str) -> tuple[Alias, ...]:
    """Returns a tenant's aliases in the form that clients receive, in order of alias."""
    return tuple(
        Alias(alias, txn.collections.require(collection).name)
        for alias, collection in aliases_of(txn, tenant_id)
    )


def set_analyzer(txn: Txn, collection: int, analyzer: str) -> bool:
    """Changes the analyzer in the settings of a collection that exists.

    Returns False, and writes nothing, if the collection already has this analyzer.
    """
    record = txn.collections.require(collection)
    if record.settings.analyzer == analyzer:
        return False
    changed = replace(record, settings=replace(record.settings, analyzer=analyzer))
    txn.collections.put(collection, changed)
    return True


def describe_collection(txn: Txn, collection: int) -> Collection:
    """Returns a collection that exists in this transaction, in the form that clients receive."""
    record = txn.collections.require(collection)
    documents = txn.counters.require(collection).documents
    return Collection(record.tenant_id, record.name, record.settings, documents)


def handle_of(txn: Txn, collection: int) -> CollectionHandle:
    """Returns the handle (tenant, name, id and settings) of a collection, which must exist."""
    record = txn.collections.require(collection)
    return CollectionHandle(record.tenant_id, record.name, collection, record.settings)


def listed_segments(txn: Txn, collection: int) -> list[SegmentRecord]:
    """Returns the collection's manifest: the records of its segments, in order of their ordinals.

    The segment with the oldest documents comes first. Raises DataLoss if a record is damaged.
    """
    return list(txn.segments.values(collection))


def is_listed(txn: Txn, collection: int, record: SegmentRecord) -> bool:
    """Returns True if the collection's manifest contains a segment record equal to `record`.

    Reads only the entry of this segment, so damage to other entries has no effect. Returns False if
    the entry of this segment is damaged.
    """
    return txn.segments.get_sound((collection, record.last_ordinal)) == record


def all_segments(txn: Txn) -> Iterator[tuple[int, SegmentRecord]]:
    """Yields every segment of the store with the id of its collection.

    Segments of a deleted collection are included until maintenance deletes them. Damaged records
    are skipped, because the damage is reported when the collection is read.
    """
    for (collection, _), record in txn.segments.sound_entries():
        yield collection, record


def address_of(txn: Txn, collection: int, ordinal: int) -> bytes:
    """Returns a document's address: its slot, collection id and ordinal, encoded as bytes.

    Raises DataLoss if the document's entry in the database `ordinals` is missing or damaged.
    """
    entry = txn.ordinals.require((collection, ordinal))
    return schema.address(entry.slot, collection, ordinal)


def is_living(txn: Txn, collection: int, ordinal: int) -> bool:
    """Returns True if a document with this ordinal exists in this transaction."""
    return ordinal <= MAX_ORDINAL and txn.ordinals.has((collection, ordinal))


def find_document(txn: Txn, collection: int, document_id: str) -> tuple[int, DocumentRecord | None]:
    """Returns the ordinal and the record of the document with this id.

    Returns 0 and None if no document has this id.
    """
    ordinal = txn.document_ids.get((collection, document_id))
    if ordinal is None:
        return 0, None
    return ordinal, txn.documents.require(address_of(txn, collection, ordinal))


def existing_document(
    txn: Txn, handle: CollectionHandle, document_id: str
) -> tuple[int, DocumentRecord]:
    """Returns the ordinal and the record of a document of an existing collection.

    Raises DocumentNotFound or DataLoss.
    """
    ordinal, document = find_document(txn, handle.collection_id, document_id)
    if document is None:
        raise no_document(handle, document_id)
    return ordinal, document


def document_with_text(
    txn: Txn,
    handle: CollectionHandle,
    document_id: str,
    part: ByteRange | None,
    reply: ReplyLimit,
) -> tuple[DocumentInfo, str, int]:
    """Returns a document, the requested part of its text, and the byte at which the part ends.

    The collection must exist. Implements `hrag.engine.Writer.document_with_text`.
    """
    ordinal, document = existing_document(txn, handle, document_id)
    text = txn.contents.text(address_of(txn, handle.collection_id, ordinal))
    info = document.info()
    return info, *read_part(text, part, reply.after(field_bytes(info_bytes(info))))


def erase_document(
    txn: Txn, ordinal: int, document: DocumentRecord, *, keep_slot: bool = False
) -> int:
    """Deletes one version of a document. Returns the count of filter terms of this version.

    Changes neither the document's entry in `document_ids`, nor the collection's counters, nor the
    change log. With `keep_slot`, the record, text, tree, vectors and original are kept, because the
    caller will overwrite them with the next version of the document.
    """
    address = address_of(txn, document.collection, ordinal)
    terms = terms_of(document)
    for term in terms:
        txn.terms.remove(term, ordinal)
    erase_entries(txn, document.collection, ordinal, None if keep_slot else address)
    return len(terms)


def erase_entries(txn: Txn, collection: int, ordinal: int, address: bytes | None) -> None:
    """Deletes a document's record, content and original, and the entries under its ordinal.

    The entries under its ordinal are in the databases `ordinals`, `unsummarised` and `summarised`.
    The document's slot, which is the first part of `address`, becomes free for another document. If
    `address` is None, deletes only the entries under the ordinal.
    """
    for table in (txn.ordinals, txn.unsummarised, txn.summarised):
        table.delete((collection, ordinal))
    if address is not None:
        slot = address[: schema.SLOT_BYTES]
        txn.contents.delete(slot)
        txn.documents.delete(address)
        txn.free_slots.add(slot)
