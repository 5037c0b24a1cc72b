"""What an open store contains, with the part of the client that `verify.settle` uses.

So a test can verify many stores without starting services on each.
"""

from dataclasses import replace

from hrag.engine.common.validation import no_original
from hrag.engine.embedded.store.queries import address_of, find_document
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.types import DEFAULT_COLLECTION, Collection, DocumentInfo, Listing, OriginalPart


class StoredDocuments:
    """The collections and documents of a store. Without `revisions`, as if none were revised."""

    def __init__(self, writer: EmbeddedWriter, *, revisions: bool = True) -> None:
        self._writer = writer
        self._revisions = revisions

    def list_collections(self, tenant_id: str, *, page_size: int) -> Listing[Collection]:
        return self._writer.collections(tenant_id, page_size, "")

    def list_documents(
        self, tenant_id: str, *, collection: str = DEFAULT_COLLECTION, page_size: int
    ) -> Listing[DocumentInfo]:
        handle = self._writer.open(tenant_id, collection)
        listing = self._writer.documents(handle, page_size, "")
        if self._revisions:
            return listing
        items = tuple(
            replace(item, metadata={"version": item.metadata["version"]}) for item in listing.items
        )
        return replace(listing, items=items)

    def get_text(
        self, tenant_id: str, document_id: str, *, collection: str = DEFAULT_COLLECTION
    ) -> str:
        handle = self._writer.open(tenant_id, collection)
        return self._writer.document_with_text(handle, document_id)[1]

    def get_original(
        self, tenant_id: str, document_id: str, *, collection: str = DEFAULT_COLLECTION
    ) -> OriginalPart:
        number = self._writer.open(tenant_id, collection).collection_id
        with self._writer.commits.store.read() as txn:
            ordinal, record = find_document(txn, number, document_id)
            assert record is not None
            if record.original is None:
                raise no_original(document_id)
            content = txn.originals.read_whole(address_of(txn, number, ordinal), record.original)
        assert content is not None
        return OriginalPart(document_id, "", record.mime_type, record.original, 0, content)
