"""Bulk load: stores the documents of one stream in three stages that run in parallel.

The stages are cutting, embedding and committing. A group is a list of consecutive documents that
are embedded in one request and committed in one transaction (group commit). The answer to a
document, which is returned to the client's stream, is the result of storing it, or an error. While
one group is committed and answered, the leaves of the next group are embedded, and the documents
after the next group are read, admitted and cut. If the client waits for the answer to each document
before it sends the next document, each document is a group, and is answered at once. If the client
does not wait, groups are large, because documents queue up while a commit is synced to disk. If the
previous group had several documents, the load waits before it embeds the next group, so that the
next group becomes larger. The wait ends when the group is full, or when no further document has
arrived for 2 ms (`_PAUSE_S`).

Answers have the order of the documents. If a document is committed, its result is returned after
the commit. An error of one document is the answer to that document and affects no other document.
An error that affects all documents ends the stream, after the answers to the documents that are
stored. Memory is limited: of all documents that have been read, at most four groups and one more
document are not answered yet. The documents of a group together stay within GROUP_DOCUMENTS,
GROUP_LEAVES and GROUP_BYTES. Exception: a document that exceeds one of these limits alone is a
group of one document. This module does not depend on gRPC.
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

# A group of documents that are committed together has at most this many documents, which share one
# sync to disk. For 64 documents, the sync takes little time compared with the other work, so larger
# groups would hardly be faster. With groups of this size, the writer holds its lock for only a few
# hundredths of a second.
GROUP_DOCUMENTS = 64
# A group of documents that are embedded together has at most this many leaves, which is also the
# maximum count of texts in one request to an embedding endpoint. So a larger group would not be
# embedded faster, but its documents would be answered later: the built-in model embeds about 350
# leaves per second.
GROUP_LEAVES = 512
# The texts, chunk trees and vectors of a group of documents have at most this many bytes in total,
# so that the few groups that are in memory at the same time need little memory. This is half of the
# default of HRAG_MAX_DOCUMENT_BYTES.
GROUP_BYTES = 16 * MIB

# The maximum weight of a group. The weight of a document is the fraction of a group's limits that
# the document uses up (`_weight_of_draft`).
_FULL = 1.0
# If the previous group had several documents, the load waits for further documents before it embeds
# the next group, at most this long for each of them. This time is shorter than a commit, and longer
# than cutting a short document.
_PAUSE_S = 0.002
# While the load waits for an embedded group or for the index, it checks at this interval whether
# the service is stopping.
_POLL_S = 0.1

# These errors end the stream, because every further document would fail with the same error.
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
    """A document of the stream that has not been decoded yet.

    The names and ids are as the client sent them, so each may be empty or invalid. `read` decodes
    the document, and may raise an error if the document is invalid. If `validate_only` is True, the
    document is not stored.
    """

    tenant_id: str
    collection: str
    document_id: str
    read: Callable[[], Document]
    validate_only: bool = False

    @property
    def sent_as(self) -> Key:
        """The tenant id, collection and document id as the client sent them.

        Each of them may be empty or invalid.
        """
        return self.tenant_id, self.collection, self.document_id


@dataclass(frozen=True, slots=True)
class DocumentReply:
    """The answer to a document of the stream.

    `sent_as` has the tenant id, collection and document id as the client sent them. `outcome` is
    the result of storing the document, or an error. If `validate_only` is True, the document was
    not stored.
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
    """A document whose result or error has not been returned to the client's stream yet.

    `content` is the document in the form that the next stage needs. If the document needs no
    further stage, for example because it failed or was stored already, `content` is its outcome.
    `key` is set once the document has been cut. `weight` is the fraction of a group's limits that
    the document uses up (`_weight_of_draft`).
    """

    sent_as: Key
    content: Work | Outcome
    key: Key | None = None
    weight: float = _FULL / GROUP_DOCUMENTS
    validate_only: bool = False


class BulkLoad:
    """Stores the documents of one stream. `cancel` may be called from any thread."""

    def __init__(
        self,
        pipeline: Pipeline,
        requests: Iterable[IngestRequest],
        deadline: Deadline,
        stopping: threading.Event,
    ) -> None:
        """Stores nothing yet. `run` stores the documents, and iterates `requests` in a thread.

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
        # With a capacity of 0, this queue contains at most one embedded group, which waits for its
        # commit. While this group waits, the next documents queue up in `_drafts` and become one
        # group. So the embedder is called, and threads are switched, once for each group and not
        # once for each document.
        self._ready = PrefetchQueue[_InFlight[Ready]](_weight, 0.0, "embed")

    def run(self) -> Iterator[list[DocumentReply]]:
        """Stores the documents and yields the answers to the documents, in order.

        The answers to documents of one commit are yielded together. If an error affects all
        documents, for example StorageFull, raises it after the answers to the documents that are
        stored. Raises ServiceUnavailable when the service stops, and Cancelled after `cancel`.
        """
        self._drafts.start(self._cut_all(self._requests))
        self._requests = ()
        self._ready.start(self._embed_all())
        try:
            while group := self._next_group():
                yield from self._answer(group)
        finally:
            self.cancel()
            # The first stage reads the store only while it holds this lock, and not after `cancel`.
            # So once this thread has acquired the lock, the load does not read the store any more,
            # and the store may be closed.
            with self._admitting:
                pass

    def cancel(self) -> None:
        """Makes all stages end soon; does not wait for their end. Stored documents stay stored."""
        self._cancelled.set()
        self._drafts.stop()
        self._ready.stop()

    @property
    def is_cancelled(self) -> bool:
        """True after `cancel`, and after `run` has ended for any reason."""
        return self._cancelled.is_set()

    # The following methods are the first stage: they read and cut documents.

    def _cut_all(self, requests: Iterable[IngestRequest]) -> Iterator[list[_InFlight[IngestDraft]]]:
        for request in requests:
            yield [self._cut_or_refuse(request)]

    def _cut_or_refuse(self, request: IngestRequest) -> _InFlight[IngestDraft]:
        """Returns the document after it has been cut into chunks, or with the error that it caused.

        Raises the errors in `_STREAM_ERRORS`, which affect all documents.
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
            # A document that equals its stored version is not stored again. But if another version
            # of the document came earlier in this stream and is not committed yet, it will replace
            # the stored version. So the document must not be compared with the stored version.
            # `in_flight` has the keys of the documents that were cut and whose result or error has
            # not been returned yet. `in_flight` is read before the store is read. So the other
            # version is in `in_flight`, or it is committed and the store has it.
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

    # The following methods are the second stage: they embed documents.

    def _embed_all(self) -> Iterator[list[_InFlight[Ready]]]:
        group = self._drafts.take(_FULL)
        while group:
            embedded = self._embed([_.content for _ in group if isinstance(_.content, IngestDraft)])
            yield [_to_next_stage(document, embedded) for document in group]
            # If the group has several documents, the caller does not wait for each answer before it
            # sends the next document, so further documents may arrive soon.
            if len(group) > 1:
                self._drafts.gather(_FULL, _PAUSE_S)
            group = self._drafts.take(_FULL)

    def _embed(self, drafts: list[IngestDraft]) -> Iterator[Ready | Exception]:
        """Embeds all drafts in one request; yields the result or error of each draft, in order.

        A draft is a document that has been cut into chunks. If the request fails because of one of
        the drafts, embeds the drafts one by one.
        """
        try:
            yield from self._pipeline.embed(drafts, self._deadline)
        except _STREAM_ERRORS:
            raise
        except EmbedderUnavailable as error:
            # The embedder has repeated the request for several seconds without success. So
            # embedding the drafts one by one would fail too.
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

    # The following methods are the third stage: they commit and answer documents.

    def _next_group(self) -> list[_InFlight[Ready]]:
        """Waits for the next group of embedded documents and returns the group.

        Returns an empty list at the end of the stream.
        """
        while True:
            group = self._ready.take(_FULL, _POLL_S)
            if group == []:
                self._check_not_cancelled()
                return group
            self._check_running()
            if group is not None:
                return group

    def _answer(self, group: list[_InFlight[Ready]]) -> Iterator[list[DocumentReply]]:
        """Commits a group of documents and yields the answers to the documents.

        Documents at the start of the group that need no commit are answered first, so that their
        answers do not wait for the commit of the other documents.
        """
        settled = list(takewhile(lambda document: not isinstance(document.content, Ready), group))
        if settled:
            yield self._finish(settled, [])
        if len(settled) < len(group):
            yield from self._commit(group[len(settled) :])

    def _commit(self, group: list[_InFlight[Ready]]) -> Iterator[list[DocumentReply]]:
        """Commits a group of documents in one transaction and yields the answers to the documents.

        If the commit fails because of one of the documents, commits the documents one by one.
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
        """Commits documents in one transaction; returns the outcome of each document, in order.

        Returns an empty list if one of several documents makes the commit fail. In this case, none
        of the documents is stored, and the caller commits them one by one. Raises an HragError if
        the error affects all documents.
        """
        try:
            return [_without_traceback(outcome) for outcome in self._pipeline.commit(ready)]
        except HragError as error:
            # `commit` returns the error of a single document as its outcome. So an HragError that
            # `commit` raises affects all documents.
            raise _without_traceback(error) from None
        except Exception as error:
            return [_without_traceback(error)] if len(ready) == 1 else []

    def _finish(
        self, group: list[_InFlight[Ready]], committed: Sequence[Outcome]
    ) -> list[DocumentReply]:
        """Returns the answers to a group of documents, and removes their keys from `_in_flight`.

        `committed` has the outcomes of the documents in the group that needed a commit, in order.
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
        """Waits while too many leaves of the collection are not indexed yet (backpressure).

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
                "the indexer is stopping; documents that were answered are stored, so send only "
                "the documents without an answer again"
            )

    def _check_not_cancelled(self) -> None:
        if self._cancelled.is_set():
            raise Cancelled("the caller cancelled the call or disconnected")


class _KeysInFlight:
    """Counts, for each key, the documents that are in flight. Thread-safe.

    A document is in flight if it was cut into chunks and has to be stored, but its result or error
    has not been returned to the client's stream yet.
    """

    def __init__(self) -> None:
        self._counts: Counter[Key] = Counter()
        self._lock = threading.Lock()

    def keys(self) -> frozenset[Key]:
        """Returns the keys of all documents that are in flight.

        These are the documents that were cut into chunks and have to be stored, but whose result or
        error has not been returned to the client's stream yet.
        """
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

    The frames of a traceback refer to the document and to the error itself. Only the garbage
    collector could free this reference cycle. An error that is not an HragError is unexpected. So
    the traceback of this error is added to it as a note, which is text for the log.
    """
    if isinstance(outcome, Exception):
        if not isinstance(outcome, HragError):
            outcome.add_note("".join(traceback.format_exception(outcome)))
        outcome.__traceback__ = outcome.__cause__ = outcome.__context__ = None
    return outcome


def _to_next_stage(
    document: _InFlight[IngestDraft], embedded: Iterator[Ready | Exception]
) -> _InFlight[Ready]:
    """Returns a document in the form that the stage after embedding needs.

    If the document had to be embedded, its content is replaced by the next result in `embedded`. If
    the document already has an outcome, it keeps this outcome, and no result is read.
    """
    content = document.content
    outcome = next(embedded) if isinstance(content, IngestDraft) else content
    return _InFlight(
        document.sent_as, outcome, document.key, document.weight, document.validate_only
    )


def _weight(document: _InFlight[IngestDraft] | _InFlight[Ready]) -> float:
    return document.weight


def _weight_of_draft(draft: IngestDraft) -> float:
    """Returns the fraction of a group's limits that a document uses up; it is more than 0.

    Each of the three limits gives one fraction, for example the document's leaves divided by
    GROUP_LEAVES. The result is the largest of them. If the results of several documents add up to
    at most 1, the documents together stay within all three limits.
    """
    return _FULL * max(
        1 / GROUP_DOCUMENTS, draft.leaf_count / GROUP_LEAVES, draft.size_bytes / GROUP_BYTES
    )
