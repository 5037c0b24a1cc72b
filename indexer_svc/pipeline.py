"""From a document to a commit: check, hash, extract, cut, embed, write.

The cheap and final checks come first, and a document that is stored already is
recognised by its hash before anything is read or embedded. Nothing is visible before the
one commit at the end.
"""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from hrag import ids
from hrag.deadline import Deadline
from hrag.embedding import Embedder, Vectors
from hrag.embedding.checks import check_embedder
from hrag.engine import OpenCollection, PreparedDocument, Writer
from hrag.errors import (
    CollectionExists,
    CollectionNotFound,
    InvalidArgument,
    TooLarge,
)
from hrag.tree import ParsedText, Tree
from hrag.types import (
    DEFAULT_COLLECTION,
    MAX_METADATA_BYTES,
    Collection,
    CollectionSettings,
    Document,
    IngestResult,
    SettingsRequest,
    TreeSettings,
)
from indexer_svc.chunker import build_tree
from indexer_svc.extract import extract, resolve_mime_type

MAX_TITLE_BYTES = 1024
MAX_SOURCE_BYTES = 2048

# Part of every content hash: a change in how documents are cut must not read as UNCHANGED.
_CUTTING_VERSION = b"1"


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a collection gets where its creator does not say."""

    tree: TreeSettings
    max_document_bytes: int


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
        ids.check_tenant_id(tenant_id)
        ids.check_collection_name(collection)
        document = self._checked(document)
        content_hash = hash_document(document)
        opened = self._open(tenant_id, collection)
        stored = self._writer.unchanged(opened, document.document_id, content_hash)
        if stored is not None:
            return stored
        self._check_embedder(opened.settings)
        return self._writer.put(
            opened, self._prepare(document, content_hash, opened.settings, deadline)
        )

    def _checked(self, document: Document) -> Document:
        _check_bytes("title", document.title, MAX_TITLE_BYTES)
        _check_bytes("source", document.source, MAX_SOURCE_BYTES)
        _check_bytes("metadata", _canonical(document.metadata), MAX_METADATA_BYTES)
        if document.document_id:
            ids.check_document_id(document.document_id)
            return document
        return replace(document, document_id=derived_id(document))

    def _open(self, tenant_id: str, collection: str) -> OpenCollection:
        try:
            return self._writer.open(tenant_id, collection)
        except CollectionNotFound:
            if collection != DEFAULT_COLLECTION:
                raise
        with suppress(CollectionExists):  # Another first ingest was quicker.
            self.create_collection(tenant_id, collection, SettingsRequest())
        return self._writer.open(tenant_id, collection)

    def _check_embedder(self, settings: CollectionSettings) -> None:
        check_embedder(settings, self._embedder.name)
        check_embedder(settings, self._embedder.name, self._embedder.dimension)

    def _prepare(
        self,
        document: Document,
        content_hash: str,
        settings: CollectionSettings,
        deadline: Deadline,
    ) -> PreparedDocument:
        parsed = extract(document, self._defaults.max_document_bytes)
        deadline.check("extracting")
        tree = build_tree(parsed, settings.tree)
        deadline.check("chunking")
        vectors = self._embed(parsed, tree, settings)
        deadline.check("embedding")
        return PreparedDocument(
            document_id=document.document_id,
            title=document.title,
            source=document.source,
            mime_type=resolve_mime_type(document),
            metadata=document.metadata,
            content_hash=content_hash,
            parsed=parsed,
            tree=tree,
            vectors=vectors,
        )

    def _embed(self, parsed: ParsedText, tree: Tree, settings: CollectionSettings) -> Vectors:
        leaves = tree.level(settings.tree.embedding_level)
        bounds = zip(leaves["char_start"].tolist(), leaves["char_end"].tolist(), strict=True)
        return self._embedder.embed([parsed.text[start:end] for start, end in bounds])


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
