"""Reads listings of documents and collections, one page after the other."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hrag.values.collections import Collection, Listing
from hrag.values.documents import DocumentInfo
from hrag.values.filters import Filter

if TYPE_CHECKING:
    from hrag.client import Client

PAGE_SIZE = 1000


def document_pages(
    client: "Client",
    tenant: str,
    collection: str,
    filter: Filter | None = None,
    token: str = "",
    limit: int | None = None,
) -> Iterator[Listing[DocumentInfo]]:
    """Yields pages of the documents that pass `filter`, in order of id.

    The pages have at most `limit` documents in total; None means no limit. The first page begins
    where the listing that returned `token` ended. Raises CollectionNotFound, and InvalidArgument
    if no listing has returned `token`.
    """
    remaining = limit
    while remaining is None or remaining > 0:
        size = PAGE_SIZE if remaining is None else min(remaining, PAGE_SIZE)
        page = client.list_documents(
            tenant, collection=collection, filter=filter, page_size=size, page_token=token
        )
        yield page
        token = page.next_page_token
        if not token:
            return
        if remaining is not None:
            remaining -= len(page.items)


def all_documents(
    client: "Client", tenant: str, collection: str, filter: Filter | None = None
) -> Iterator[DocumentInfo]:
    """Yields the documents that pass `filter`, in order of id. Raises CollectionNotFound."""
    for page in document_pages(client, tenant, collection, filter):
        yield from page.items


def all_collections(client: "Client", tenant: str) -> Iterator[Collection]:
    """Yields every collection of a tenant, in order of name."""
    token = ""
    while True:
        page = client.list_collections(tenant, page_token=token)
        yield from page.items
        token = page.next_page_token
        if not token:
            return
