"""The asyncio client's methods for collections and documents. Module `aio` sends the calls.

`sync_catalog.py` is generated from this module, as `sync.py` is generated from `aio.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from hrag.client import calls
from hrag.client.argument_checks import checked_timeout
from hrag.values.collections import (
    Alias,
    AliasChange,
    Collection,
    Listing,
    ReembedProgress,
    SettingsRequest,
)
from hrag.values.deadline import Deadline
from hrag.values.documents import (
    Document,
    DocumentCount,
    DocumentDeletion,
    DocumentInfo,
    IngestResult,
    MetadataChange,
    MetadataUpdate,
)
from hrag.values.errors import InvalidArgument
from hrag.values.filters import Filter
from hrag.values.ids import quoted
from hrag.values.limits import DEFAULT_COLLECTION
from hrag.values.quotas import Tenant
from hrag.values.status import IndexStatus

_NO_SETTINGS = SettingsRequest()
_NO_METADATA: Mapping[str, Any] = {}


class AsyncCatalog(ABC):
    """The methods of a client that manage collections, aliases and documents."""

    _timeout_s: float

    @abstractmethod
    async def _run(
        self, call: calls.ClientCall[calls.Result], timeout_s: float | None
    ) -> calls.Result:
        """Sends a call and returns the result that `call.read` makes from the response."""

    async def _read_whole(
        self,
        part: calls.Part,
        next_call: Callable[[calls.Part], calls.ClientCall[calls.Part]],
        timeout_s: float | None,
    ) -> calls.Part:
        """Reads a text or a file by several calls, and returns all of it.

        `part` is empty, and `next_call` builds the call that reads more. `timeout_s` is the
        deadline of all calls together.
        """
        timeout_s = checked_timeout(self._timeout_s if timeout_s is None else timeout_s)
        deadline = Deadline.after(timeout_s)
        while not part.is_whole:
            try:
                part = await self._run(next_call(part), deadline.remaining_s)
            except InvalidArgument as error:
                part = part.after(error)
        return part

    async def list_tenants(
        self, *, page_size: int = 0, page_token: str = "", timeout_s: float | None = None
    ) -> Listing[Tenant]:
        """Returns one page of the tenants that have a collection, ordered by id, with their usage.

        `page_size` and `page_token` are as in `list_collections`. Raises PermissionDenied unless
        the credential has the role admin for all tenants, or the service needs no credential.
        """
        return await self._run(calls.list_tenants(page_size, page_token), timeout_s)

    async def create_collection(
        self,
        tenant_id: str,
        name: str,
        settings: SettingsRequest = _NO_SETTINGS,
        *,
        timeout_s: float | None = None,
    ) -> Collection:
        """Creates a collection. If a value in `settings` is None, the indexer's setting is used.

        Returns the collection with all its settings. They never change, except for the version of
        the analyzer, which `hrag reindex` raises. Raises CollectionExists, StorageQuotaExceeded.
        """
        return await self._run(calls.create_collection(tenant_id, name, settings), timeout_s)

    async def get_collection(
        self, tenant_id: str, name: str, *, timeout_s: float | None = None
    ) -> Collection:
        """Returns a collection with its settings and document count. Raises CollectionNotFound."""
        return await self._run(calls.get_collection(tenant_id, name), timeout_s)

    async def list_collections(
        self,
        tenant_id: str,
        *,
        page_size: int = 0,
        page_token: str = "",
        timeout_s: float | None = None,
    ) -> Listing[Collection]:
        """Returns one page of the tenant's collections, ordered by name.

        `page_size` is at most 1,000; 0 means 100. `page_token` is the `next_page_token` of the
        previous page. For a tenant that does not exist, the page is empty.
        """
        return await self._run(calls.list_collections(tenant_id, page_size, page_token), timeout_s)

    async def delete_collection(
        self, tenant_id: str, name: str, *, timeout_s: float | None = None
    ) -> int:
        """Deletes a collection with all its documents.

        Returns the sequence number of the deletion. Raises CollectionNotFound. Raises
        CollectionHasAliases as long as an alias names the collection.
        """
        return await self._run(calls.delete_collection(tenant_id, name), timeout_s)

    async def reembed_collection(
        self, tenant_id: str, name: str, *, timeout_s: float | None = None
    ) -> ReembedProgress:
        """Continues to embed a collection again, with the indexer's current embedder.

        Each call works for about five seconds; call again until the result's `is_finished` is True.
        The collection may be searched and written meanwhile, and an interruption loses nothing.

        Raises CollectionNotFound, CollectionExists, CopyInProgress, EmbedderMismatch,
        EmbedderUnavailable, EmbedderRejected and StorageQuotaExceeded.
        """
        return await self._run(calls.reembed_collection(tenant_id, name), timeout_s)

    async def set_alias(
        self, tenant_id: str, alias: str, collection: str, *, timeout_s: float | None = None
    ) -> AliasChange:
        """Makes `alias` another name of a collection, even if it now names another collection.

        Every call accepts an alias as the name of a collection. A search that begins afterwards
        searches the new collection only. The returned AliasChange contains the name of the
        collection that the alias named before.

        Raises CollectionNotFound, CopyInProgress and StorageQuotaExceeded. Raises CollectionExists
        if `alias` is the name of a collection.
        """
        return await self._run(calls.set_alias(tenant_id, alias, collection), timeout_s)

    async def delete_alias(
        self, tenant_id: str, alias: str, *, timeout_s: float | None = None
    ) -> int:
        """Deletes an alias; its collection stays.

        Returns the sequence number of the deletion. Raises AliasNotFound.
        """
        return await self._run(calls.delete_alias(tenant_id, alias), timeout_s)

    async def list_aliases(
        self, tenant_id: str, *, timeout_s: float | None = None
    ) -> tuple[Alias, ...]:
        """Returns the tenant's aliases, ordered by name."""
        return await self._run(calls.list_aliases(tenant_id), timeout_s)

    async def ingest(
        self,
        tenant_id: str,
        document: Document,
        *,
        collection: str = DEFAULT_COLLECTION,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> IngestResult:
        """Stores one document completely or not at all; replaces a document with the same id.

        Returns when the document is on disk. The result contains the document's id, the outcome
        (created, updated or unchanged), the sequence number of the change, the count of chunks at
        each level, and the length in tokens. To wait until the change is visible to a
        search, pass the sequence number to `search` as `min_sequence`. If an identical document is
        stored already, the outcome is UNCHANGED and the document is not embedded again. Otherwise
        the result's report says what was read of the body.

        With `validate_only`, the document is read and checked, and nothing is stored. The result
        says what would be done.

        The collection `default` is created by its first document. Raises CollectionNotFound for
        another collection that does not exist. Also raises BlankDocument, UnreadableDocument,
        EmbedderUnavailable, EmbedderRejected, EmbedderMismatch, StorageQuotaExceeded, StorageFull.
        """
        return await self._run(
            calls.ingest(tenant_id, document, collection, validate_only), timeout_s
        )

    async def update_metadata(
        self,
        tenant_id: str,
        document_id: str,
        metadata: Mapping[str, Any] = _NO_METADATA,
        *,
        remove_keys: Sequence[str] = (),
        replace: bool = False,
        source: str | None = None,
        expected_sequence: int = 0,
        collection: str = DEFAULT_COLLECTION,
        timeout_s: float | None = None,
    ) -> MetadataUpdate:
        """Changes a document's metadata and source; its text is not cut or embedded again.

        The values in `metadata` replace the stored values of the same top-level keys; other keys
        keep their values. With `replace`, `metadata` replaces all stored metadata. The keys in
        `remove_keys` are deleted. If `source` is None, the source stays as it is. If
        `expected_sequence` is not 0 and the `sequence` of the stored DocumentInfo has another
        value, nothing is changed and DocumentChanged is raised.

        Returns the changed document; the outcome is UNCHANGED if the document already had these
        values. If the document is ingested again later, the metadata and the source of that ingest
        replace the values that this method stored.

        Raises CollectionNotFound, DocumentNotFound, DocumentChanged, StorageQuotaExceeded,
        StorageFull.
        """
        # A string is a sequence of strings too. Without this check, each of its characters would be
        # a key to remove.
        if isinstance(remove_keys, str):
            raise InvalidArgument(
                f"remove_keys is {quoted(remove_keys)}; it must be a list of keys",
                field="remove_keys",
            )
        change = MetadataChange(metadata, tuple(remove_keys), replace, source, expected_sequence)
        call = calls.update_metadata(tenant_id, document_id, change, collection)
        return await self._run(call, timeout_s)

    async def delete_document(
        self,
        tenant_id: str,
        document_id: str,
        *,
        collection: str = DEFAULT_COLLECTION,
        timeout_s: float | None = None,
    ) -> int:
        """Deletes one document; searches that begin afterwards do not find it.

        Returns the sequence number of the deletion. Raises CollectionNotFound, DocumentNotFound.
        """
        return await self._run(calls.delete_document(tenant_id, document_id, collection), timeout_s)

    async def delete_documents(
        self,
        tenant_id: str,
        filter: Filter,
        *,
        collection: str = DEFAULT_COLLECTION,
        timeout_s: float | None = None,
    ) -> DocumentDeletion:
        """Deletes the documents that pass `filter`, in many commits.

        Returns the count of deleted documents and the sequence number of the last deletion. A
        document that is written during the call may remain. If the call ends early, the documents
        that it deleted stay deleted, and a second call deletes the rest. Raises CollectionNotFound.
        """
        return await self._run(calls.delete_documents(tenant_id, filter, collection), timeout_s)

    async def get_document(
        self,
        tenant_id: str,
        document_id: str,
        *,
        filter: Filter | None = None,
        collection: str = DEFAULT_COLLECTION,
        timeout_s: float | None = None,
    ) -> DocumentInfo:
        """Returns the stored description of one document: everything except its text.

        The retriever answers this call, and also `get_text` and `get_text_part`. Raises
        CollectionNotFound. Raises DocumentNotFound if there is no such document, or if it does not
        pass `filter`.
        """
        call = calls.get_document(tenant_id, document_id, collection, filter)
        return await self._run(call, timeout_s)

    async def get_text(
        self,
        tenant_id: str,
        document_id: str,
        *,
        collection: str = DEFAULT_COLLECTION,
        timeout_s: float | None = None,
    ) -> str:
        """Returns the whole text of one version of a document.

        A long text is read by several calls; `timeout_s` is the deadline of all of them together.
        If the document is replaced meanwhile, the text is read again from the start.

        Raises CollectionNotFound and DocumentNotFound. Raises DocumentChanged if the document was
        replaced more than 10 times.
        """
        next_call = partial(calls.get_text, tenant_id, document_id, collection)
        return (await self._read_whole(calls.TextPart(), next_call, timeout_s)).text

    async def get_text_part(
        self,
        tenant_id: str,
        document_id: str,
        start: int = 0,
        end: int = 0,
        *,
        collection: str = DEFAULT_COLLECTION,
        timeout_s: float | None = None,
    ) -> tuple[str, int]:
        """Returns a part of a document's text, and the byte offset at which the part ends.

        `start` and `end` are offsets in bytes of UTF-8. An offset inside a character is moved to
        the beginning of that character. If `end` is 0, the part extends to the end of the text. If
        the part is too long for one reply, it ends before `end`. Raises CollectionNotFound or
        DocumentNotFound.
        """
        call = calls.get_text_part(tenant_id, document_id, collection, start, end)
        return await self._run(call, timeout_s)

    async def list_documents(
        self,
        tenant_id: str,
        *,
        collection: str = DEFAULT_COLLECTION,
        filter: Filter | None = None,
        page_size: int = 0,
        page_token: str = "",
        timeout_s: float | None = None,
    ) -> Listing[DocumentInfo]:
        """Returns one page of a collection's documents, ordered by id.

        If `filter`, a condition made with `hrag.filters`, is given, only documents that pass it are
        listed; pass the same filter for each page. `page_size` is at most 1,000; 0 means 100.
        `page_token` is the `next_page_token` of the previous page. No document is listed twice. A
        document that is written between the calls for two pages may be missing. Raises
        CollectionNotFound.
        """
        call = calls.list_documents(tenant_id, collection, page_size, page_token, filter)
        return await self._run(call, timeout_s)

    async def count_documents(
        self,
        tenant_id: str,
        *,
        collection: str = DEFAULT_COLLECTION,
        filter: Filter | None = None,
        timeout_s: float | None = None,
    ) -> DocumentCount:
        """Returns how many documents of a collection pass `filter`, and how many there are in all.

        If `filter` is None, all documents pass. Raises CollectionNotFound.
        """
        return await self._run(calls.count_documents(tenant_id, collection, filter), timeout_s)

    async def index_status(
        self,
        tenant_id: str,
        *,
        collection: str = DEFAULT_COLLECTION,
        timeout_s: float | None = None,
    ) -> IndexStatus:
        """Returns the size of a collection, the usage of its tenant, and the progress of indexing.

        Raises CollectionNotFound.
        """
        return await self._run(calls.index_status(tenant_id, collection), timeout_s)
