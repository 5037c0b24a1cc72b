"""Many documents over one stream: three stages that overlap, one commit for a group.

While one group of documents is committed and answered, the leaves of the next are
embedded, and those after are read, looked up and cut. A caller that waits for each answer
is served at once. One that keeps sending gets large groups: documents gather while a commit
is synced, and a moment longer as long as more of them come.

Answers come in the order of the documents, each after the commit of its own. A document's
own error is its answer and touches no neighbour; what concerns all documents ends the
stream after the answers of what is stored. Memory is bounded: at most four groups and one
document are under way at once, where a group is within its bounds or a single document.
Knows nothing of gRPC.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Generic, TypeVar

from hrag.config import MIB
from hrag.deadline import Deadline
from hrag.engine import OpenCollection
from hrag.errors import (
    Cancelled,
    DeadlineExceeded,
    EmbedderUnavailable,
    HragError,
    ServiceUnavailable,
    StorageFull,
    StoreUnavailable,
)
from hrag.types import Document, IngestResult
from indexer_svc.pipeline import Draft, Key, Pipeline, Ready
from indexer_svc.prefetch_queue import Ahead

# A group shares one sync of the disk. Sixty-four documents make that small beside their
# own work, and hold the writer's lock for a few hundredths of a second.
GROUP_DOCUMENTS = 64
# What one request to an embedding endpoint takes. A larger group would be no quicker, and
# its answers would come later: the built-in model embeds some 140 leaves a second.
GROUP_LEAVES = 512
GROUP_BYTES = 16 * MIB  # Texts, trees and vectors; half of the largest document by default.

_FULL = 1.0  # What a full group weighs.
_PAUSE_S = 0.002  # Short beside a commit, long beside the cutting of a short document.
_POLL_S = 0.1  # How often a wait looks whether the service stops.

# They would meet every document that is still to come.
_CONCERNS_ALL = (
    StorageFull,
    StoreUnavailable,
    DeadlineExceeded,
    Cancelled,
    ServiceUnavailable,
)

Outcome = IngestResult | Exception
Work = TypeVar("Work", Draft, Ready)


@dataclass(frozen=True, slots=True)
class Asked:
    """A document as it came, with the id as sent; `read` may refuse it."""

    tenant_id: str
    collection: str
    document_id: str
    read: Callable[[], Document]


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a document; `document_id` is as sent, so it may be empty."""

    document_id: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class _Parcel(Generic[Work]):
    """A document on its way, or what has become of it; one that was cut has its `key`."""

    document_id: str
    content: Work | Outcome
    key: Key | None = None
    weight: float = _FULL / GROUP_DOCUMENTS


class BulkLoad:
    """One stream of documents. `cancel` may be called from any thread."""

    def __init__(
        self,
        pipeline: Pipeline,
        asked: Iterable[Asked],
        deadline: Deadline,
        stopping: threading.Event,
    ) -> None:
        """`asked` is iterated in another thread; `stopping` ends the stream early."""
        self._pipeline = pipeline
        self._deadline = deadline
        self._stopping = stopping
        self._cancelled = threading.Event()
        self._looking_up = threading.Lock()
        self._under_way = _Counts()
        self._drafts = Ahead(self._cut_all(asked), _weight, _FULL, "cut")
        # One group waits for its commit. Meanwhile documents gather before the embedder, so
        # that it and the threads are called for groups, not for each document.
        self._ready = Ahead(self._embed_all(), _weight, 0.0, "embed")

    def run(self) -> Iterator[list[Answer]]:
        """Stores the documents and answers each, in order: those of a commit together.

        Raises what concerns all documents, such as StorageFull, after the answers of those
        that are stored; ServiceUnavailable when the service stops, Cancelled after `cancel`.
        """
        self._drafts.start()
        self._ready.start()
        try:
            while group := self._next_group():
                yield from self._answer(group)
        finally:
            self.cancel()
            with self._looking_up:  # Whoever closes the store next finds nobody in it.
                pass

    def cancel(self) -> None:
        """Makes every stage end soon; what is committed stays. Returns at once."""
        self._cancelled.set()
        self._drafts.stop()
        self._ready.stop()

    # Reading and cutting

    def _cut_all(self, asked: Iterable[Asked]) -> Iterator[list[_Parcel[Draft]]]:
        for each in asked:
            try:
                parcel = self._cut(each)
            except _CONCERNS_ALL:
                raise
            except Exception as error:
                parcel = _Parcel(each.document_id, error)
            yield [parcel]

    def _cut(self, asked: Asked) -> _Parcel[Draft]:
        checked = self._pipeline.check(asked.tenant_id, asked.collection, asked.read())
        with self._looking_up:
            self._check_going()
            # What is stored counts no more once this stream has sent something newer.
            superseded = checked.key in self._under_way
            found = self._pipeline.look_up(checked, superseded=superseded)
        if isinstance(found, IngestResult):
            return _Parcel(asked.document_id, found)
        draft = self._pipeline.cut(found, self._deadline)
        with self._looking_up:
            self._check_going()
            self._pipeline.check_quota(draft)
        self._under_way.add(checked.key)
        return _Parcel(asked.document_id, draft, checked.key, _weight_of(draft))

    # Embedding

    def _embed_all(self) -> Iterator[list[_Parcel[Ready]]]:
        group = self._drafts.take(_FULL)
        while group:
            embedded = self._embed([_.content for _ in group if isinstance(_.content, Draft)])
            yield [_advanced(parcel, embedded) for parcel in group]
            if len(group) > 1:  # The caller does not wait for each answer.
                self._drafts.gather(_FULL, _PAUSE_S)
            group = self._drafts.take(_FULL)

    def _embed(self, drafts: list[Draft]) -> Iterator[Ready | Exception]:
        """All at once; each alone where one of them spoils it for the others."""
        try:
            yield from self._pipeline.embed(drafts, self._deadline)
        except _CONCERNS_ALL:
            raise
        except EmbedderUnavailable as error:
            yield from [error] * len(drafts)  # It has been tried again for seconds already.
        except Exception as error:
            if len(drafts) == 1:
                yield error
            else:
                yield from self._embed_alone(drafts)

    def _embed_alone(self, drafts: list[Draft]) -> Iterator[Ready | Exception]:
        for place, draft in enumerate(drafts):
            self._check_going()
            (outcome,) = self._embed([draft])
            if isinstance(outcome, EmbedderUnavailable):
                yield from [outcome] * (len(drafts) - place)
                return
            yield outcome

    # Committing and answering

    def _next_group(self) -> list[_Parcel[Ready]]:
        """What is ready, one document at least; the empty list is the end."""
        while True:
            group = self._ready.take(_FULL, _POLL_S)
            if group == []:
                self._check_not_cancelled()
                return group
            self._check_going()
            if group is not None:
                return group

    def _answer(self, group: list[_Parcel[Ready]]) -> Iterator[list[Answer]]:
        """Answers that need no commit do not wait for a commit behind them."""
        settled = list(takewhile(lambda parcel: not isinstance(parcel.content, Ready), group))
        if settled:
            yield self._close(settled, [])
        if len(settled) < len(group):
            yield from self._commit(group[len(settled) :])

    def _commit(self, parcels: list[_Parcel[Ready]]) -> Iterator[list[Answer]]:
        """All at once; each alone where one of them spoils it for the others."""
        ready = [parcel.content for parcel in parcels if isinstance(parcel.content, Ready)]
        for collection in dict.fromkeys(each.collection for each in ready):
            self._wait_for_capacity(collection)
        outcomes: Sequence[Outcome]
        try:
            outcomes = self._pipeline.commit(ready)
        except HragError:
            raise  # One document's own would be its outcome: this concerns them all.
        except Exception as error:
            if len(ready) > 1:
                for parcel in parcels:
                    yield from self._answer([parcel])
                return
            outcomes = [error]
        yield self._close(parcels, outcomes)

    def _close(self, parcels: list[_Parcel[Ready]], committed: Sequence[Outcome]) -> list[Answer]:
        answers = []
        outcomes = iter(committed)
        for parcel in parcels:
            content = parcel.content
            outcome = next(outcomes) if isinstance(content, Ready) else content
            if parcel.key is not None:
                self._under_way.remove(parcel.key)
            answers.append(Answer(parcel.document_id, outcome))
        return answers

    def _wait_for_capacity(self, collection: OpenCollection) -> None:
        """In short waits, so that a stop or a caller that goes ends it."""
        while True:
            self._check_going()
            try:
                return self._pipeline.wait_for_capacity(collection, Deadline.after(_POLL_S))
            except DeadlineExceeded:
                self._deadline.check("waiting until the index has room for more")

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
    """How many documents of each key are between their cutting and their answer."""

    def __init__(self) -> None:
        self._counts: Counter[Key] = Counter()
        self._lock = threading.Lock()

    def __contains__(self, key: Key) -> bool:
        with self._lock:
            return key in self._counts

    def add(self, key: Key) -> None:
        with self._lock:
            self._counts[key] += 1

    def remove(self, key: Key) -> None:
        with self._lock:
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]


def _advanced(parcel: _Parcel[Draft], embedded: Iterator[Ready | Exception]) -> _Parcel[Ready]:
    content = parcel.content
    outcome = next(embedded) if isinstance(content, Draft) else content
    return _Parcel(parcel.document_id, outcome, parcel.key, parcel.weight)


def _weight(parcel: _Parcel[Draft] | _Parcel[Ready]) -> float:
    return parcel.weight


def _weight_of(draft: Draft) -> float:
    """The share of a full group; shares that add up to 1 keep every bound of it."""
    return _FULL * max(
        1 / GROUP_DOCUMENTS, draft.leaf_count / GROUP_LEAVES, draft.size_bytes / GROUP_BYTES
    )
