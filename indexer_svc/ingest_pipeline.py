"""Ingestion of a document: check, admit, cut, embed, commit.

Each step is one method: a single document passes through them in a row, a stream of
documents runs them in parallel (`bulk`). Cheap checks come first, and a document that is
stored already is recognised by its hash before anything is extracted or embedded. Nothing
is visible before the commit at the end.
"""

import hashlib
from collections.abc import Container, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from hrag.engine import Admission, CollectionHandle, PreparedDocument, Writer
from hrag.models.embedding import Embedder, Vectors
from hrag.models.embedding.none import NoEmbedder
from hrag.models.embedding.vector_checks import check_embedder
from hrag.observe import metrics
from hrag.passages.indexed_text import indexed_leaves
from hrag.text.analysis import DEFAULT_LANGUAGE, analyzer_name
from hrag.values import canonical_json, ids
from hrag.values.collections import (
    NO_EMBEDDER,
    Collection,
    CollectionSettings,
    SettingsRequest,
    SummaryUnit,
    TreeSettings,
)
from hrag.values.deadline import Deadline
from hrag.values.documents import Document, IngestResult
from hrag.values.errors import (
    CollectionExists,
    CollectionNotFound,
    HragError,
    InvalidArgument,
)
from hrag.values.limits import DEFAULT_COLLECTION
from hrag.values.tree import CHUNK, ParsedText, Tree
from indexer_svc.chunker import build_tree
from indexer_svc.document_limits import check_leaves, check_limits
from indexer_svc.extract import TenantParse, extract, no_parser
from indexer_svc.mime_types import resolve_mime_type

# Part of every content hash: raised when documents are read or cut in another way, so that
# ingesting them again does not count as UNCHANGED.
_PIPELINE_VERSION = b"3"
_FLOAT32_BYTES = 4


@dataclass(frozen=True, slots=True)
class Defaults:
    """Settings of a new collection that its creator does not set, and the largest body.

    `language` is that of the analyzer.
    """

    tree: TreeSettings
    max_document_bytes: int
    summaries: SummaryUnit = SummaryUnit.NONE
    language: str = DEFAULT_LANGUAGE


Key = tuple[str, str, str]
"""Identifies a document: tenant, collection, document id."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A document with its id, within every limit that can be checked without its body.

    `metadata_json` is the canonical JSON of its metadata.
    """

    tenant_id: str
    collection: str
    document: Document
    metadata_json: bytes
    content_hash: str

    @property
    def key(self) -> Key:
        return self.tenant_id, self.collection, self.document.document_id


@dataclass(frozen=True, slots=True)
class Pending:
    """A document that is admitted to its collection and not stored in this version yet."""

    collection: CollectionHandle
    document: Document
    metadata_json: bytes
    content_hash: str

    @property
    def key(self) -> Key:
        """With the collection's own name, also if the document was sent to an alias."""
        return self.collection.tenant_id, self.collection.name, self.document.document_id


@dataclass(frozen=True, slots=True)
class Ready:
    """A document that is ready to be committed."""

    collection: CollectionHandle
    document: PreparedDocument


@dataclass(frozen=True, slots=True)
class Draft:
    """A document with its tree, before its vectors."""

    pending: Pending
    title: str
    parsed: ParsedText
    tree: Tree

    @property
    def leaf_count(self) -> int:
        """Number of texts to embed."""
        return self.tree.counts[self._settings.tree.embedding_level]

    @property
    def size_bytes(self) -> int:
        """Bytes of text, tree and vectors: the least that the stored document takes."""
        text = self.tree.record(self.tree.top_level, self.tree.counts[-1] - 1).byte_end
        tree = sum(self.tree.counts) * CHUNK.itemsize
        return text + tree + self.vector_bytes

    @property
    def vector_bytes(self) -> int:
        """Bytes of the vectors of all leaves."""
        return self.leaf_count * self._settings.dimension * _FLOAT32_BYTES

    @property
    def has_vectors(self) -> bool:
        """Whether its leaves are to be embedded."""
        return self._settings.dimension > 0

    def leaf_texts(self) -> list[str]:
        """The texts to embed, in order; none in a collection without vectors."""
        if not self.has_vectors:
            return []
        indexed = indexed_leaves(
            self.parsed.text,
            self.title,
            self.parsed.sections,
            self.tree,
            self._settings.tree.embedding_level,
            headings=self._settings.index_headings,
        )
        return [each.embedded for each in indexed]

    def with_vectors(self, vectors: Vectors) -> Ready:
        """The document with its vectors, `float32[leaf_count, dimension]`."""
        document = self.pending.document
        prepared = PreparedDocument(
            document_id=document.document_id,
            title=self.title,
            source=document.source,
            mime_type=resolve_mime_type(document),
            metadata=document.metadata,
            content_hash=self.pending.content_hash,
            parsed=self.parsed,
            tree=self.tree,
            vectors=vectors,
            metadata_json=self.pending.metadata_json,
        )
        return Ready(self.pending.collection, prepared)

    @property
    def _settings(self) -> CollectionSettings:
        return self.pending.collection.settings


class Pipeline:
    """Ingests documents; safe to call from several threads."""

    def __init__(
        self,
        writer: Writer,
        embedder: Embedder,
        defaults: Defaults,
        parse: TenantParse = no_parser,
    ) -> None:
        """`parse` reads the formats that this process does not read itself."""
        self._writer = writer
        self._embedder = embedder
        self._defaults = defaults
        self._parse = parse

    def create_collection(
        self, tenant_id: str, name: str, request: SettingsRequest
    ) -> tuple[Collection, int]:
        """Creates a collection with this service's embedder; returns it and its sequence.

        Raises InvalidArgument, CollectionExists or StorageQuotaExceeded.
        """
        ids.check_tenant_id(tenant_id)
        ids.check_collection_name(name, "name")
        embedder = self._embedder_of(request)
        language = self._defaults.language if request.analyzer is None else request.analyzer
        settings = CollectionSettings(
            tree=_tree_settings(request, self._defaults.tree),
            embedder=embedder.name,
            dimension=embedder.dimension,
            return_level=request.return_level,
            summaries=self._summaries_of(request, embedder),
            analyzer=analyzer_name(language),
            index_headings=request.index_headings is not False,
        )
        if settings.tree.leaf_tokens > embedder.max_tokens:
            raise InvalidArgument(
                f"level_sizes gives leaves of up to {settings.tree.leaf_tokens} tokens; "
                f"embedder {embedder.name} takes at most {embedder.max_tokens}",
                field="level_sizes",
            )
        return self._writer.create_collection(tenant_id, name, settings)

    def _embedder_of(self, request: SettingsRequest) -> Embedder:
        """The service's embedder, or none; raises InvalidArgument for any other."""
        if request.embedder == NO_EMBEDDER:
            return NoEmbedder()
        if request.embedder not in (None, self._embedder.name):
            raise InvalidArgument(
                f"embedder is {request.embedder!r}; it must be empty for this indexer's, "
                f"{self._embedder.name!r}, or {NO_EMBEDDER!r} for a collection without vectors",
                field="embedder",
            )
        return self._embedder

    def _summaries_of(self, request: SettingsRequest, embedder: Embedder) -> SummaryUnit:
        """Summaries have vectors, so a collection without an embedder has none."""
        has_vectors = embedder.dimension > 0
        if request.summaries is None:
            return self._defaults.summaries if has_vectors else SummaryUnit.NONE
        if request.summaries is not SummaryUnit.NONE and not has_vectors:
            raise InvalidArgument(
                f"summaries is {request.summaries.value!r}; a collection without vectors "
                "(embedder 'none') has no summaries",
                field="summaries",
            )
        return request.summaries

    def ingest(
        self, tenant_id: str, collection: str, document: Document, deadline: Deadline
    ) -> IngestResult:
        """Stores one document unless it is stored already.

        Raises what the steps raise.
        """
        admitted = self.admit(self.check(tenant_id, collection, document))
        if isinstance(admitted, IngestResult):
            return admitted
        draft = self.cut(admitted, deadline)
        stored = self.admit_draft(draft)
        if stored is not None:
            return stored
        ready = self.embed([draft], deadline)
        deadline.check("embedding")
        self.wait_for_capacity(admitted.collection, deadline)
        (result,) = self.commit(ready)
        if isinstance(result, HragError):
            raise result
        return result

    def check(self, tenant_id: str, collection: str, document: Document) -> Checked:
        """Checks everything except the body; derives the id of a document without one.

        Raises InvalidArgument or TooLarge.
        """
        ids.check_tenant_id(tenant_id)
        ids.check_collection_name(collection)
        metadata_json = canonical_json.encode(document.metadata)
        check_limits(document, metadata_json)
        if not document.document_id:
            document = replace(document, document_id=derived_id(document))
        content_hash = hash_document(document, metadata_json)
        return Checked(tenant_id, collection, document, metadata_json, content_hash)

    def admit(self, checked: Checked, superseded: Container[Key] = ()) -> IngestResult | Pending:
        """Returns the result of the stored document if it is the same, else what to store.

        Of documents in `superseded`, another version is on its way, so that the stored one does
        not count. Raises CollectionNotFound, StorageQuotaExceeded or EmbedderMismatch.
        """
        admission = self._admit(checked, checked.content_hash)
        pending = Pending(
            admission.collection, checked.document, checked.metadata_json, checked.content_hash
        )
        if admission.unchanged is not None and pending.key not in superseded:
            return admission.unchanged
        settings = admission.collection.settings
        if settings.dimension:
            # The dimension may need a request to an endpoint, so `embed` compares it.
            check_embedder(settings, self._embedder.name)
        return pending

    def _admit(self, checked: Checked, content_hash: str) -> Admission:
        """Creates the default collection if it is missing."""
        tenant_id, collection, document_id = checked.key
        try:
            return self._writer.admit(tenant_id, collection, document_id, content_hash)
        except CollectionNotFound:
            if collection != DEFAULT_COLLECTION:
                raise
        with suppress(CollectionExists):  # A concurrent first ingest created it.
            self.create_collection(tenant_id, collection, SettingsRequest())
        return self._writer.admit(tenant_id, collection, document_id, content_hash)

    def admit_draft(self, draft: Draft, *, superseded: bool = False) -> IngestResult | None:
        """Admits a document again, now that its size is known: embedding may cost money.

        Returns the stored document's result if the same was stored meanwhile, else None.
        Raises CollectionNotFound or StorageQuotaExceeded.
        """
        pending = draft.pending
        return self._writer.admit(
            pending.collection.tenant_id,
            pending.collection.name,
            pending.document.document_id,
            "" if superseded else pending.content_hash,
            draft.size_bytes,
        ).unchanged

    def cut(self, pending: Pending, deadline: Deadline) -> Draft:
        """Extracts the text and builds its tree.

        Raises InvalidArgument, TooLarge, BlankDocument, UnreadableDocument, DeadlineExceeded,
        or TooBusy or ServiceUnavailable if there is no parser for the document now.
        """
        with metrics.ingest_stage("extract"):
            parse = partial(self._parse, pending.collection.tenant_id, deadline)
            extracted = extract(pending.document, self._defaults.max_document_bytes, parse)
        deadline.check("extracting")
        with metrics.ingest_stage("cut"):
            tree = build_tree(extracted.parsed, pending.collection.settings.tree)
        deadline.check("chunking")
        title = pending.document.title or extracted.title
        draft = Draft(pending, title, extracted.parsed, tree)
        check_leaves(draft.leaf_count, draft.vector_bytes)
        return draft

    def embed(self, drafts: Sequence[Draft], deadline: Deadline) -> list[Ready]:
        """Embeds the leaves of all drafts in one request; raises if any of them fails.

        Raises EmbedderMismatch, EmbedderRejected, EmbedderUnavailable or DeadlineExceeded.
        """
        for draft in drafts:
            settings = draft.pending.collection.settings
            if draft.has_vectors:
                check_embedder(settings, self._embedder.name, self._embedder.dimension)
        texts = [draft.leaf_texts() for draft in drafts]
        vectors = self._embedded([text for of_draft in texts for text in of_draft], deadline)
        ends = accumulate(map(len, texts))
        return [
            draft.with_vectors(vectors[end - len(own) : end] if own else _no_vectors(draft))
            for draft, own, end in zip(drafts, texts, ends, strict=True)
        ]

    def _embedded(self, texts: Sequence[str], deadline: Deadline) -> Vectors:
        if not texts:
            return np.empty((0, 0), np.float32)
        with metrics.ingest_stage("embed"):
            return self._embedder.embed(texts, deadline)

    def wait_for_capacity(self, collection: CollectionHandle, deadline: Deadline) -> None:
        """Waits while indexing is too far behind the writes; raises DeadlineExceeded."""
        self._writer.wait_for_capacity(collection, deadline)

    def commit(self, ready: Sequence[Ready]) -> list[IngestResult | HragError]:
        """Stores documents in one commit; returns each one's result or its own error.

        Raises what concerns all of them, such as StorageFull; then none is stored.
        """
        with metrics.ingest_stage("commit"):
            return self._writer.put_many([(each.collection, each.document) for each in ready])


def _no_vectors(draft: Draft) -> Vectors:
    return np.empty((draft.leaf_count, 0), np.float32)


def hash_document(document: Document, metadata_json: bytes | None = None) -> str:
    """A BLAKE2b hash of everything that a client sends of a document, except its id.

    Equal hashes mean UNCHANGED. Different names of one MIME type are equal, and bytes that
    are read as text are equal to that text. Raises InvalidArgument for an unknown type.
    """
    if metadata_json is None:
        metadata_json = canonical_json.encode(document.metadata)
    digest = hashlib.blake2b(_PIPELINE_VERSION, digest_size=32)
    for part in (document.title, document.source, resolve_mime_type(document)):
        _feed(digest, part.encode())
    _feed(digest, metadata_json)
    _feed_body(digest, document)
    return digest.hexdigest()


def derived_id(document: Document) -> str:
    """The id of a document that comes without one: a hash of its body."""
    digest = hashlib.blake2b(digest_size=16)
    _feed_body(digest, document)
    return f"b2-{digest.hexdigest()}"


def _feed_body(digest: "hashlib.blake2b", document: Document) -> None:
    body = document.body
    if isinstance(body, str):
        _feed(digest, _utf8(body))
    elif isinstance(body, bytes):
        _feed(digest, body)
    else:
        for page in body:
            _feed(digest, _utf8(page.text))
            _feed(digest, str(page.number).encode())


def _feed(digest: "hashlib.blake2b", part: bytes) -> None:
    """Adds a part with its length, so that "ab", "c" differs from "a", "bc"."""
    digest.update(len(part).to_bytes(8, "big"))
    digest.update(part)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # Extraction reports surrogates.


def _tree_settings(request: SettingsRequest, defaults: TreeSettings) -> TreeSettings:
    def given(value: Any, default: Any) -> Any:
        return default if value is None else value

    return TreeSettings(
        given(request.level_sizes, defaults.level_sizes),
        given(request.overlap_ratio, defaults.overlap_ratio),
        given(request.embedding_level, defaults.embedding_level),
    )
