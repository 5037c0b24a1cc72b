"""Lists, reads, changes and deletes stored collections, aliases and documents.

Names, filters and page tokens are checked before the writer is called.
"""

import base64
import binascii
from collections.abc import Callable, Iterator
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

from hrag.engine import CollectionHandle, Writer
from hrag.values import ids
from hrag.values.collections import Alias, AliasChange, Collection, Item, Listing
from hrag.values.deadline import NEVER, Deadline
from hrag.values.documents import (
    ByteRange,
    DocumentCount,
    DocumentDeletion,
    DocumentInfo,
    MetadataChange,
    MetadataUpdate,
)
from hrag.values.errors import CollectionNotFound, InvalidArgument
from hrag.values.filters import Filter, check_filter
from hrag.values.limits import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE
from hrag.values.quotas import Tenant
from hrag.values.reply_limit import UNLIMITED, ReplyLimit
from hrag.values.status import IndexStatus
from hrag.values.tree import ParsedText
from indexer_svc.metadata_update import check_change, update_metadata

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class StoredCatalog:
    """The collections and documents of all tenants. Safe to call from several threads.

    Methods raise InvalidArgument for malformed names, page tokens and filters. Each method also
    raises the errors of the method of `Writer` that it calls.
    """

    def __init__(self, writer: Writer, reply: ReplyLimit = UNLIMITED) -> None:
        """Uses the store of `writer`. `reply` limits the size of each reply, in bytes."""
        self._writer = writer
        self._reply = reply

    def tenants(
        self, page_size: int, page_token: str, deadline: Deadline = NEVER
    ) -> Listing[Tenant]:
        """Returns one page of the tenants that have a collection, in order of id.

        A `page_size` of 0 means DEFAULT_PAGE_SIZE.
        """
        page = _checked_page_size(page_size), _decode_page_token(page_token)
        return _with_opaque_token(self._writer.tenants(*page, deadline))

    def collection(self, tenant_id: str, name: str) -> Collection:
        """Returns the collection that has this name or alias."""
        return self._writer.collection(*_check_names(tenant_id, name, "name"))

    def collections(self, tenant_id: str, page_size: int, page_token: str) -> Listing[Collection]:
        """Returns one page of the tenant's collections, in order of name.

        A `page_size` of 0 means DEFAULT_PAGE_SIZE.
        """
        ids.check_tenant_id(tenant_id)
        page = _checked_page_size(page_size), _decode_page_token(page_token)
        return _with_opaque_token(self._writer.collections(tenant_id, *page))

    def delete_collection(self, tenant_id: str, name: str) -> int:
        """Deletes a collection; returns the sequence number of the deletion."""
        return self._writer.delete_collection(*_check_names(tenant_id, name, "name"))

    def set_alias(self, tenant_id: str, alias: str, collection: str) -> AliasChange:
        """Creates an alias of a collection, or changes an existing alias to this collection."""
        ids.check_collection_name(alias, "alias")
        return self._writer.set_alias(
            ids.check_tenant_id(tenant_id), alias, ids.check_collection_name(collection)
        )

    def delete_alias(self, tenant_id: str, alias: str) -> int:
        """Deletes an alias; returns the sequence number of the deletion."""
        return self._writer.delete_alias(*_check_names(tenant_id, alias, "alias"))

    def aliases(self, tenant_id: str) -> tuple[Alias, ...]:
        """Returns all aliases of the tenant, in order of name."""
        return self._writer.aliases(ids.check_tenant_id(tenant_id))

    def document(self, tenant_id: str, collection: str, document_id: str) -> DocumentInfo:
        """Returns the fields of one document, without the document's text."""
        ids.check_document_id(document_id)
        return self._with(tenant_id, collection, self._writer.document, document_id)

    def document_with_text(
        self, tenant_id: str, collection: str, document_id: str, part: ByteRange | None = None
    ) -> tuple[DocumentInfo, str, int]:
        """Returns one document's fields, its text, and the byte offset at which this text ends.

        With `part`, returns only this range of the document's text. If the range does not fit into
        a reply, returns as much of its beginning as fits. The returned offset counts from the
        beginning of the document's text.
        """
        ids.check_document_id(document_id)
        read = self._writer.document_with_text
        return self._with(tenant_id, collection, read, document_id, part, self._reply)

    def opened_document(
        self, tenant_id: str, collection: str, document_id: str
    ) -> tuple[CollectionHandle, DocumentInfo]:
        """Returns the handle of a collection, and the fields of one of its documents."""
        ids.check_document_id(document_id)

        def read(handle: CollectionHandle) -> tuple[CollectionHandle, DocumentInfo]:
            return handle, self._writer.document(handle, document_id)

        return self._with(tenant_id, collection, read)

    def document_with_original(
        self, collection: CollectionHandle, document_id: str
    ) -> tuple[DocumentInfo, ParsedText, bytes]:
        """Returns one document's fields, its text with its pages, and its original."""
        return self._writer.document_with_original(collection, document_id)

    def documents(
        self,
        tenant_id: str,
        collection: str,
        page_size: int,
        page_token: str,
        filter: Filter | None = None,
        deadline: Deadline = NEVER,
    ) -> Listing[DocumentInfo]:
        """Returns one page of the documents that pass `filter`, in order of id.

        Without a filter, returns all documents. A `page_size` of 0 means DEFAULT_PAGE_SIZE.
        """
        page = _checked_page_size(page_size), _decode_page_token(page_token)
        _check_optional_filter(filter)
        read = partial(self._writer.documents, filter=filter, deadline=deadline)
        return _with_opaque_token(self._with(tenant_id, collection, read, *page, self._reply))

    def count(
        self, tenant_id: str, collection: str, filter: Filter | None, deadline: Deadline = NEVER
    ) -> DocumentCount:
        """Counts the documents that pass `filter`, or all documents if there is no filter."""
        _check_optional_filter(filter)
        return self._with(tenant_id, collection, self._writer.count, filter, deadline)

    def update_metadata(
        self,
        tenant_id: str,
        collection: str,
        document_id: str,
        change: MetadataChange,
        deadline: Deadline,
    ) -> MetadataUpdate:
        """Changes a document's metadata and source.

        Raises the errors of `metadata_update.update_metadata`.
        """
        ids.check_document_id(document_id)
        check_change(change)
        update = partial(update_metadata, self._writer)
        return self._with(tenant_id, collection, update, document_id, change, deadline)

    def delete_document(self, tenant_id: str, collection: str, document_id: str) -> int:
        """Deletes a document; returns the sequence number of the deletion."""
        ids.check_document_id(document_id)
        return self._with(tenant_id, collection, self._writer.delete, document_id)

    def delete_documents(
        self, tenant_id: str, collection: str, filter: Filter | None, deadline: Deadline
    ) -> Iterator[DocumentDeletion]:
        """Deletes the documents that pass `filter`, in several commits.

        Yields, after each commit, what `Writer.delete_matching` yields: the count of deleted
        documents. Raises InvalidArgument if there is no filter.
        """
        if filter is None:
            raise InvalidArgument(
                "filter is missing; DeleteDocuments deletes the documents that pass a filter, "
                "DeleteCollection deletes a whole collection",
                field="filter",
            )
        check_filter(filter)
        return self._delete_matching(self._open(tenant_id, collection), filter, deadline)

    def _delete_matching(
        self, opened: CollectionHandle, filter: Filter, deadline: Deadline
    ) -> Iterator[DocumentDeletion]:
        try:
            yield from self._writer.delete_matching(opened, filter, deadline)
        except CollectionNotFound as error:
            current = self._replacement_of(opened, error)
            yield from self._writer.delete_matching(current, filter, deadline)

    def status(self, tenant_id: str, collection: str) -> IndexStatus:
        """Returns the size and the state of a collection, and the usage of its tenant."""
        return self._with(tenant_id, collection, self._writer.status)

    def _with(
        self,
        tenant_id: str,
        collection: str,
        call: Callable[Concatenate[CollectionHandle, Arguments], Result],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Result:
        """Calls `call` with the handle of a collection.

        If another collection has got the name meanwhile, for example because the collection was
        embedded again, calls `call` again with this one.
        """
        opened = self._open(tenant_id, collection)
        try:
            return call(opened, *args, **kwargs)
        except CollectionNotFound as error:
            return call(self._replacement_of(opened, error), *args, **kwargs)

    def _replacement_of(
        self, deleted: CollectionHandle, error: CollectionNotFound
    ) -> CollectionHandle:
        """Returns the collection that now has the name of a deleted one, or raises `error`."""
        current = self._writer.open(deleted.tenant_id, deleted.name)
        if current.collection_id == deleted.collection_id:
            raise error
        return current

    def _open(self, tenant_id: str, collection: str) -> CollectionHandle:
        return self._writer.open(*_check_names(tenant_id, collection, "collection"))


def _check_names(tenant_id: str, name: str, field: str) -> tuple[str, str]:
    return ids.check_tenant_id(tenant_id), ids.check_collection_name(name, field)


def _check_optional_filter(filter: Filter | None) -> None:
    if filter is not None:
        check_filter(filter)


def _checked_page_size(value: int) -> int:
    if value > MAX_PAGE_SIZE:
        raise InvalidArgument(
            f"page_size is {value}; it must be from 0 to {MAX_PAGE_SIZE}", field="page_size"
        )
    return value or DEFAULT_PAGE_SIZE


def _with_opaque_token(listing: Listing[Item]) -> Listing[Item]:
    """Returns the listing with `next_page_token` in Base64, so that clients do not interpret it."""
    token = base64.urlsafe_b64encode(listing.next_page_token.encode()).decode()
    return Listing(listing.items, token)


def _decode_page_token(page_token: str) -> str:
    """Returns the tenant id, collection name or document id after which a page begins.

    `page_token` is a token that `_with_opaque_token` has encoded. For the first page, `page_token`
    and the returned name or id are empty.
    """
    if not page_token:
        return ""
    try:
        name = base64.b64decode(page_token, altchars=b"-_", validate=True).decode("ascii")
        return ids.check_document_id(name)
    except (binascii.Error, ValueError, InvalidArgument):
        raise InvalidArgument(
            f"page_token is {ids.quoted(page_token)}; it must be empty or the next_page_token "
            "of the previous page",
            field="page_token",
        ) from None
