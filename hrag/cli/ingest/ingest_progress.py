"""Sends documents as a stream and counts their outcomes.

Documents are read when the stream needs them, so few of them are in memory at a time. Knows
nothing of terminals: who shows progress is told of each outcome.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from threading import Lock
from typing import TYPE_CHECKING

from hrag.cli.ingest.input_document import InputDocument, Unreadable
from hrag.values.documents import Document, IngestOutcome, IngestResult
from hrag.values.errors import CollectionNotFound, HragError, TooLarge

if TYPE_CHECKING:
    from hrag.client import Client

# What a service lets in by default. gRPC ends a stream at a request of four times as much.
_ALONE_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class DocumentOutcome:
    """What became of one document: a result, or the error that refused it."""

    label: str
    result: IngestResult | HragError | Unreadable
    encoding: str = ""


@dataclass(frozen=True, slots=True)
class _Sent:
    """A document that is under way."""

    label: str
    encoding: str
    size_bytes: int


def _ignore(_outcome: DocumentOutcome) -> None:
    """Nobody listens."""


class IngestProgress:
    """The outcomes of an ingest so far; `total` is 0 if the number of documents is not known.

    `failures` holds (label, reason) of documents that could not be stored, `encodings` (label,
    encoding) of those that were not UTF-8; `error` is what ended the stream early, if anything.
    `tell` is called with each outcome, in the stream's thread too.
    """

    def __init__(
        self,
        total: int = 0,
        total_bytes: int = 0,
        tell: Callable[[DocumentOutcome], None] = _ignore,
    ) -> None:
        self.total = total
        self.total_bytes = total_bytes
        self.completed_bytes = 0
        self.outcomes: Counter[IngestOutcome] = Counter()
        self.failures: list[tuple[str, str]] = []
        self.encodings: list[tuple[str, str]] = []
        self.document_ids: list[str] = []
        self.chunks_per_level: tuple[int, ...] = ()
        self.tokens = 0
        self.error: HragError | None = None
        self._sent: deque[_Sent] = deque()
        self.tell = tell
        self._lock = Lock()  # Files are read, and may fail, in the stream's thread.
        self._started = time.perf_counter()
        self._ended: float | None = None

    @property
    def stored(self) -> int:
        """Number of documents that are in the store, unchanged ones included."""
        return len(self.document_ids)

    @property
    def completed(self) -> int:
        """Number of documents with an outcome."""
        return self.stored + len(self.failures)

    @property
    def seconds(self) -> float:
        """Time since the start, or from start to end once the ingest has ended."""
        return (self._ended or time.perf_counter()) - self._started

    @property
    def next_label(self) -> str:
        """The document whose outcome comes next; empty if none is under way."""
        try:
            return self._sent[0].label
        except IndexError:
            return ""

    def rate(self, amount: int) -> float:
        """`amount` per second."""
        return amount / max(self.seconds, 1e-9)

    def send(self, label: str, size_bytes: int, encoding: str) -> None:
        """Notes a document that was read; outcomes arrive in the order of the documents."""
        self._sent.append(_Sent(label, encoding, size_bytes))

    def receive(self, answer: IngestResult | HragError) -> None:
        """Counts the outcome of the oldest document that was sent."""
        sent = self._sent.popleft()
        if isinstance(answer, HragError):
            self._add(DocumentOutcome(sent.label, answer, sent.encoding), sent.size_bytes)
            return
        self.outcomes[answer.outcome] += 1
        self.document_ids.append(answer.document_id)
        self.tokens += answer.token_count
        self.chunks_per_level = _sum(self.chunks_per_level, answer.chunks_per_level)
        self._add(DocumentOutcome(sent.label, answer, sent.encoding), sent.size_bytes)

    def fail(self, label: str, error: Unreadable, size_bytes: int = 0) -> None:
        """Counts a document that could not be read."""
        self._add(DocumentOutcome(label, error), size_bytes)

    def _add(self, outcome: DocumentOutcome, size_bytes: int) -> None:
        with self._lock:
            self.completed_bytes += size_bytes
            if isinstance(outcome.result, Exception):
                self.failures.append((outcome.label, str(outcome.result)))
            elif outcome.encoding:
                self.encodings.append((outcome.label, outcome.encoding))
            self.tell(outcome)

    def end(self) -> None:
        """Stops the clock."""
        self._ended = time.perf_counter()


def _sum(counts: tuple[int, ...], more: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(sum, zip(counts, more, strict=True))) if counts else more


def ingest_all(
    client: "Client",
    tenant_id: str,
    collection: str,
    documents: Iterable[InputDocument],
    progress: IngestProgress,
) -> None:
    """Sends every document in order, and counts the outcomes in `progress`.

    Raises no HragError: errors of documents and of the stream are in `progress`.
    """
    try:
        for alone, group in groupby(documents, _alone):
            # The thread of a stream that was ended may still ask for the next document.
            own = list(group) if alone else group  # noqa: B031 - used once.
            stream = _read_all(own, progress)
            try:
                _count(client.ingest_many(tenant_id, stream, collection=collection), progress)
            except TooLarge as error:
                if not alone:
                    raise
                progress.receive(error)
    except HragError as error:
        progress.error = error
    progress.end()


def _count(answers: Iterator[IngestResult | HragError], progress: IngestProgress) -> None:
    for answer in answers:
        if isinstance(answer, CollectionNotFound):  # It is no document's own error.
            raise answer
        progress.receive(answer)


def _alone(document: InputDocument) -> str:
    """The label of a document that needs a stream of its own, empty for all others."""
    return document.label if document.size_bytes > _ALONE_BYTES else ""


def _read_all(documents: Iterable[InputDocument], progress: IngestProgress) -> Iterator[Document]:
    """Runs in the stream's thread."""
    for each in documents:
        try:
            read = each.read()
        except Unreadable as error:
            progress.fail(each.label, error, each.size_bytes)
            continue
        progress.send(each.label, each.size_bytes, read.encoding)
        yield read.document
