"""Helpers for tests of bulk loads, which run on a real store.

The writer and the embedder wait or fail if a test demands it.
"""

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
SOON_S = 60.0
CREATED, UPDATED, UNCHANGED = IngestOutcome

ShownOutcome = Any
"""An outcome in a form that tests can compare: an IngestOutcome, or the class of an error."""


class Writer(EmbeddedWriter):
    """A writer that records each commit.

    A commit waits until `gate` is set. Then it raises the error that `fail` returns for the ids of
    its documents, if it returns one. A wait for capacity ends as soon as `capacity` is set.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine.store)
        self.commit_groups: list[list[str]] = []
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
        self.commit_groups.append(names)
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
    """An embedder that records the texts of each call.

    A call waits until `gate` is set. Then it raises the error that `fail` returns for the texts, if
    it returns one.
    """

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
    """A pipeline with its writer and its embedder, and the bulk loads that run on it."""

    def __init__(self, engine: Engine) -> None:
        self.writer = Writer(engine)
        self.embedder = Embedder()
        self.pipeline = Pipeline(self.writer, self.embedder, Defaults(TREE, 1_000_000))
        self.stopping = threading.Event()
        self.loads: list[BulkLoad] = []

    def load(self, requests: Iterable[IngestRequest], deadline: Deadline = NEVER) -> BulkLoad:
        """Returns a new bulk load, which is also the last one of `loads`."""
        self.loads.append(BulkLoad(self.pipeline, requests, deadline, self.stopping))
        return self.loads[-1]

    def run(self, documents: Iterable[Document]) -> list[tuple[str, ShownOutcome]]:
        """Returns all answers to one stream: document ids and outcomes."""
        return list(self.answers(documents))

    def answers(self, documents: Iterable[Document]) -> Iterator[tuple[str, ShownOutcome]]:
        """Yields the answers to one stream as the bulk load returns them."""
        for answer in chain.from_iterable(self.load(map(ingest_request, documents)).run()):
            yield answer.document_id, shown(answer.outcome)

    def failure(
        self, documents: Iterable[Document]
    ) -> tuple[list[tuple[str, ShownOutcome]], Exception]:
        """Returns the answers to one stream and the error that ends it."""
        answered: list[tuple[str, ShownOutcome]] = []
        try:
            for answer in self.answers(documents):
                answered.append(answer)
        except Exception as error:
            return answered, error
        raise AssertionError(f"no error after {answered}")

    def is_stored(self, document_id: str) -> bool:
        """Returns True if the document has been committed."""
        collection = self.writer.open("t", "default")
        with suppress(DocumentNotFound):
            self.writer.document(collection, document_id)
            return True
        return False

    def text(self, document_id: str) -> str:
        """Returns the stored text of a document."""
        collection = self.writer.open("t", "default")
        return self.writer.document_with_text(collection, document_id)[1]


def ingest_request(document: Document, collection: str = "default") -> IngestRequest:
    """Returns the request to store a document in a collection of the tenant `t`."""
    return IngestRequest("t", collection, document.document_id, lambda: document)


def shown(outcome: IngestResult | Exception) -> ShownOutcome:
    """Returns the IngestOutcome of a result, or the class of an error."""
    return outcome.outcome if isinstance(outcome, IngestResult) else type(outcome)


@contextmanager
def service_of(engine: Engine) -> Iterator[Service]:
    """Yields a service. After the block, it releases all threads that wait, and ends all loads."""
    service = Service(engine)
    yield service
    service.writer.gate.set()
    service.embedder.gate.set()
    for load in service.loads:
        load.cancel()
    until(lambda: not stages())


def stages() -> list[threading.Thread]:
    """Returns the running threads of bulk loads, which cut or embed documents."""
    return [thread for thread in threading.enumerate() if thread.name in ("cut", "embed")]


def numbered(length: int) -> list[Document]:
    """Returns the documents d0, d1 and so on. Each has one leaf."""
    return list(islice(endless(), length))


def endless() -> Iterator[Document]:
    """Yields the documents d0, d1 and so on, without end."""
    return (Document(f"Text {number}.", f"d{number}") for number in count())


def created(documents: Iterable[Document]) -> list[tuple[str, ShownOutcome]]:
    """Returns the answers to documents that are all created."""
    return [(document.document_id, CREATED) for document in documents]


def failing_on(word: str, error: Exception) -> Callable[[Sequence[str]], Exception | None]:
    """Returns a function that returns `error` for texts with the word, and None for others."""
    return lambda texts: error if any(word in text for text in texts) else None


def followed_by(documents: Iterable[Document], act: Callable[[], object]) -> Iterator[Document]:
    """Yields the documents, and calls `act` when the consumer wants a further one."""
    yield from documents
    act()
