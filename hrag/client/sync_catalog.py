"""The synchronous client, made from `aio_catalog.py` by `make sync-client`: edit that instead."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from hrag.client import calls
from hrag.client.argument_checks import checked_timeout
from hrag.values.collections import Alias, AliasChange, Collection, Listing, SettingsRequest
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
from hrag.values.status import IndexStatus

_NO_SETTINGS = SettingsRequest()
_NO_METADATA: Mapping[str, Any] = {}


class Catalog(ABC):
    """Collections, their documents and what is known of both."""

    _timeout_s: float

    @abstractmethod
    def _run(self, call: calls.Call[calls.Result], timeout_s: float | None) -> calls.Result:
        """Sends the call and returns what it reads from the response."""

    def create_collection(
        self,
        tenant_id: str,
        name: str,
        settings: SettingsRequest = _NO_SETTINGS,
        *,
        timeout_s: float | None = None,
    ) -> Collection:
        """Creates a collection; what `settings` leaves out is taken from the indexer's settings.

        Returns the collection with all its settings, which never change. Raises
        CollectionExists, StorageQuotaExceeded.
        """
        return self._run(calls.create_collection(tenant_id, name, settings), timeout_s)

    def get_collection(
        self, tenant_id: str, name: str, *, timeout_s: float | None = None
    ) -> Collection:
        """Returns a collection with its settings and document count. Raises CollectionNotFound."""
        return self._run(calls.get_collection(tenant_id, name), timeout_s)

    def list_collections(
        self,
        tenant_id: str,
        *,
        page_size: int = 0,
        page_token: str = "",
        timeout_s: float | None = None,
    ) -> Listing[Collection]:
        """Returns one page of the tenant's collections, ordered by name.

        `page_size` is at most 1,000; 0 means 100. `page_token` is the `next_page_token` of the
        page before. A tenant that does not exist has no collections.
        """
        return self._run(calls.list_collections(tenant_id, page_size, page_token), timeout_s)

    def delete_collection(
        self, tenant_id: str, name: str, *, timeout_s: float | None = None
    ) -> int:
        """Deletes a collection with all its documents.

        Returns the sequence of the deletion. Raises CollectionNotFound, and
        CollectionHasAliases as long as an alias names it.
        """
        return self._run(calls.delete_collection(tenant_id, name), timeout_s)

    def set_alias(
        self, tenant_id: str, alias: str, collection: str, *, timeout_s: float | None = None
    ) -> AliasChange:
        """Makes `alias` another name of a collection; it may name another collection now.

        Every call takes an alias where it takes a collection. A search that begins afterwards
        searches the new collection alone. Returns what the alias named before.

        Raises CollectionNotFound, CollectionExists if a collection has the name,
        StorageQuotaExceeded.
        """
        return self._run(calls.set_alias(tenant_id, alias, collection), timeout_s)

    def delete_alias(self, tenant_id: str, alias: str, *, timeout_s: float | None = None) -> int:
        """Deletes an alias; its collection stays.

        Returns the sequence of the deletion. Raises AliasNotFound.
        """
        return self._run(calls.delete_alias(tenant_id, alias), timeout_s)

    def list_aliases(self, tenant_id: str, *, timeout_s: float | None = None) -> tuple[Alias, ...]:
        """Returns the tenant's aliases, ordered by name."""
        return self._run(calls.list_aliases(tenant_id), timeout_s)

    def ingest(
        self,
        tenant_id: str,
        document: Document,
        *,
        collection: str = DEFAULT_COLLECTION,
        timeout_s: float | None = None,
    ) -> IngestResult:
        """Stores one document, whole or not at all, and replaces one of the same id.

        Returns when it is on disk: its id, what was done, the sequence (a search can wait for
        it with `min_sequence`), chunks per level and length in tokens. An identical document is
        UNCHANGED and not embedded again.

        Raises CollectionNotFound (`default` is created by its first document), BlankDocument,
        UnreadableDocument, EmbedderUnavailable, EmbedderRejected, EmbedderMismatch,
        StorageQuotaExceeded, StorageFull.
        """
        return self._run(calls.ingest(tenant_id, document, collection), timeout_s)

    def update_metadata(
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
        """Changes a document's metadata and source; nothing is cut or embedded again.

        Stores `metadata` at its top-level keys, or with `replace` instead of all that is stored,
        and takes out `remove_keys`. A `source` of None stays. With `expected_sequence`, the
        `sequence` of a DocumentInfo, only that version is changed. Returns the document, and
        UNCHANGED if it was so before. Ingesting the document later replaces what was changed.

        Raises CollectionNotFound, DocumentNotFound, DocumentChanged, StorageQuotaExceeded,
        StorageFull.
        """
        if isinstance(remove_keys, str):  # Else each of its characters would be a key.
            raise InvalidArgument(
                f"remove_keys is {quoted(remove_keys)}; it must be a list of keys",
                field="remove_keys",
            )
        change = MetadataChange(metadata, tuple(remove_keys), replace, source, expected_sequence)
        call = calls.update_metadata(tenant_id, document_id, change, collection)
        return self._run(call, timeout_s)

    def delete_document(
        self,
        tenant_id: str,
        document_id: str,
        *,
        collection: str = DEFAULT_COLLECTION,
        timeout_s: float | None = None,
    ) -> int:
        """Deletes one document; searches that begin afterwards do not find it.

        Returns the sequence of the deletion. Raises CollectionNotFound, DocumentNotFound.
        """
        return self._run(calls.delete_document(tenant_id, document_id, collection), timeout_s)

    def delete_documents(
        self,
        tenant_id: str,
        filter: Filter,
        *,
        collection: str = DEFAULT_COLLECTION,
        timeout_s: float | None = None,
    ) -> DocumentDeletion:
        """Deletes the documents that pass `filter`, in many commits, and returns how many.

        One that is written meanwhile may stay. If the call ends early, what was deleted stays
        deleted, and calling again deletes the rest. Raises CollectionNotFound.
        """
        return self._run(calls.delete_documents(tenant_id, filter, collection), timeout_s)

    def get_document(
        self,
        tenant_id: str,
        document_id: str,
        *,
        collection: str = DEFAULT_COLLECTION,
        timeout_s: float | None = None,
    ) -> DocumentInfo:
        """Returns what is stored of one document, without its text.

        Raises CollectionNotFound, DocumentNotFound.
        """
        return self._run(calls.get_document(tenant_id, document_id, collection), timeout_s)

    def get_text(
        self,
        tenant_id: str,
        document_id: str,
        *,
        collection: str = DEFAULT_COLLECTION,
        timeout_s: float | None = None,
    ) -> str:
        """Returns a document's whole text, all of one version.

        A long text is read in parts, all of them within `timeout_s`, and from the start again
        if the document is replaced meanwhile. Raises CollectionNotFound, DocumentNotFound, and
        DocumentChanged if it was replaced more than 10 times.
        """
        timeout_s = checked_timeout(self._timeout_s if timeout_s is None else timeout_s)
        deadline = Deadline.after(timeout_s)
        part, of = calls.TextPart(), (tenant_id, document_id, collection)
        while not part.is_whole:
            call = calls.get_text(*of, part)
            try:
                part = self._run(call, deadline.remaining_s)
            except InvalidArgument as error:
                part = part.after(error)
        return part.text

    def get_text_part(
        self,
        tenant_id: str,
        document_id: str,
        start: int = 0,
        end: int = 0,
        *,
        collection: str = DEFAULT_COLLECTION,
        timeout_s: float | None = None,
    ) -> tuple[str, int]:
        """Returns a part of a document's text, and the byte at which it ends.

        `start` and `end` count bytes of UTF-8 and are moved to the beginning of the character
        that they lie in; an `end` of 0 is that of the text. What is longer than a reply may be
        ends earlier. Raises CollectionNotFound, DocumentNotFound.
        """
        call = calls.get_text_part(tenant_id, document_id, collection, start, end)
        return self._run(call, timeout_s)

    def list_documents(
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

        With `filter` (see `hrag.filters`), only documents that pass it; give the same one for
        each page. `page_size` is at most 1,000; 0 means 100. `page_token` is the
        `next_page_token` of the page before. No document comes twice; one that is written
        meanwhile may be missed. Raises CollectionNotFound.
        """
        call = calls.list_documents(tenant_id, collection, page_size, page_token, filter)
        return self._run(call, timeout_s)

    def count_documents(
        self,
        tenant_id: str,
        *,
        collection: str = DEFAULT_COLLECTION,
        filter: Filter | None = None,
        timeout_s: float | None = None,
    ) -> DocumentCount:
        """Counts the documents of a collection that pass `filter`, or all of them.

        Raises CollectionNotFound.
        """
        return self._run(calls.count_documents(tenant_id, collection, filter), timeout_s)

    def index_status(
        self,
        tenant_id: str,
        *,
        collection: str = DEFAULT_COLLECTION,
        timeout_s: float | None = None,
    ) -> IndexStatus:
        """Returns how much a collection and its tenant hold, and how far indexing has come.

        Raises CollectionNotFound.
        """
        return self._run(calls.index_status(tenant_id, collection), timeout_s)
