"""Embeds a collection again, with the current embedder of this service, while it is in use.

The documents are put into a copy of the collection, which has the current embedder. Texts, chunk
trees and summaries are copied; only vectors are made again. The engine keeps in the copy only
current versions of documents (`Writer.begin_copy`). So the documents that the copy lacks are those
that have to be embedded, and once it lacks none, it takes the place of the collection.

Each call of `step` works for a few seconds. All that has to survive a restart is in the store, so
any process can continue after any interruption. The position in the collection is only kept to save
time.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hrag.engine import CollectionHandle, DocumentSummaries, StoredDocument, Unsummarised, Writer
from hrag.engine.engine_documents import NO_VERSION, UncopiedDocument
from hrag.models.embedding import Vectors
from hrag.models.embedding.embedders import Embedders
from hrag.observe import metrics
from hrag.values import ids
from hrag.values.collections import CollectionSettings, ReembedProgress
from hrag.values.deadline import Deadline
from hrag.values.errors import CollectionNotFound, DeadlineExceeded, InvalidArgument
from indexer_svc.bulk import GROUP_BYTES, GROUP_DOCUMENTS
from indexer_svc.commit_gate import CommitGate
from indexer_svc.ingest_pipeline import leaf_texts
from indexer_svc.summariser import embedded_texts

# A call works for about this long, and ends with the group of documents that it is working on. A
# client that calls again sees the progress, and a client that stops calling stops the work.
STEP_S = 5.0
# At most this many leaves are embedded together, unless a single document has more. The built-in
# model takes about a second for them, and larger requests to an endpoint would hardly be faster.
_BATCH_LEAVES = 256
# Ingests wait for at most about this long while the last documents are embedded. If the embedder
# needs longer, these documents are embedded without holding back ingests.
_MAX_HELD_S = 5.0
_COPY_SUFFIX = ".reembed"


class Reembedder:
    """Embeds collections again. Safe to call from several threads."""

    def __init__(
        self, writer: Writer, embedders: Embedders, gate: CommitGate, step_s: float = STEP_S
    ) -> None:
        """`gate` holds back commits of a collection while its copy takes its place."""
        self._writer = writer
        self._embedders = embedders
        self._gate = gate
        self._step_s = step_s
        # For the id of a collection, the id of the document up to which all documents were copied.
        self._after: dict[int, str] = {}

    def step(self, tenant_id: str, name: str, deadline: Deadline) -> ReembedProgress:
        """Continues to embed a collection again, for about `step_s` seconds; begins if necessary.

        Does nothing if the collection has the current embedder already. Raises EmbedderMismatch if
        this service does not have the collection's embedder. Raises CollectionNotFound,
        CollectionExists, CopyInProgress, InvalidArgument, StorageQuotaExceeded, StorageFull,
        DataLoss, DeadlineExceeded, and the errors of the embedder.
        """
        ids.check_tenant_id(tenant_id)
        ids.check_collection_name(name, "name")
        source = self._writer.open(tenant_id, name)
        settings = self._new_settings(source)
        if settings is None:
            return self._progress(source, 0, 0)
        try:
            return self._continue(source, settings, deadline)
        except CollectionNotFound:
            # Another call may have finished the work meanwhile.
            source = self._writer.open(tenant_id, source.name)
            if self._new_settings(source) is not None:
                raise
            return self._progress(source, 0, 0)

    def _continue(
        self, source: CollectionHandle, settings: CollectionSettings, deadline: Deadline
    ) -> ReembedProgress:
        copy_name = copy_name_of(source.name)
        source, copy = self._writer.begin_copy(source.tenant_id, source.name, copy_name, settings)
        until, copied, sequence = Deadline.after(self._step_s), 0, None
        while True:
            batches = _batches(self._next_documents(source, deadline))
            for batch in batches:
                self._writer.wait_for_capacity(copy, deadline)
                copied += self._copy(source, settings, batch, deadline)
                self._after[source.collection_id] = batch[-1].stored.document_id
                if until.remaining_s <= 0:
                    break
            if not batches:
                self._after.pop(source.collection_id, None)
                caught_up, sequence = self._catch_up(source, settings, deadline)
                copied += caught_up
            if sequence is not None or until.remaining_s <= 0:
                return self._progress(source, copied, sequence)

    def _new_settings(self, collection: CollectionHandle) -> CollectionSettings | None:
        """Returns the settings of the copy; None if the collection has the current embedder.

        Raises EmbedderMismatch or InvalidArgument.
        """
        embedder, settings = self._embedders.current, collection.settings
        if settings.embedder == embedder.name and settings.dimension == embedder.dimension:
            return None
        if settings.dimension:
            self._embedders.of(settings)
        if not embedder.dimension:
            raise InvalidArgument(
                "this indexer has no embedder (HRAG_EMBEDDER=none), so it cannot embed a "
                "collection again",
                field="name",
            )
        if settings.tree.leaf_tokens > embedder.max_tokens:
            raise InvalidArgument(
                f"the collection has leaves of up to {settings.tree.leaf_tokens} tokens; embedder "
                f"{embedder.name} accepts at most {embedder.max_tokens}",
                field="name",
            )
        return replace(settings, embedder=embedder.name, dimension=embedder.dimension)

    def _next_documents(
        self, source: CollectionHandle, deadline: Deadline
    ) -> list[UncopiedDocument]:
        deadline.check("embedding the collection again")
        after = self._after.get(source.collection_id, "")
        return self._writer.uncopied(source, after, GROUP_DOCUMENTS, GROUP_BYTES)

    def _catch_up(
        self, source: CollectionHandle, settings: CollectionSettings, deadline: Deadline
    ) -> tuple[int, int | None]:
        """Copies the last few documents while no document is committed; then finishes the copy.

        Returns how many documents were copied, and the sequence number of the copy's taking of the
        place, or None if documents are still missing. If there are many documents, or if the
        embedder needs more than `_MAX_HELD_S` for them, copies none.
        """
        with self._gate.closed(source.collection_id):
            documents = self._next_documents(source, deadline)
            batches = _batches(documents)
            if len(batches) > 1 or len(documents) == GROUP_DOCUMENTS:
                return 0, None
            copied = 0
            if documents:
                try:
                    held = deadline.within(_MAX_HELD_S)
                    copied = self._copy(source, settings, documents, held)
                except DeadlineExceeded:
                    deadline.check("embedding the collection again")
                    return 0, None
            return copied, self._writer.finish_copy(source)

    def _copy(
        self,
        source: CollectionHandle,
        settings: CollectionSettings,
        documents: Sequence[UncopiedDocument],
        deadline: Deadline,
    ) -> int:
        """Embeds documents and puts them into the copy; returns how many were put.

        All texts are embedded in one request.
        """
        texts = [_texts_of(source, document.stored, settings) for document in documents]
        all_texts = [text for both in texts for part in both for text in part]
        vectors = self._embedders.current.embed(all_texts, deadline)
        embedded, start = [], 0
        for document, (leaves, summaries) in zip(documents, texts, strict=True):
            middle, end = start + len(leaves), start + len(leaves) + len(summaries)
            stored = _with_vectors(document.stored, vectors[start:middle], vectors[middle:end])
            embedded.append(replace(document, stored=stored))
            start = end
        copied = self._writer.put_copies(source, embedded)
        metrics.reembedded_documents.inc(copied)
        return copied

    def _progress(
        self, source: CollectionHandle, copied: int, sequence: int | None
    ) -> ReembedProgress:
        """Returns how far a collection is; `sequence` is None if it is not finished."""
        tenant_id, name = source.tenant_id, source.name
        collection = self._writer.collection(tenant_id, name)
        if sequence is not None:
            return ReembedProgress(collection, copied, 0, sequence, is_finished=True)
        present = self._writer.collection(tenant_id, copy_name_of(name)).document_count
        remaining = max(collection.document_count - present, 0)
        return ReembedProgress(collection, copied, remaining, 0, is_finished=False)


def _batches(documents: Sequence[UncopiedDocument]) -> list[list[UncopiedDocument]]:
    """Divides documents into batches of at most _BATCH_LEAVES leaves, but at least one document."""
    batches: list[list[UncopiedDocument]] = []
    leaves = 0
    for document in documents:
        count = len(document.stored.document.vectors)
        if not batches or leaves + count > _BATCH_LEAVES:
            batches.append([])
            leaves = 0
        batches[-1].append(document)
        leaves += count
    return batches


def copy_name_of(name: str) -> str:
    """Returns the name of the copy of a collection with this name, while it is being filled."""
    return f"{name[: ids.MAX_NAME_BYTES - len(_COPY_SUFFIX)]}{_COPY_SUFFIX}"


def _texts_of(
    source: CollectionHandle, stored: StoredDocument, settings: CollectionSettings
) -> tuple[list[str], list[str]]:
    """Returns the texts to embed of a document's leaves, and those of its summaries."""
    document, summaries = stored.document, stored.summaries
    leaves = leaf_texts(document.title, document.parsed, document.tree, settings)
    if summaries is None:
        return leaves, []
    described = (document.document_id, document.title, document.parsed, document.tree)
    summarised = Unsummarised(source, NO_VERSION, *described, spent_tokens=0)
    return leaves, embedded_texts(summarised, summaries.summaries)


def _with_vectors(stored: StoredDocument, leaves: Vectors, summaries: Vectors) -> StoredDocument:
    """Returns the document with new vectors of its leaves and of its summaries."""
    document = replace(stored.document, vectors=np.ascontiguousarray(leaves))
    if stored.summaries is None:
        return StoredDocument(document)
    new = DocumentSummaries(stored.summaries.summaries, np.ascontiguousarray(summaries))
    return StoredDocument(document, new)
