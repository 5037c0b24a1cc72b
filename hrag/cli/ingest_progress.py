"""Sends documents over one stream and counts what became of them.

Documents are read as the stream takes them, so memory holds a few at a time. Knows
nothing of terminals: whoever shows progress looks at the tally after each answer.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from hrag.cli.files import Source, Unreadable
from hrag.errors import HragError
from hrag.types import Document, IngestOutcome, IngestResult

if TYPE_CHECKING:
    from hrag.client import Client


class Tally:
    """What an ingest has done so far.

    `failures` are (label, reason); `broken` is what ended the stream early, if anything.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.outcomes: Counter[IngestOutcome] = Counter()
        self.failures: list[tuple[str, str]] = []
        self.document_ids: list[str] = []
        self.chunks_per_level: tuple[int, ...] = ()
        self.tokens = 0
        self.broken: HragError | None = None
        self._began = time.perf_counter()
        self._ended: float | None = None

    @property
    def stored(self) -> int:
        return len(self.document_ids)

    @property
    def answered(self) -> int:
        """Documents whose fate is known."""
        return self.stored + len(self.failures)

    @property
    def seconds(self) -> float:
        return (self._ended or time.perf_counter()) - self._began

    def rate(self, amount: int) -> float:
        """`amount` per second."""
        return amount / max(self.seconds, 1e-9)

    def add(self, result: IngestResult) -> None:
        self.outcomes[result.outcome] += 1
        self.document_ids.append(result.document_id)
        self.tokens += result.token_count
        self.chunks_per_level = _sum(self.chunks_per_level, result.chunks_per_level)

    def fail(self, label: str, reason: str) -> None:
        self.failures.append((label, reason))

    def end(self) -> None:
        self._ended = time.perf_counter()


def _sum(some: tuple[int, ...], more: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(sum, zip(some, more, strict=True))) if some else more


def ingest_all(
    client: "Client",
    tenant_id: str,
    collection: str,
    sources: Sequence[Source],
    show: Callable[[Tally], None],
) -> Tally:
    """Sends every source; calls `show` after each answer."""
    tally = Tally(len(sources))
    sent: deque[str] = deque()
    try:
        documents = _documents(sources, sent, tally)
        for answer in client.ingest_many(tenant_id, documents, collection=collection):
            label = sent.popleft()  # Answers come in the order of the requests.
            if isinstance(answer, HragError):
                tally.fail(label, answer.message)
            else:
                tally.add(answer)
            show(tally)
    except HragError as error:
        tally.broken = error
    tally.end()
    return tally


def _documents(sources: Sequence[Source], sent: deque[str], tally: Tally) -> Iterator[Document]:
    """Runs in the stream's own thread; what it shares are single, atomic appends."""
    for source in sources:
        try:
            document = source.read()
        except Unreadable as error:
            tally.fail(source.label, str(error))
            continue
        sent.append(source.label)
        yield document
