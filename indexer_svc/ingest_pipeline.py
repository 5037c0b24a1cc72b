"""Ingestion of a document in five steps: check, admit, cut, embed, commit.

Each step is one method of `Pipeline`. A single document passes through the steps one after another.
For a stream of documents, `bulk` runs the steps of different documents in parallel. Checks that
take little time come first. For example, a document that is stored already is recognised by its
hash, before its text is extracted or embedded. No part of a document is visible to searches before
the commit.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, chain
from typing import Any

import numpy as np

from hrag.engine import CollectionHandle, IngestDecision, PreparedDocument, Writer
from hrag.models.embedding import Embedder, Vectors
from hrag.models.embedding.embedders import Embedders
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
from hrag.values.current_call import CURRENT
from hrag.values.deadline import Deadline
from hrag.values.documents import Document, IngestOutcome, IngestResult
from hrag.values.errors import (
    CollectionExists,
    CollectionNotFound,
    DocumentNotFound,
    HragError,
    InvalidArgument,
    outcome_of,
)
from hrag.values.formats import PDF
from hrag.values.limits import DEFAULT_COLLECTION
from hrag.values.read_report import NO_REPORT, ReadReport
from hrag.values.tree import CHUNK, ParsedText, Tree
from indexer_svc.chunker import build_tree
from indexer_svc.commit_gate import CommitGate
from indexer_svc.content_hash import (
    derived_id,
    hash_document,
    original_of,
    stored_hash,
    with_unread_pages,
)
from indexer_svc.document_limits import check_leaves, check_limits
from indexer_svc.extract import Extracted, extract, no_parser
from indexer_svc.mime_types import resolve_mime_type
from indexer_svc.parsers.parser_pool import TenantParse
from indexer_svc.read_metadata import complete_metadata
from indexer_svc.text_recognition import NO_RECOGNITION, TextRecognition

_FLOAT32_BYTES = 4


@dataclass(frozen=True, slots=True)
class Defaults:
    """The settings of a new collection that the request to create it does not set.

    `max_document_bytes` is not a setting of a collection: it limits the body of each document in
    every collection. `language` is the language of the text analyzer. If `keep_originals` is True,
    new collections store the files from which their documents are read.
    """

    tree: TreeSettings
    max_document_bytes: int
    summaries: SummaryUnit = SummaryUnit.NONE
    language: str = DEFAULT_LANGUAGE
    keep_originals: bool = False


Key = tuple[str, str, str]
"""Identifies a document: tenant id, name of the collection, document id."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A document after the step `check`: it has an id, and its fields are within their limits.

    The document's MIME type is the one by which it is read. The body has not been checked further.
    `metadata_json` is the metadata in canonical JSON.
    """

    tenant_id: str
    collection: str
    document: Document
    metadata_json: bytes
    content_hash: str

    @property
    def key(self) -> Key:
        """The document's key, with the collection name that was sent, which may be an alias."""
        return self.tenant_id, self.collection, self.document.document_id


@dataclass(frozen=True, slots=True)
class Pending:
    """A document after the step `admit`, which must be stored.

    Its collection exists and does not contain the same version of the document.
    """

    collection: CollectionHandle
    document: Document
    metadata_json: bytes
    content_hash: str

    @property
    def key(self) -> Key:
        """The document's key, with the name of its collection even if an alias was sent."""
        return self.collection.tenant_id, self.collection.name, self.document.document_id


@dataclass(frozen=True, slots=True)
class IngestPlan:
    """The effect that an ingest of a document would have.

    `settings` are the settings of the collection's chunk trees.
    """

    checked: Checked
    settings: TreeSettings
    outcome: IngestOutcome


@dataclass(frozen=True, slots=True)
class Ready:
    """A document after the step `embed`: it has the vectors of its leaves, and can be committed.

    `report` says what was read of its body.
    """

    collection: CollectionHandle
    document: PreparedDocument
    report: ReadReport = NO_REPORT


@dataclass(frozen=True, slots=True)
class IngestDraft:
    """A document after the step `cut`: it has a chunk tree, and has not been embedded yet.

    `metadata` is the metadata that the client has sent, with the fields that were read in the body.
    `metadata_json` is its canonical JSON. `report` says what was read of the body. `content_hash`
    is the hash to store.
    """

    pending: Pending
    title: str
    parsed: ParsedText
    tree: Tree
    metadata: Mapping[str, Any]
    metadata_json: bytes
    report: ReadReport
    content_hash: str

    @property
    def leaf_count(self) -> int:
        """The number of leaves, which is the number of texts to embed."""
        return self.tree.counts[self._settings.tree.embedding_level]

    @property
    def size_bytes(self) -> int:
        """The size in bytes of text, chunk tree, vectors and original.

        The stored document needs at least this many bytes.
        """
        text = self.tree.record(self.tree.top_level, self.tree.counts[-1] - 1).byte_end
        tree = sum(self.tree.counts) * CHUNK.itemsize
        return text + tree + self.vector_bytes + len(self.original or b"")

    @property
    def original(self) -> bytes | None:
        """The file to store with the document; None if the collection keeps no originals."""
        return original_of(self.pending.document, self._settings)

    @property
    def vector_bytes(self) -> int:
        """The size of the vectors of all leaves, in bytes."""
        return self.leaf_count * self._settings.dimension * _FLOAT32_BYTES

    @property
    def has_vectors(self) -> bool:
        """True if the collection has vectors, so that the leaves must be embedded."""
        return self._settings.dimension > 0

    def leaf_texts(self) -> list[str]:
        """Returns the texts of the leaves to embed, in order.

        The list is empty if the collection has no vectors.
        """
        return leaf_texts(self.title, self.parsed, self.tree, self._settings)

    def with_vectors(self, vectors: Vectors) -> Ready:
        """Returns the document with the vectors of its leaves, `float32[leaf_count, dimension]`."""
        document = self.pending.document
        prepared = PreparedDocument(
            document_id=document.document_id,
            title=self.title,
            source=document.source,
            mime_type=document.mime_type,
            metadata=self.metadata,
            content_hash=self.content_hash,
            parsed=self.parsed,
            tree=self.tree,
            vectors=vectors,
            metadata_json=self.metadata_json,
            original=self.original,
        )
        return Ready(self.pending.collection, prepared, self.report)

    @property
    def _settings(self) -> CollectionSettings:
        return self.pending.collection.settings


class Pipeline:
    """Creates collections, and stores documents in five steps. Safe to call from several threads.

    Each step is a method: `check`, `admit`, `cut`, `embed` and `commit`. `ingest` calls all of
    them.
    """

    def __init__(
        self,
        writer: Writer,
        embedder: Embedder,
        defaults: Defaults,
        parse: TenantParse = no_parser,
        recognition: TextRecognition = NO_RECOGNITION,
        previous: Embedder | None = None,
        gate: CommitGate | None = None,
    ) -> None:
        """Embeds documents with `embedder` and stores them through `writer`.

        Documents of collections with the embedder `previous` are embedded with this one, if it is
        not None. `gate` holds back commits of a collection that is embedded again. `parse` parses
        the documents that this process does not parse itself: long texts, and files like PDFs, HTML
        pages and Office documents. `recognition` reads pictures and scans.
        """
        self._writer = writer
        self._embedder = embedder
        self._embedders = Embedders(embedder, previous)
        self._gate = gate or CommitGate()
        self._defaults = defaults
        self._parse = parse
        self._recognition = recognition

    def create_collection(
        self, tenant_id: str, name: str, request: SettingsRequest
    ) -> tuple[Collection, int]:
        """Creates a collection; returns the collection and the sequence number of this change.

        The collection's embedder is the embedder of this service, or none. Raises InvalidArgument,
        CollectionExists or StorageQuotaExceeded.
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
            keep_originals=self._keeps_originals(request),
        )
        if settings.tree.leaf_tokens > embedder.max_tokens:
            raise InvalidArgument(
                f"level_sizes gives leaves of up to {settings.tree.leaf_tokens} tokens; "
                f"embedder {embedder.name} accepts at most {embedder.max_tokens}",
                field="level_sizes",
            )
        return self._writer.create_collection(tenant_id, name, settings)

    def _embedder_of(self, request: SettingsRequest) -> Embedder:
        """Returns the embedder of this service, or NoEmbedder if the request asks for no vectors.

        Raises InvalidArgument if the request names any other embedder.
        """
        if request.embedder == NO_EMBEDDER:
            return NoEmbedder()
        if request.embedder not in (None, self._embedder.name):
            raise InvalidArgument(
                f"embedder is {request.embedder!r}; it must be empty or {self._embedder.name!r}, "
                f"this indexer's embedder, or {NO_EMBEDDER!r} for a collection without vectors",
                field="embedder",
            )
        return self._embedder

    def _keeps_originals(self, request: SettingsRequest) -> bool:
        if request.keep_originals is None:
            return self._defaults.keep_originals
        return request.keep_originals

    def _summaries_of(self, request: SettingsRequest, embedder: Embedder) -> SummaryUnit:
        """Returns which parts of each document get a summary in a new collection.

        A collection without an embedder cannot have summaries, because summaries have vectors.
        Raises InvalidArgument if the request asks for summaries in a collection without vectors.
        """
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
        """Stores one document, unless the same document is stored already.

        Raises the errors of `check`, `admit`, `cut`, `embed`, `wait_for_capacity` and `commit`.
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
        """Checks all fields of a document except its body, and computes its content hash.

        A document without an id gets an id that is derived from its body. A document without a
        type gets the type that is detected. Raises InvalidArgument or TooLarge.
        """
        ids.check_tenant_id(tenant_id)
        ids.check_collection_name(collection)
        metadata_json = canonical_json.encode(document.metadata)
        check_limits(document, metadata_json)
        if not document.document_id:
            document = replace(document, document_id=derived_id(document))
        document = replace(document, mime_type=resolve_mime_type(document))
        content_hash = hash_document(document, metadata_json)
        return Checked(tenant_id, collection, document, metadata_json, content_hash)

    def admit(self, checked: Checked, superseded: Container[Key] = ()) -> IngestResult | Pending:
        """Decides whether a document has to be stored; if so, returns it as a Pending.

        If the same document is stored already, returns the result of the stored document instead.
        `superseded` has the keys of documents whose stored versions are ignored, because the caller
        is about to store other versions of them. Raises CollectionNotFound, StorageQuotaExceeded or
        EmbedderMismatch.
        """
        admission = self._decide(checked, partial(self._admit, checked))
        document, settings = checked.document, admission.collection.settings
        content_hash = stored_hash(checked.content_hash, document, settings)
        pending = Pending(admission.collection, document, checked.metadata_json, content_hash)
        if admission.unchanged is not None and pending.key not in superseded:
            return admission.unchanged
        if settings.dimension:
            # This compares only the names of the embedders. `embed` compares the dimensions later,
            # because a request to an endpoint may be needed to find out the dimension of this
            # service's embedder.
            self._embedders.of(settings)
        return pending

    def _decide(self, checked: Checked, admit: Callable[[str], IngestDecision]) -> IngestDecision:
        """Calls `admit` with each content hash that the document may be stored with.

        Returns the decision for the first hash that is stored, or else the last decision. The
        collection decides whether the file of the document is part of what is stored, so it must be
        known first.
        """
        decision = admit(checked.content_hash)
        document, settings = checked.document, decision.collection.settings
        content_hash = stored_hash(checked.content_hash, document, settings)
        if content_hash != checked.content_hash:
            decision = admit(content_hash)
        if decision.unchanged is None and self._may_have_unread_pages(document):
            decision = admit(with_unread_pages(content_hash))
        return decision

    def _may_have_unread_pages(self, document: Document) -> bool:
        """Returns True if the document may be stored with pages that recognition would read.

        The hash of such a document is marked. So once there is text recognition, the document is
        read again when it is ingested again.
        """
        return self._recognition.parse is None and document.mime_type == PDF

    def _admit(self, checked: Checked, content_hash: str) -> IngestDecision:
        """Calls `Writer.admit`. Creates the default collection first if it does not exist."""
        tenant_id, collection, document_id = checked.key
        try:
            return self._writer.admit(tenant_id, collection, document_id, content_hash)
        except CollectionNotFound:
            if collection != DEFAULT_COLLECTION:
                raise
        # If another caller creates the collection at the same time, the collection exists now.
        with suppress(CollectionExists):
            self.create_collection(tenant_id, collection, SettingsRequest())
        return self._writer.admit(tenant_id, collection, document_id, content_hash)

    def admit_draft(self, draft: IngestDraft, *, superseded: bool = False) -> IngestResult | None:
        """Checks again whether a document may be stored, because its size is now known.

        Call this before embedding, which may cost money. If the same document has been stored since
        `admit`, returns the result of the stored document, else None. With `superseded`, the stored
        version is ignored. Raises CollectionNotFound, or StorageQuotaExceeded if the document is
        too large for the tenant's quota.
        """
        pending = draft.pending
        return self._writer.admit(
            pending.collection.tenant_id,
            pending.collection.name,
            pending.document.document_id,
            "" if superseded else draft.content_hash,
            draft.size_bytes,
        ).unchanged

    def cut(self, pending: Pending, deadline: Deadline) -> IngestDraft:
        """Extracts the text of a document and builds its chunk tree.

        Raises InvalidArgument, TooLarge, BlankDocument, UnreadableDocument or DeadlineExceeded.
        Raises TooBusy or ServiceUnavailable if no parser is available for the document now.
        """
        extracted, tree = self._read(
            pending.collection.tenant_id,
            pending.document,
            pending.collection.settings.tree,
            deadline,
        )
        title = pending.document.title or extracted.title
        completed = complete_metadata(
            pending.document.metadata, pending.metadata_json, extracted.metadata, extracted.report
        )
        content_hash = pending.content_hash
        if completed.report.unread_pages and self._may_have_unread_pages(pending.document):
            content_hash = with_unread_pages(content_hash)
        draft = IngestDraft(
            pending,
            title,
            extracted.parsed,
            tree,
            completed.metadata,
            completed.metadata_json,
            completed.report,
            content_hash,
        )
        check_leaves(draft.leaf_count, draft.vector_bytes)
        return draft

    def _read(
        self, tenant_id: str, document: Document, settings: TreeSettings, deadline: Deadline
    ) -> tuple[Extracted, Tree]:
        """Returns the text of a document and its chunk tree. Raises the errors of `cut`."""
        with metrics.ingest_stage("extract"):
            extracted = extract(
                document,
                self._defaults.max_document_bytes,
                partial(self._parse, tenant_id, deadline),
                self._recognition.for_call(tenant_id, deadline),
            )
        deadline.check("extracting")
        with metrics.ingest_stage("cut"):
            tree = build_tree(extracted.parsed, settings)
        deadline.check("chunking")
        return extracted, tree

    def embed(self, drafts: Sequence[IngestDraft], deadline: Deadline) -> list[Ready]:
        """Embeds the leaves of all drafts; returns the documents with their vectors.

        All drafts whose collections have the same embedder are embedded in one request. A draft is
        a document that has been cut into chunks. The returned documents are in the order of
        `drafts`. If one draft cannot be embedded, the whole call fails. Raises EmbedderMismatch,
        EmbedderRejected, EmbedderUnavailable or DeadlineExceeded.
        """
        ready: list[Ready | None] = [None] * len(drafts)
        of_embedder: dict[str, list[int]] = {}
        for index, draft in enumerate(drafts):
            settings = draft.pending.collection.settings
            if draft.has_vectors:
                embedder = self._embedders.of(settings)
                check_embedder(settings, embedder.name, embedder.dimension)
                of_embedder.setdefault(settings.embedder, []).append(index)
            else:
                ready[index] = draft.with_vectors(_no_vectors(draft))
        for indices in of_embedder.values():
            chosen = [drafts[index] for index in indices]
            vectors = self._embed_together(chosen, deadline)
            for index, draft, of_draft in zip(indices, chosen, vectors, strict=True):
                ready[index] = draft.with_vectors(of_draft)
        return [document for document in ready if document is not None]

    def _embed_together(self, drafts: Sequence[IngestDraft], deadline: Deadline) -> list[Vectors]:
        """Embeds drafts of collections with the same embedder, in one request."""
        texts = [draft.leaf_texts() for draft in drafts]
        settings = drafts[0].pending.collection.settings
        vectors = self._embed_texts(settings, list(chain(*texts)), deadline)
        ends = accumulate(map(len, texts))
        return [vectors[end - len(leaves) : end] for leaves, end in zip(texts, ends, strict=True)]

    def _embed_texts(
        self, settings: CollectionSettings, texts: Sequence[str], deadline: Deadline
    ) -> Vectors:
        with metrics.ingest_stage("embed"):
            return self._embedders.of(settings).embed(texts, deadline)

    def wait_for_capacity(self, collection: CollectionHandle, deadline: Deadline) -> None:
        """Waits while too many committed leaves of the collection are not indexed (backpressure).

        Also waits while the copy of the collection is about to take its place. Raises
        DeadlineExceeded.
        """
        self._gate.wait(collection.collection_id, deadline)
        self._writer.wait_for_capacity(collection, deadline)

    def commit(self, ready: Sequence[Ready]) -> list[IngestResult | HragError]:
        """Stores documents in one commit; returns the result or the error of each document.

        The results are in the order of the documents. If an error affects all documents, for
        example StorageFull, raises this error, and no document is stored. If the copy of a
        collection has taken its place since a document was admitted, the document is embedded again
        and stored there, in a separate commit.
        """
        with metrics.ingest_stage("commit"):
            results = self._writer.put_many([(item.collection, item.document) for item in ready])
            results = [
                outcome_of(self._commit_again, item, result)
                if isinstance(result, CollectionNotFound)
                else result
                for item, result in zip(ready, results, strict=True)
            ]
        return [
            replace(result, report=item.report) if isinstance(result, IngestResult) else result
            for item, result in zip(ready, results, strict=True)
        ]

    def _commit_again(self, item: Ready, error: CollectionNotFound) -> IngestResult:
        """Stores a document whose collection was deleted in the collection that has its name now.

        Raises `error` if there is none, or if its chunk trees are different.
        """
        old, document, deadline = item.collection, item.document, CURRENT.get().deadline
        new = self._writer.open(old.tenant_id, old.name)
        if new.collection_id == old.collection_id or new.settings.tree != old.settings.tree:
            raise error
        texts = leaf_texts(document.title, document.parsed, document.tree, new.settings)
        if texts:
            vectors = self._embed_texts(new.settings, texts, deadline)
        else:
            vectors = np.empty((len(document.vectors), 0), np.float32)
        original = document.original if new.settings.keep_originals else None
        return self._writer.put(new, replace(document, vectors=vectors, original=original))

    def validate(
        self, tenant_id: str, collection: str, document: Document, deadline: Deadline
    ) -> IngestResult:
        """Returns the result that `ingest` would have, with the sequence number 0; stores nothing.

        The document is read and cut, but not embedded. Raises the errors of these steps.
        """
        planned = self.plan(self.check(tenant_id, collection, document))
        return planned if isinstance(planned, IngestResult) else self.read(planned, deadline)

    def plan(self, checked: Checked) -> IngestResult | IngestPlan:
        """Returns what an ingest of a document would do; the result if it is stored already.

        If the collection does not exist, its settings are the defaults. Raises
        StorageQuotaExceeded.
        """
        settings, outcome = self._defaults.tree, IngestOutcome.CREATED
        with suppress(CollectionNotFound, DocumentNotFound):
            decision = self._decide(checked, partial(self._writer.admit, *checked.key))
            if decision.unchanged is not None:
                return decision.unchanged
            settings = decision.collection.settings.tree
            self._writer.document(decision.collection, checked.document.document_id)
            outcome = IngestOutcome.UPDATED
        return IngestPlan(checked, settings, outcome)

    def read(self, plan: IngestPlan, deadline: Deadline) -> IngestResult:
        """Reads and cuts a document, and returns the result that an ingest would have.

        Raises the errors of `cut`.
        """
        document = plan.checked.document
        extracted, tree = self._read(plan.checked.tenant_id, document, plan.settings, deadline)
        last = tree.record(tree.top_level, tree.counts[-1] - 1)
        token_count = last.token_start + last.token_count
        report = complete_metadata(
            document.metadata, plan.checked.metadata_json, extracted.metadata, extracted.report
        ).report
        return IngestResult(document.document_id, plan.outcome, 0, tree.counts, token_count, report)


def leaf_texts(
    title: str, parsed: ParsedText, tree: Tree, settings: CollectionSettings
) -> list[str]:
    """Returns the texts of a document's leaves to embed, in order.

    `settings` are those of the collection. The list is empty if the collection has no vectors.
    """
    if not settings.dimension:
        return []
    level = settings.tree.embedding_level
    indexed = indexed_leaves(
        parsed.text, title, parsed.sections, tree, level, headings=settings.index_headings
    )
    return [leaf.embedded for leaf in indexed]


def _no_vectors(draft: IngestDraft) -> Vectors:
    return np.empty((draft.leaf_count, 0), np.float32)


def _tree_settings(request: SettingsRequest, defaults: TreeSettings) -> TreeSettings:
    def value_or_default(value: Any, default: Any) -> Any:
        return default if value is None else value

    return TreeSettings(
        value_or_default(request.level_sizes, defaults.level_sizes),
        value_or_default(request.overlap_ratio, defaults.overlap_ratio),
        value_or_default(request.embedding_level, defaults.embedding_level),
    )
