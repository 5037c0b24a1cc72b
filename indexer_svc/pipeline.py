"""From a document to a commit: check, look up, cut, embed, commit.

One step is one method, so that a single document goes through them in a row and many
documents overlap in them (`bulk`). The cheap and final checks come first, and a document
that is stored already is recognised by its hash before anything is extracted or embedded.
Nothing is visible before the commit at the end.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from hrag import ids, metrics
from hrag.deadline import Deadline
from hrag.embedding import Embedder, Vectors
from hrag.embedding.checks import check_embedder
from hrag.engine import OpenCollection, PreparedDocument, Writer
from hrag.errors import (
    CollectionExists,
    CollectionNotFound,
    HragError,
    InvalidArgument,
    TooLarge,
)
from hrag.tree import CHUNK, ParsedText, Tree
from hrag.types import (
    DEFAULT_COLLECTION,
    MAX_METADATA_BYTES,
    MAX_TITLE_BYTES,
    Collection,
    CollectionSettings,
    Document,
    IngestResult,
    SettingsRequest,
    SummaryUnit,
    TreeSettings,
)
from indexer_svc.chunker import build_tree
from indexer_svc.extract import extract, resolve_mime_type

MAX_SOURCE_BYTES = 2048

# Part of every content hash: a change in how documents are read or cut must not read as
# UNCHANGED. 2: titles are taken from documents.
_CUTTING_VERSION = b"2"
_NUMBER_BYTES = 4  # Of a float32.


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a collection gets where its creator does not say."""

    tree: TreeSettings
    max_document_bytes: int
    summaries: SummaryUnit = SummaryUnit.NONE


Key = tuple[str, str, str]
"""What tells a document from all others: tenant, collection, document id."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A document within every limit that can be told before it is read, with its id."""

    tenant_id: str
    collection: str
    document: Document
    content_hash: str

    @property
    def key(self) -> Key:
        return self.tenant_id, self.collection, self.document.document_id


@dataclass(frozen=True, slots=True)
class Pending:
    """A document that is not stored like this yet, and the collection it is for."""

    collection: OpenCollection
    document: Document
    content_hash: str


@dataclass(frozen=True, slots=True)
class Ready:
    """A document that lacks nothing but its commit."""

    collection: OpenCollection
    document: PreparedDocument


@dataclass(frozen=True, slots=True)
class Draft:
    """A document that has its tree and lacks its vectors."""

    pending: Pending
    title: str
    parsed: ParsedText
    tree: Tree

    @property
    def leaf_count(self) -> int:
        return self.tree.counts[self._settings.tree.embedding_level]

    @property
    def size_bytes(self) -> int:
        """Text, tree and the vectors to come."""
        text = self.tree.record(self.tree.top_level, self.tree.counts[-1] - 1).byte_end
        tree = sum(self.tree.counts) * CHUNK.itemsize
        vectors = self.leaf_count * self._settings.dimension * _NUMBER_BYTES
        return text + tree + vectors

    def leaf_texts(self) -> list[str]:
        """What is embedded."""
        leaves = self.tree.level(self._settings.tree.embedding_level)
        bounds = zip(leaves["char_start"].tolist(), leaves["char_end"].tolist(), strict=True)
        return [self.parsed.text[start:end] for start, end in bounds]

    def with_vectors(self, vectors: Vectors) -> Ready:
        """`vectors` is `float32[leaf_count, dimension]`."""
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
        )
        return Ready(self.pending.collection, prepared)

    @property
    def _settings(self) -> CollectionSettings:
        return self.pending.collection.settings


class Pipeline:
    """Ingests documents; safe to call from several threads."""

    def __init__(self, writer: Writer, embedder: Embedder, defaults: Defaults) -> None:
        self._writer = writer
        self._embedder = embedder
        self._defaults = defaults

    def create_collection(
        self, tenant_id: str, name: str, request: SettingsRequest
    ) -> tuple[Collection, int]:
        """Creates a collection, embedded by this service's embedder."""
        ids.check_tenant_id(tenant_id)
        ids.check_collection_name(name, "name")
        settings = CollectionSettings(
            tree=_tree_settings(request, self._defaults.tree),
            embedder=self._embedder.name,
            dimension=self._embedder.dimension,
            return_level=request.return_level,
            summaries=self._defaults.summaries if request.summaries is None else request.summaries,
        )
        if settings.tree.leaf_tokens > self._embedder.max_tokens:
            raise InvalidArgument(
                f"level_sizes gives leaves of up to {settings.tree.leaf_tokens} tokens; "
                f"embedder {self._embedder.name} takes at most {self._embedder.max_tokens}",
                field="level_sizes",
            )
        return self._writer.create_collection(tenant_id, name, settings)

    def ingest(
        self, tenant_id: str, collection: str, document: Document, deadline: Deadline
    ) -> IngestResult:
        """Stores one document, or finds it stored already."""
        found = self.look_up(self.check(tenant_id, collection, document))
        if isinstance(found, IngestResult):
            return found
        draft = self.cut(found, deadline)
        self.require_room(draft)
        ready = self.embed([draft], deadline)
        deadline.check("embedding")
        self.wait_for_room(found.collection, deadline)
        (result,) = self.commit(ready)
        if isinstance(result, HragError):
            raise result
        return result

    def check(self, tenant_id: str, collection: str, document: Document) -> Checked:
        """Looks at everything but the body; derives the id of a document without one."""
        ids.check_tenant_id(tenant_id)
        ids.check_collection_name(collection)
        document = _checked(document)
        return Checked(tenant_id, collection, document, hash_document(document))

    def look_up(self, checked: Checked, *, superseded: bool = False) -> IngestResult | Pending:
        """The stored document's result if it is this one, else what is to be stored.

        `superseded` says that what is stored counts no more: another version is on its way.
        """
        opened = self._open(checked.tenant_id, checked.collection)
        if not superseded:
            document_id = checked.document.document_id
            stored = self._writer.unchanged(opened, document_id, checked.content_hash)
            if stored is not None:
                return stored
        self._writer.require_room(opened, checked.document.document_id, 1)
        # The dimension may have to be asked of an endpoint, so it is compared by `embed`.
        check_embedder(opened.settings, self._embedder.name)
        return Pending(opened, checked.document, checked.content_hash)

    def cut(self, pending: Pending, deadline: Deadline) -> Draft:
        """Extracts the text and cuts it into its tree."""
        with metrics.ingest_stage("extract"):
            extracted = extract(pending.document, self._defaults.max_document_bytes)
        deadline.check("extracting")
        with metrics.ingest_stage("cut"):
            tree = build_tree(extracted.parsed, pending.collection.settings.tree)
        deadline.check("chunking")
        title = pending.document.title or extracted.title
        return Draft(pending, title, extracted.parsed, tree)

    def require_room(self, draft: Draft) -> None:
        """Raises StorageQuotaExceeded if the tenant has no room: embedding may cost money."""
        pending = draft.pending
        document_id = pending.document.document_id
        self._writer.require_room(pending.collection, document_id, draft.size_bytes)

    def embed(self, drafts: Sequence[Draft], deadline: Deadline) -> list[Ready]:
        """Embeds the leaves of all drafts at once; raises what fails for any of them."""
        for draft in drafts:
            settings = draft.pending.collection.settings
            check_embedder(settings, self._embedder.name, self._embedder.dimension)
        texts = [text for draft in drafts for text in draft.leaf_texts()]
        with metrics.ingest_stage("embed"):
            vectors = self._embedder.embed(texts, deadline)
        ends = accumulate(draft.leaf_count for draft in drafts)
        return [
            draft.with_vectors(vectors[end - draft.leaf_count : end])
            for draft, end in zip(drafts, ends, strict=True)
        ]

    def wait_for_room(self, collection: OpenCollection, deadline: Deadline) -> None:
        """Waits, within the deadline, while the index lags too far behind what is stored."""
        self._writer.wait_for_room(collection, deadline)

    def commit(self, ready: Sequence[Ready]) -> list[IngestResult | HragError]:
        """One commit: each document's result or own error; raises what concerns them all."""
        with metrics.ingest_stage("commit"):
            return self._writer.put_many([(each.collection, each.document) for each in ready])

    def _open(self, tenant_id: str, collection: str) -> OpenCollection:
        try:
            return self._writer.open(tenant_id, collection)
        except CollectionNotFound:
            if collection != DEFAULT_COLLECTION:
                raise
        with suppress(CollectionExists):  # Another first ingest was quicker.
            self.create_collection(tenant_id, collection, SettingsRequest())
        return self._writer.open(tenant_id, collection)


def hash_document(document: Document) -> str:
    """A hash of all that a client sends of a document; equal means UNCHANGED.

    Two names of one type are one, and bytes that are read as text are that text. Raises
    InvalidArgument for an unknown type.
    """
    digest = hashlib.blake2b(_CUTTING_VERSION, digest_size=32)
    for part in (document.title, document.source, resolve_mime_type(document)):
        _feed(digest, part.encode())
    _feed(digest, _canonical(document.metadata).encode())
    _feed_body(digest, document)
    return digest.hexdigest()


def derived_id(document: Document) -> str:
    """The id of a document that comes without: a hash of its body."""
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
    """Lengths keep the parts apart: "ab", "c" is not "a", "bc"."""
    digest.update(len(part).to_bytes(8, "big"))
    digest.update(part)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # Extraction refuses surrogates by name.


def _canonical(metadata: Mapping[str, Any]) -> str:
    return json.dumps(metadata, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _checked(document: Document) -> Document:
    _check_bytes("title", document.title, MAX_TITLE_BYTES)
    _check_bytes("source", document.source, MAX_SOURCE_BYTES)
    _check_bytes("metadata", _canonical(document.metadata), MAX_METADATA_BYTES)
    if document.document_id:
        ids.check_document_id(document.document_id)
        return document
    return replace(document, document_id=derived_id(document))


def _check_bytes(field: str, value: str, limit: int) -> None:
    size = len(value.encode())
    if size > limit:
        raise TooLarge(f"{field} has {size} bytes; at most {limit} are allowed", field=field)


def _tree_settings(request: SettingsRequest, defaults: TreeSettings) -> TreeSettings:
    def given(value: Any, default: Any) -> Any:
        return default if value is None else value

    return TreeSettings(
        given(request.level_sizes, defaults.level_sizes),
        given(request.overlap_ratio, defaults.overlap_ratio),
        given(request.embedding_level, defaults.embedding_level),
    )
