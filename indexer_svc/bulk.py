"""Bulk load: many documents over one stream, three pipelined stages, group commit.

While one group of documents is committed and answered, the leaves of the next group are
embedded, and the documents after that are read, admitted and cut. A caller that waits for
each answer gets it at once. A caller that keeps sending gets large groups: documents queue
up while a commit is synced, and for a short pause longer as long as more of them come.

Answers come in the order of the documents, each after the commit of its document. A
document's own error is its answer and affects no other document; an error that concerns
all documents ends the stream after the answers of the stored ones. Memory is bounded: at
most four groups and one document are in flight, where a group is within its bounds or a
single document. Knows nothing of gRPC.
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
from indexer_svc.ingest_pipeline import Draft, Key, Pipeline, Ready
from indexer_svc.prefetch_queue import PrefetchQueue

# A group shares one sync to disk. With 64 documents the sync takes little time compared with
# their own work, and the writer's lock is held for a few hundredths of a second.
GROUP_DOCUMENTS = 64
# The size of one request to an embedding endpoint. A larger group would not be faster, and
# its answers would come later: the built-in model embeds about 350 leaves per second.
GROUP_LEAVES = 512
GROUP_BYTES = 16 * MIB  # Texts, trees and vectors; half of the largest document by default.

_FULL = 1.0  # The weight of a full group.
_PAUSE_S = 0.002  # Shorter than a commit, longer than cutting a short document.
_POLL_S = 0.1  # How often a wait checks whether the service is stopping.

# Errors that every further document would meet too.
_CONCERNS_ALL = (
    StorageFull,
    StoreUnavailable,
    DeadlineExceeded,
    Cancelled,
    ServiceUnavailable,
)

Outcome = IngestResult | Exception
Work = TypeVar("Work", Draft, Ready)
Kept = TypeVar("Kept", bound=Outcome)


@dataclass(frozen=True, slots=True)
class IngestRequest:
    """A document of the stream, with its id as sent; `read` decodes it and may raise."""

    tenant_id: str
    collection: str
    document_id: str
    read: Callable[[], Document]

    @property
    def sent_as(self) -> Key:
        """Its key as sent, so any part may be empty or invalid."""
        return self.tenant_id, self.collection, self.document_id


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of a document; `sent_as` is its key as sent."""

    sent_as: Key
    outcome: Outcome

    @property
    def document_id(self) -> str:
        """The document's id as sent, so it may be empty."""
        return self.sent_as[2]


@dataclass(frozen=True, slots=True)
class _InFlight(Generic[Work]):
    """A document between two stages, or its outcome; `key` is set once it has been cut."""

    sent_as: Key
    content: Work | Outcome
    key: Key | None = None
    weight: float = _FULL / GROUP_DOCUMENTS


class BulkLoad:
    """One stream of documents. `cancel` may be called from any thread."""

    def __init__(
        self,
        pipeline: Pipeline,
        requests: Iterable[IngestRequest],
        deadline: Deadline,
        stopping: threading.Event,
    ) -> None:
        """`requests` is iterated in another thread; `stopping` ends the stream early."""
        self._pipeline = pipeline
        self._requests = requests
        self._deadline = deadline
        self._stopping = stopping
        self._cancelled = threading.Event()
        self._admitting = threading.Lock()
        self._in_flight = _Counts()
        self._drafts = PrefetchQueue[_InFlight[Draft]](_weight, _FULL, "cut")
        # One group waits for its commit. Meanwhile documents queue up for the embedder, so
        # that it is called, and threads are switched, per group and not per document.
        self._ready = PrefetchQueue[_InFlight[Ready]](_weight, 0.0, "embed")

    def run(self) -> Iterator[list[Answer]]:
        """Stores the documents; yields their answers in order, those of one commit together.

        Raises what concerns all documents, such as StorageFull, after the answers of those
        that are stored; ServiceUnavailable when the service stops, Cancelled after `cancel`.
        """
        self._drafts.start(self._cut_all(self._requests))
        self._requests = ()
        self._ready.start(self._embed_all())
        try:
            while group := self._next_group():
                yield from self._answer(group)
        finally:
            self.cancel()
            with self._admitting:  # Nothing reads the store after this, so it may be closed.
                pass

    def cancel(self) -> None:
        """Makes every stage end soon; committed documents stay. Returns at once."""
        self._cancelled.set()
        self._drafts.stop()
        self._ready.stop()

    # Reading and cutting

    def _cut_all(self, requests: Iterable[IngestRequest]) -> Iterator[list[_InFlight[Draft]]]:
        for request in requests:
            yield [self._cut_or_refuse(request)]

    def _cut_or_refuse(self, request: IngestRequest) -> _InFlight[Draft]:
        """The document, cut, or its own error; raises what concerns all documents."""
        try:
            return self._cut(request)
        except _CONCERNS_ALL:
            raise
        except Exception as error:
            return _InFlight(request.sent_as, _detached(error))

    def _cut(self, request: IngestRequest) -> _InFlight[Draft]:
        checked = self._pipeline.check(request.tenant_id, request.collection, request.read())
        with self._admitting:
            self._check_going()
            # The stored version must not be compared once this stream has sent a newer one. The
            # store is read after these: what it does not have yet is among them.
            in_flight = self._in_flight.keys()
            admitted = self._pipeline.admit(checked, in_flight)
        if isinstance(admitted, IngestResult):
            return _InFlight(request.sent_as, admitted)
        superseded = admitted.key in in_flight
        draft = self._pipeline.cut(admitted, self._deadline)
        with self._admitting:
            self._check_going()
            stored = self._pipeline.admit_draft(draft, superseded=superseded)
        if stored is not None:
            return _InFlight(request.sent_as, stored)
        self._in_flight.add(admitted.key)
        return _InFlight(request.sent_as, draft, admitted.key, _weight_of(draft))

    # Embedding

    def _embed_all(self) -> Iterator[list[_InFlight[Ready]]]:
        group = self._drafts.take(_FULL)
        while group:
            embedded = self._embed([_.content for _ in group if isinstance(_.content, Draft)])
            yield [_advanced(document, embedded) for document in group]
            if len(group) > 1:  # The caller does not wait for each answer.
                self._drafts.gather(_FULL, _PAUSE_S)
            group = self._drafts.take(_FULL)

    def _embed(self, drafts: list[Draft]) -> Iterator[Ready | Exception]:
        """Embeds all at once, or one by one if one of them makes the request fail."""
        try:
            yield from self._pipeline.embed(drafts, self._deadline)
        except _CONCERNS_ALL:
            raise
        except EmbedderUnavailable as error:
            yield from [_detached(error)] * len(drafts)  # The embedder has retried for seconds.
        except Exception as error:
            if len(drafts) == 1:
                yield _detached(error)
            else:
                yield from self._embed_alone(drafts)

    def _embed_alone(self, drafts: list[Draft]) -> Iterator[Ready | Exception]:
        for index, draft in enumerate(drafts):
            self._check_going()
            (outcome,) = self._embed([draft])
            if isinstance(outcome, EmbedderUnavailable):
                yield from [outcome] * (len(drafts) - index)
                return
            yield outcome

    # Committing and answering

    def _next_group(self) -> list[_InFlight[Ready]]:
        """The documents that are ready, at least one; an empty list at the end."""
        while True:
            group = self._ready.take(_FULL, _POLL_S)
            if group == []:
                self._check_not_cancelled()
                return group
            self._check_going()
            if group is not None:
                return group

    def _answer(self, group: list[_InFlight[Ready]]) -> Iterator[list[Answer]]:
        """Answers that need no commit are not held back by a commit after them."""
        settled = list(takewhile(lambda each: not isinstance(each.content, Ready), group))
        if settled:
            yield self._close(settled, [])
        if len(settled) < len(group):
            yield from self._commit(group[len(settled) :])

    def _commit(self, group: list[_InFlight[Ready]]) -> Iterator[list[Answer]]:
        """Commits all at once, or one by one if one of them makes the commit fail."""
        ready = [each.content for each in group if isinstance(each.content, Ready)]
        for collection in dict.fromkeys(each.collection for each in ready):
            self._wait_for_capacity(collection)
        outcomes = self._outcomes_of_commit(ready)
        if outcomes:
            yield self._close(group, outcomes)
        else:
            for each in group:
                yield from self._answer([each])

    def _outcomes_of_commit(self, ready: list[Ready]) -> list[Outcome]:
        """The outcome of each document; an empty list if one of several makes the commit fail."""
        try:
            return [_detached(outcome) for outcome in self._pipeline.commit(ready)]
        except HragError as error:
            # A document's own error would be its outcome; this one concerns them all.
            raise _detached(error) from None
        except Exception as error:
            return [_detached(error)] if len(ready) == 1 else []

    def _close(self, group: list[_InFlight[Ready]], committed: Sequence[Outcome]) -> list[Answer]:
        answers = []
        outcomes = iter(committed)
        for document in group:
            content = document.content
            outcome = next(outcomes) if isinstance(content, Ready) else content
            if document.key is not None:
                self._in_flight.remove(document.key)
            answers.append(Answer(document.sent_as, outcome))
        return answers

    def _wait_for_capacity(self, collection: CollectionHandle) -> None:
        """Waits in short steps, so that a stop or a cancellation ends it."""
        while True:
            self._check_going()
            try:
                return self._pipeline.wait_for_capacity(collection, Deadline.after(_POLL_S))
            except DeadlineExceeded:
                self._deadline.check("waiting for the index to catch up")

    def _check_going(self) -> None:
        self._check_not_cancelled()
        if self._stopping.is_set():
            raise ServiceUnavailable(
                "the indexer is stopping; what was answered is stored, send the rest again"
            )

    def _check_not_cancelled(self) -> None:
        if self._cancelled.is_set():
            raise Cancelled("the caller went away")


class _Counts:
    """The number of documents of each key between cutting and answer."""

    def __init__(self) -> None:
        self._counts: Counter[Key] = Counter()
        self._lock = threading.Lock()

    def keys(self) -> frozenset[Key]:
        """Those of which there is a document now."""
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


def _detached(outcome: Kept) -> Kept:
    """Returns `outcome`; an error loses its stack and its causes, a fault of ours to a note.

    The frames of a stack refer to the document and, by way of their callers, to the error: only
    the garbage collector frees such a cycle. The note is for the log of whoever answers.
    """
    if isinstance(outcome, Exception):
        if not isinstance(outcome, HragError):
            outcome.add_note("".join(traceback.format_exception(outcome)))
        outcome.__traceback__ = outcome.__cause__ = outcome.__context__ = None
    return outcome


def _advanced(
    document: _InFlight[Draft], embedded: Iterator[Ready | Exception]
) -> _InFlight[Ready]:
    content = document.content
    outcome = next(embedded) if isinstance(content, Draft) else content
    return _InFlight(document.sent_as, outcome, document.key, document.weight)


def _weight(document: _InFlight[Draft] | _InFlight[Ready]) -> float:
    return document.weight


def _weight_of(draft: Draft) -> float:
    """The share of a full group; documents whose shares add up to 1 keep all of its bounds."""
    return _FULL * max(
        1 / GROUP_DOCUMENTS, draft.leaf_count / GROUP_LEAVES, draft.size_bytes / GROUP_BYTES
    )
