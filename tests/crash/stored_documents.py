"""What an open store contains, with the part of the client that `verify.settle` uses.

So a test can verify many stores without starting services on each.
"""

from dataclasses import replace

from hrag.engine import Writer
from hrag.types import DEFAULT_COLLECTION, Collection, DocumentInfo, Listing


class StoredDocuments:
    """The collections and documents of a store. Without `revisions`, as if none were revised."""

    def __init__(self, writer: Writer, *, revisions: bool = True) -> None:
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
