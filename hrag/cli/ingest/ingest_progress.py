"""Sends documents as a stream and counts their outcomes.

Documents are read when the stream needs them, so few of them are in memory at a time. This module
knows nothing of terminals: a caller that shows progress passes a function for outcomes.
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

# A larger document is sent in a separate stream. By default a service accepts documents up to
# this size. If a request is four times as large, gRPC ends the whole stream.
_ALONE_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class DocumentOutcome:
    """The outcome of one document: a result, or the error that refused it.

    `encoding` is the file's encoding if it was not UTF-8.
    """

    label: str
    result: IngestResult | HragError | Unreadable
    encoding: str = ""


@dataclass(frozen=True, slots=True)
class _Sent:
    """A document that was sent and whose outcome has not arrived yet."""

    label: str
    encoding: str
    size_bytes: int


def _ignore(_outcome: DocumentOutcome) -> None:
    """Does nothing; the default for outcomes."""


class IngestProgress:
    """The outcomes of an ingest so far.

    `total` is the number of documents, or 0 if it is not known. `failures` contains (label,
    reason) for each document that could not be stored, and `encodings` contains (label,
    encoding) for each that was not UTF-8. `error` is the error that ended the stream early, if
    any. `on_outcome` is called with each outcome, sometimes in the stream's thread.
    """

    def __init__(
        self,
        total: int = 0,
        total_bytes: int = 0,
        on_outcome: Callable[[DocumentOutcome], None] = _ignore,
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
        self.on_outcome = on_outcome
        # The stream's thread reads files, and adds an outcome if one cannot be read.
        self._lock = Lock()
        self._started = time.perf_counter()
        self._ended: float | None = None

    @property
    def stored(self) -> int:
        """The number of documents that are in the store, including unchanged ones."""
        return len(self.document_ids)

    @property
    def completed(self) -> int:
        """The number of documents with an outcome."""
        return self.stored + len(self.failures)

    @property
    def seconds(self) -> float:
        """The time since the start in seconds; after `end`, the time from start to end."""
        return (self._ended or time.perf_counter()) - self._started

    @property
    def next_label(self) -> str:
        """The label of the document whose outcome comes next; empty if none is expected."""
        try:
            return self._sent[0].label
        except IndexError:
            return ""

    def rate(self, amount: int) -> float:
        """Returns `amount` per second."""
        return amount / max(self.seconds, 1e-9)

    def send(self, label: str, size_bytes: int, encoding: str) -> None:
        """Records a document that was read. Outcomes arrive in the order of the documents."""
        self._sent.append(_Sent(label, encoding, size_bytes))

    def receive(self, answer: IngestResult | HragError) -> None:
        """Counts the outcome of the oldest document that was sent and has none yet."""
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
            self.on_outcome(outcome)

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

    Never raises HragError: errors of documents and of the stream are recorded in `progress`.
    """
    try:
        for alone, group in groupby(documents, _label_if_alone):
            # After a stream has ended with an error, its thread may still ask for the next
            # document. A list keeps that thread from advancing `groupby`.
            batch = list(group) if alone else group  # noqa: B031 - used once.
            stream = _read_all(batch, progress)
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
        # This error concerns all documents, so it ends the ingest.
        if isinstance(answer, CollectionNotFound):
            raise answer
        progress.receive(answer)


def _label_if_alone(document: InputDocument) -> str:
    """Returns the label of a document that needs a separate stream, an empty text for others."""
    return document.label if document.size_bytes > _ALONE_BYTES else ""


def _read_all(documents: Iterable[InputDocument], progress: IngestProgress) -> Iterator[Document]:
    """Yields the documents that can be read, and counts the others as failed.

    Runs in the stream's thread.
    """
    for document in documents:
        try:
            read = document.read()
        except Unreadable as error:
            progress.fail(document.label, error, document.size_bytes)
            continue
        progress.send(document.label, document.size_bytes, read.encoding)
        yield read.document
