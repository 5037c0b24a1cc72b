"""Bulk loads on a real store, whose writer and embedder can wait or fail on demand."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, count, islice
from typing import Any

from hrag.engine import CollectionHandle, PreparedDocument
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.errors import DocumentNotFound, HragError
from hrag.models.embedding import Vectors
from hrag.models.embedding.hashing import HashEmbedder
from hrag.types import Document, IngestOutcome, IngestResult, TreeSettings
from hrag.values.deadline import NEVER, Deadline
from indexer_svc.bulk import BulkLoad, IngestRequest
from indexer_svc.ingest_pipeline import Defaults, Pipeline
from tests.conftest import Engine
from tests.support.until import until

TREE = TreeSettings((32, 64, 128), 0.1)
SOON_S = 10.0
CREATED, UPDATED, UNCHANGED = IngestOutcome

Shown = Any
"""An outcome as tests compare it: an IngestOutcome, or the class of the error."""


class Writer(EmbeddedWriter):
    """A writer that records each commit, waits while `gate` is clear, and fails as `fail` says."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine.store)
        self.commits: list[list[str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.fail: Callable[[list[str]], Exception | None] = lambda _: None
        self.capacity = threading.Event()
        self.capacity.set()
        self.waited: list[CollectionHandle] = []

    def put_many(
        self, documents: Sequence[tuple[CollectionHandle, PreparedDocument]]
    ) -> list[IngestResult | HragError]:
        names = [document.document_id for _, document in documents]
        self.commits.append(names)
        assert self.gate.wait(SOON_S)
        failure = self.fail(names)
        if failure is not None:
            raise failure
        return super().put_many(documents)

    def wait_for_capacity(self, collection: CollectionHandle, deadline: Deadline) -> None:
        self.waited.append(collection)
        if not self.capacity.wait(max(0, min(deadline.remaining_s, SOON_S))):
            deadline.check("waiting for the index to catch up")


class Embedder(HashEmbedder):
    """An embedder that records each call, waits while `gate` is clear, and fails as `fail` says."""

    def __init__(self) -> None:
        super().__init__(16)
        self.calls: list[list[str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.fail: Callable[[Sequence[str]], Exception | None] = lambda _: None

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        self.calls.append(list(texts))
        assert self.gate.wait(SOON_S)
        failure = self.fail(texts)
        if failure is not None:
            raise failure
        return super().embed(texts, deadline)


class Service:
    """The writer, embedder and pipeline of bulk loads, and the loads that were started."""

    def __init__(self, engine: Engine) -> None:
        self.writer = Writer(engine)
        self.embedder = Embedder()
        self.pipeline = Pipeline(self.writer, self.embedder, Defaults(TREE, 1_000_000))
        self.stopping = threading.Event()
        self.loads: list[BulkLoad] = []

    def load(self, requests: Iterable[IngestRequest], deadline: Deadline = NEVER) -> BulkLoad:
        self.loads.append(BulkLoad(self.pipeline, requests, deadline, self.stopping))
        return self.loads[-1]

    def run(self, documents: Iterable[Document]) -> list[tuple[str, Shown]]:
        """Runs one stream to its end and returns its answers."""
        return list(self.answers(documents))

    def answers(self, documents: Iterable[Document]) -> Iterator[tuple[str, Shown]]:
        for answer in chain.from_iterable(self.load(map(asked, documents)).run()):
            yield answer.document_id, shown(answer.outcome)

    def failure(self, documents: Iterable[Document]) -> tuple[list[tuple[str, Shown]], Exception]:
        """Runs one stream; returns its answers and the error that ends it."""
        answered: list[tuple[str, Shown]] = []
        try:
            for answer in self.answers(documents):
                answered.append(answer)
        except Exception as error:
            return answered, error
        raise AssertionError(f"no error after {answered}")

    def is_stored(self, document_id: str) -> bool:
        opened = self.writer.open("t", "default")
        with suppress(DocumentNotFound):
            self.writer.document(opened, document_id)
            return True
        return False

    def text(self, document_id: str) -> str:
        opened = self.writer.open("t", "default")
        return self.writer.document_with_text(opened, document_id)[1]


def asked(document: Document, collection: str = "default") -> IngestRequest:
    return IngestRequest("t", collection, document.document_id, lambda: document)


def shown(outcome: IngestResult | Exception) -> Shown:
    return outcome.outcome if isinstance(outcome, IngestResult) else type(outcome)


@contextmanager
def service_of(engine: Engine) -> Iterator[Service]:
    """Yields a service. At the end it releases all threads that still wait."""
    service = Service(engine)
    yield service
    service.writer.gate.set()
    service.embedder.gate.set()
    for load in service.loads:
        load.cancel()
    until(lambda: not stages())


def stages() -> list[threading.Thread]:
    """Returns the threads of streams that have not ended."""
    return [thread for thread in threading.enumerate() if thread.name in ("cut", "embed")]


def numbered(length: int) -> list[Document]:
    """Returns `length` documents d0, d1 and so on, of one leaf each."""
    return list(islice(endless(), length))


def endless() -> Iterator[Document]:
    """Yields documents d0, d1 and so on, without end."""
    return (Document(f"Text {number}.", f"d{number}") for number in count())


def created(documents: Iterable[Document]) -> list[tuple[str, Shown]]:
    return [(document.document_id, CREATED) for document in documents]


def has(word: str, error: Exception) -> Callable[[Sequence[str]], Exception | None]:
    """Returns a function that returns `error` if one of its texts contains the word."""
    return lambda texts: error if any(word in text for text in texts) else None


def then(documents: Iterable[Document], act: Callable[[], object]) -> Iterator[Document]:
    """Yields the documents. Calls `act` when the consumer asks for more."""
    yield from documents
    act()
