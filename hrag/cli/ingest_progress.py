"""Sends documents over one stream and counts their outcomes.

Documents are read when the stream needs them, so few of them are in memory at a time. Knows
nothing of terminals: a caller that shows progress reads it after each answer.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from hrag.cli.files import InputDocument, Unreadable
from hrag.errors import HragError
from hrag.types import Document, IngestOutcome, IngestResult

if TYPE_CHECKING:
    from hrag.client import Client


class IngestProgress:
    """The outcomes of an ingest so far.

    `failures` holds (label, reason) of documents that could not be stored; `error` is what
    ended the stream early, if anything.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.outcomes: Counter[IngestOutcome] = Counter()
        self.failures: list[tuple[str, str]] = []
        self.document_ids: list[str] = []
        self.chunks_per_level: tuple[int, ...] = ()
        self.tokens = 0
        self.error: HragError | None = None
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

    def rate(self, amount: int) -> float:
        """`amount` per second."""
        return amount / max(self.seconds, 1e-9)

    def add(self, result: IngestResult) -> None:
        """Counts a document that was stored or found unchanged."""
        self.outcomes[result.outcome] += 1
        self.document_ids.append(result.document_id)
        self.tokens += result.token_count
        self.chunks_per_level = _sum(self.chunks_per_level, result.chunks_per_level)

    def fail(self, label: str, reason: str) -> None:
        """Counts a document that could not be stored."""
        self.failures.append((label, reason))

    def end(self) -> None:
        """Stops the clock."""
        self._ended = time.perf_counter()


def _sum(counts: tuple[int, ...], more: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(sum, zip(counts, more, strict=True))) if counts else more


def ingest_all(
    client: "Client",
    tenant_id: str,
    collection: str,
    documents: Sequence[InputDocument],
    show: Callable[[IngestProgress], None],
) -> IngestProgress:
    """Sends every document and calls `show` after each answer. Returns the final counts.

    Raises nothing: errors of documents and of the stream are in the result.
    """
    progress = IngestProgress(len(documents))
    labels: deque[str] = deque()
    try:
        stream = _read_all(documents, labels, progress)
        for answer in client.ingest_many(tenant_id, stream, collection=collection):
            label = labels.popleft()  # Answers arrive in the order of the requests.
            if isinstance(answer, HragError):
                progress.fail(label, answer.message)
            else:
                progress.add(answer)
            show(progress)
    except HragError as error:
        progress.error = error
    progress.end()
    return progress


def _read_all(
    documents: Sequence[InputDocument], labels: deque[str], progress: IngestProgress
) -> Iterator[Document]:
    """Runs in the stream's thread; it shares state by single, atomic appends alone."""
    for each in documents:
        try:
            document = each.read()
        except Unreadable as error:
            progress.fail(each.label, str(error))
            continue
        labels.append(each.label)
        yield document
