"""Bulk load: stores many documents of one stream in three pipelined stages, by group commit.

A group is a list of consecutive documents that are embedded in one request and committed in one
transaction. While one group is committed and answered, the leaves of the next group are embedded,
and the documents after the next group are read, admitted and cut. If the caller waits for each
answer, each document is a group, and is answered at once. If the caller keeps sending, groups are
large, because documents queue up while a commit is synced to disk. Before the load embeds the next
group, it also pauses briefly as long as more documents arrive.

Answers come in the order of the documents, each after the commit of its document. An error of
one document is the answer to that document and affects no other document. An error that
affects all documents ends the stream, after the answers to the documents that are stored.
Memory is bounded: at most four groups and one document are in flight. A group stays within
GROUP_DOCUMENTS, GROUP_LEAVES and GROUP_BYTES, or it is a single document. This module knows
nothing about gRPC.
"""

import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Generic, TypeVar

from hrag.config import MIB
from hrag.engine import CollectionHandle
from hrag.values.deadline import Deadline
from hrag.values.documents import Document, IngestResult
from hrag.values.errors import (
    Cancelled,
    DeadlineExceeded,
    EmbedderUnavailable,
    HragError,
    ServiceUnavailable,
    StorageFull,
    StoreUnavailable,
)
from indexer_svc.ingest_pipeline import Checked, IngestDraft, Key, Pipeline, Ready
from indexer_svc.prefetch_queue import PrefetchQueue

# A group has at most this many documents, which share one sync to disk. For 64 documents, the sync
# takes little time compared with the other work, so larger groups would hardly be faster. And the
# writer holds its lock for only a few hundredths of a second.
GROUP_DOCUMENTS = 64
# A group has at most this many leaves. One request to an embedding endpoint has at most as many
# texts, so a larger group would not be embedded faster. Its answers would only come later: the
# built-in model embeds about 350 leaves per second.
GROUP_LEAVES = 512
# The texts, trees and vectors of a group have at most this many bytes, which is half of the
# default of HRAG_MAX_DOCUMENT_BYTES.
GROUP_BYTES = 16 * MIB

_FULL = 1.0  # The weight of a full group.
# Before the load embeds the next group, it waits this long for each further document. The time is
# shorter than a commit, and longer than cutting a short document.
_PAUSE_S = 0.002
_POLL_S = 0.1  # A wait checks at this interval whether the service is stopping.

# These errors end the stream, because every further document would fail with them too.
_STREAM_ERRORS = (
    StorageFull,
    StoreUnavailable,
    DeadlineExceeded,
    Cancelled,
    ServiceUnavailable,
)

Outcome = IngestResult | Exception
Work = TypeVar("Work", IngestDraft, Ready)
SameOutcome = TypeVar("SameOutcome", bound=Outcome)


@dataclass(frozen=True, slots=True)
class IngestRequest:
    """A document of the stream, not decoded yet.

    The ids are as the client sent them, so any of them may be empty or invalid. `read` decodes the
    document and may raise an error. If `validate_only` is True, the document is not stored.
    """

    tenant_id: str
    collection: str
    document_id: str
    read: Callable[[], Document]
    validate_only: bool = False

    @property
    def sent_as(self) -> Key:
        """The document's key as the client sent it. Any part of it may be empty or invalid."""
        return self.tenant_id, self.collection, self.document_id


@dataclass(frozen=True, slots=True)
class DocumentReply:
    """The outcome of a document. `sent_as` is the document's key as the client sent it.

    If `validate_only` is True, the document was not stored.
    """

    sent_as: Key
    outcome: Outcome
    validate_only: bool = False

    @property
    def document_id(self) -> str:
        """The document's id as the client sent it. It may be empty."""
        return self.sent_as[2]


@dataclass(frozen=True, slots=True)
class _InFlight(Generic[Work]):
    """A document of the stream that has not been answered yet.

    `content` is the document for the next stage, or its outcome if it needs no further stage.
    `key` is set once the document has been cut. `weight` is the document's share of a full group.
    """

    sent_as: Key
    content: Work | Outcome
    key: Key | None = None
    weight: float = _FULL / GROUP_DOCUMENTS
    validate_only: bool = False


class BulkLoad:
    """Stores one stream of documents. `cancel` may be called from any thread."""

    def __init__(
        self,
        pipeline: Pipeline,
        requests: Iterable[IngestRequest],
        deadline: Deadline,
        stopping: threading.Event,
    ) -> None:
        """Starts nothing yet. `run` iterates `requests` in another thread.

        Setting `stopping` ends the stream early.
        """
        self._pipeline = pipeline
        self._requests = requests
        self._deadline = deadline
        self._stopping = stopping
        self._cancelled = threading.Event()
        self._admitting = threading.Lock()
        self._in_flight = _KeysInFlight()
        self._drafts = PrefetchQueue[_InFlight[IngestDraft]](_weight, _FULL, "cut")
        # With a capacity of 0, only one group at a time waits for its commit. Meanwhile documents
        # queue up for the embedder. So the embedder is called, and threads are switched, once for
        # each group and not once for each document.
        self._ready = PrefetchQueue[_InFlight[Ready]](_weight, 0.0, "embed")

    def run(self) -> Iterator[list[DocumentReply]]:
        """Stores the documents and yields their answers in order.

        The answers to documents of one commit are yielded together. Raises an error that
        affects all documents, for example StorageFull, after the answers to the documents
        that are stored. Raises ServiceUnavailable when the service stops, and Cancelled after
        `cancel`.
        """
        self._drafts.start(self._cut_all(self._requests))
        self._requests = ()
        self._ready.start(self._embed_all())
        try:
            while group := self._next_group():
                yield from self._answer(group)
        finally:
            self.cancel()
            # This waits until no document is being admitted. After that, this load no longer reads
            # the store, so the store may be closed.
            with self._admitting:
                pass

    def cancel(self) -> None:
        """Makes every stage end soon, and returns at once. Committed documents stay stored."""
        self._cancelled.set()
        self._drafts.stop()
        self._ready.stop()

    @property
    def is_cancelled(self) -> bool:
        """True after `cancel`, and after `run` has ended for any reason."""
        return self._cancelled.is_set()

    # These methods read and cut documents.

    def _cut_all(self, requests: Iterable[IngestRequest]) -> Iterator[list[_InFlight[IngestDraft]]]:
        for request in requests:
            yield [self._cut_or_refuse(request)]

    def _cut_or_refuse(self, request: IngestRequest) -> _InFlight[IngestDraft]:
        """Returns the document after cutting, or the document's error.

        Raises an error that affects all documents.
        """
        try:
            return self._cut(request)
        except _STREAM_ERRORS:
            raise
        except Exception as error:
            return _InFlight(request.sent_as, _without_traceback(error))

    def _cut(self, request: IngestRequest) -> _InFlight[IngestDraft]:
        checked = self._pipeline.check(request.tenant_id, request.collection, request.read())
        if request.validate_only:
            return self._validate(request, checked)
        with self._admitting:
            self._check_running()
            # A document must not be compared with the stored version if this stream has sent a
            # newer version of it. The keys in flight are read before the store is read, so a
            # newer version is either among these keys or already in the store.
            in_flight = self._in_flight.keys()
            admitted = self._pipeline.admit(checked, in_flight)
        if isinstance(admitted, IngestResult):
            return _InFlight(request.sent_as, admitted)
        superseded = admitted.key in in_flight
        draft = self._pipeline.cut(admitted, self._deadline)
        with self._admitting:
            self._check_running()
            stored = self._pipeline.admit_draft(draft, superseded=superseded)
        if stored is not None:
            return _InFlight(request.sent_as, stored)
        self._in_flight.add(admitted.key)
        return _InFlight(request.sent_as, draft, admitted.key, _weight_of_draft(draft))

    def _validate(self, request: IngestRequest, checked: Checked) -> _InFlight[IngestDraft]:
        with self._admitting:
            self._check_running()
            planned = self._pipeline.plan(checked)
        if not isinstance(planned, IngestResult):
            planned = self._pipeline.read(planned, self._deadline)
        return _InFlight(request.sent_as, planned, validate_only=True)

    # These methods embed documents.

    def _embed_all(self) -> Iterator[list[_InFlight[Ready]]]:
        group = self._drafts.take(_FULL)
        while group:
            embedded = self._embed([_.content for _ in group if isinstance(_.content, IngestDraft)])
            yield [_to_next_stage(document, embedded) for document in group]
            # If the group has several documents, the caller does not wait for each answer, so
            # further documents may arrive soon.
            if len(group) > 1:
                self._drafts.gather(_FULL, _PAUSE_S)
            group = self._drafts.take(_FULL)

    def _embed(self, drafts: list[IngestDraft]) -> Iterator[Ready | Exception]:
        """Embeds all drafts in one request; yields the result or error of each draft, in order.

        If a draft makes the request fail, embeds the drafts one by one.
        """
        try:
            yield from self._pipeline.embed(drafts, self._deadline)
        except _STREAM_ERRORS:
            raise
        except EmbedderUnavailable as error:
            # The embedder has already retried for seconds, so the drafts are not tried one by one.
            yield from [_without_traceback(error)] * len(drafts)
        except Exception as error:
            if len(drafts) == 1:
                yield _without_traceback(error)
            else:
                yield from self._embed_alone(drafts)

    def _embed_alone(self, drafts: list[IngestDraft]) -> Iterator[Ready | Exception]:
        for index, draft in enumerate(drafts):
            self._check_running()
            (outcome,) = self._embed([draft])
            if isinstance(outcome, EmbedderUnavailable):
                yield from [outcome] * (len(drafts) - index)
                return
            yield outcome

    # These methods commit and answer documents.

    def _next_group(self) -> list[_InFlight[Ready]]:
        """Returns the next group, or an empty list at the end of the stream."""
        while True:
            group = self._ready.take(_FULL, _POLL_S)
            if group == []:
                self._check_not_cancelled()
                return group
            self._check_running()
            if group is not None:
                return group

    def _answer(self, group: list[_InFlight[Ready]]) -> Iterator[list[DocumentReply]]:
        """Yields the answers to a group, committing its documents.

        Documents at the start of the group that need no commit are answered first, so that
        they do not wait for the commit of the documents after them.
        """
        settled = list(takewhile(lambda document: not isinstance(document.content, Ready), group))
        if settled:
            yield self._finish(settled, [])
        if len(settled) < len(group):
            yield from self._commit(group[len(settled) :])

    def _commit(self, group: list[_InFlight[Ready]]) -> Iterator[list[DocumentReply]]:
        """Commits all documents at once and yields the answers.

        If a document makes the commit fail, commits the documents one by one.
        """
        ready = [document.content for document in group if isinstance(document.content, Ready)]
        for collection in dict.fromkeys(document.collection for document in ready):
            self._wait_for_capacity(collection)
        outcomes = self._outcomes_of_commit(ready)
        if outcomes:
            yield self._finish(group, outcomes)
        else:
            for document in group:
                yield from self._answer([document])

    def _outcomes_of_commit(self, ready: list[Ready]) -> list[Outcome]:
        """Commits documents and returns the outcome of each, in order.

        Returns an empty list if one of several documents makes the commit fail. Raises an
        error that affects all documents.
        """
        try:
            return [_without_traceback(outcome) for outcome in self._pipeline.commit(ready)]
        except HragError as error:
            # The error of a single document is one of the outcomes. So an HragError that is raised
            # affects all documents.
            raise _without_traceback(error) from None
        except Exception as error:
            return [_without_traceback(error)] if len(ready) == 1 else []

    def _finish(
        self, group: list[_InFlight[Ready]], committed: Sequence[Outcome]
    ) -> list[DocumentReply]:
        """Returns the answers to a group, and removes its documents from the keys in flight.

        `committed` are the outcomes of the group's documents that have been committed, in order.
        """
        answers = []
        outcomes = iter(committed)
        for document in group:
            content = document.content
            outcome = next(outcomes) if isinstance(content, Ready) else content
            if document.key is not None:
                self._in_flight.remove(document.key)
            answers.append(DocumentReply(document.sent_as, outcome, document.validate_only))
        return answers

    def _wait_for_capacity(self, collection: CollectionHandle) -> None:
        """Waits until the collection may be written to.

        Waits in short steps, so that a stop of the service or a cancellation ends the wait.
        """
        while True:
            self._check_running()
            try:
                return self._pipeline.wait_for_capacity(collection, Deadline.after(_POLL_S))
            except DeadlineExceeded:
                self._deadline.check("waiting for the index to catch up")

    def _check_running(self) -> None:
        self._check_not_cancelled()
        if self._stopping.is_set():
            raise ServiceUnavailable(
                "the indexer is stopping; documents that were answered are stored, send the others "
                "again"
            )

    def _check_not_cancelled(self) -> None:
        if self._cancelled.is_set():
            raise Cancelled("the caller cancelled the call or disconnected")


class _KeysInFlight:
    """The keys of documents that have been cut but not answered yet, with a count for each key."""

    def __init__(self) -> None:
        self._counts: Counter[Key] = Counter()
        self._lock = threading.Lock()

    def keys(self) -> frozenset[Key]:
        """Returns the keys that have at least one document in flight now."""
        with self._lock:
            return frozenset(self._counts)

    def add(self, key: Key) -> None:
        with self._lock:
            self._counts[key] += 1

    def remove(self, key: Key) -> None:
        with self._lock:
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]


def _without_traceback(outcome: SameOutcome) -> SameOutcome:
    """Returns `outcome` itself. If it is an error, removes its traceback and its causes.

    The frames of a traceback refer to the document and, through the frames of their callers, to
    the error. Only the garbage collector could free this reference cycle. The traceback of an
    unexpected error, which is not an HragError, is kept as a note for the log.
    """
    if isinstance(outcome, Exception):
        if not isinstance(outcome, HragError):
            outcome.add_note("".join(traceback.format_exception(outcome)))
        outcome.__traceback__ = outcome.__cause__ = outcome.__context__ = None
    return outcome


def _to_next_stage(
    document: _InFlight[IngestDraft], embedded: Iterator[Ready | Exception]
) -> _InFlight[Ready]:
    """Returns a document for the stage after embedding.

    Its content is the next result in `embedded`. A document that has an outcome already keeps it,
    and no result is read.
    """
    content = document.content
    outcome = next(embedded) if isinstance(content, IngestDraft) else content
    return _InFlight(
        document.sent_as, outcome, document.key, document.weight, document.validate_only
    )


def _weight(document: _InFlight[IngestDraft] | _InFlight[Ready]) -> float:
    return document.weight


def _weight_of_draft(draft: IngestDraft) -> float:
    """Returns the draft's share of a full group.

    Documents whose shares add up to at most 1 stay within all limits of a group.
    """
    return _FULL * max(
        1 / GROUP_DOCUMENTS, draft.leaf_count / GROUP_LEAVES, draft.size_bytes / GROUP_BYTES
    )
