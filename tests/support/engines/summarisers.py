"""A running summariser for tests: fake models, and readers of the summaries that it stored."""

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from hrag.engine import CollectionHandle, PreparedDocument, Writer
from hrag.engine.common.records import Summarised
from hrag.engine.common.summary_documents import summary_handle
from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.store.queries import read_collection
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.errors import EmbedderRejected
from hrag.models.chat import ChatEnd, ChatModel, Completion, Pieces
from hrag.models.embedding import Vectors
from hrag.models.embedding.hashing import HashEmbedder
from hrag.types import ChosenSection, SearchMode, SummaryUnit, TreeSettings
from hrag.values.answers import FinishReason
from hrag.values.deadline import NEVER, Deadline
from hrag.values.tree import ParsedText
from indexer_svc.summariser import Summariser, SummaryLimits
from tests.support.documents.fakes import DIMENSION, collection_settings, find, prepared, sentences
from tests.support.until import until

WAIT_S = 10.0
LIMITS = SummaryLimits(min_chars=20, max_tokens=1_000_000)
TREE = TreeSettings((32, 64, 128), 0.0)
SETTINGS = collection_settings(TREE, summaries=SummaryUnit.CHUNK)
# This text has several chunks of the top level.
LONG = sentences(60)
# This text has one chunk of the top level.
SHORT = sentences(5)


class FakeEmbedder:
    """The embedder `fake` of `collection_settings`. It records the texts that it embedded.

    It raises the next of `errors`, if there is one. It rejects texts that contain `refused`, unless
    that is empty.
    """

    name = "fake"
    dimension = DIMENSION
    max_tokens = 1000

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.refused = ""
        self.errors: list[Exception] = []

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        if self.errors:
            raise self.errors.pop(0)
        if self.refused and any(self.refused in text for text in texts):
            raise EmbedderRejected("no")
        self.asked += texts
        return HashEmbedder(DIMENSION).embed(texts)


Said = Callable[[str], str]


class FakeChat:
    """A chat model that replies as `say` says, which may also raise. Each call takes 7 tokens."""

    name = "fake"

    def __init__(self, say: Said | None = None, end: ChatEnd | None = None) -> None:
        self.prompts: list[str] = []
        self._say = say or (lambda _: f"Summary {len(self.prompts)}.")
        self._end = end or ChatEnd(FinishReason.STOP, 5, 2)
        self._lock = threading.Lock()

    def stream(self, prompt: str, max_tokens: int, deadline: Deadline) -> Pieces:
        raise AssertionError("summaries are not streamed")

    def complete(self, prompt: str, max_tokens: int, deadline: Deadline) -> Completion:
        assert max_tokens > 0
        assert deadline.remaining_s > 0
        with self._lock:
            self.prompts.append(prompt)
            text = self._say(prompt)
        return Completion(text, self._end)


class SlowChat(FakeChat):
    """A chat model whose calls wait until the test sets `go_on`. `begun` counts calls."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Event()

    def complete(self, prompt: str, max_tokens: int, deadline: Deadline) -> Completion:
        self.begun.release()
        assert self.go_on.wait(WAIT_S)
        return super().complete(prompt, max_tokens, deadline)


@contextmanager
def running(
    writer: Writer,
    embedder: FakeEmbedder,
    chat: ChatModel | None = None,
    limits: SummaryLimits = LIMITS,
) -> Iterator[Summariser]:
    summariser = Summariser(writer, embedder, chat, limits)
    summariser.start()
    try:
        yield summariser
    finally:
        assert summariser.close()


def wait_until(condition: Callable[[], bool]) -> None:
    """Waits until the condition is true. Fails after WAIT_S."""
    until(condition, WAIT_S)


def waiting(writer, name: str = "c") -> int:
    """Returns the number of documents that wait for their summaries."""
    return writer.status(writer.open("t", name)).unsummarised_documents


def document(document_id: str, text: str | ParsedText, seed: int = 0) -> PreparedDocument:
    return prepared(document_id, text, SETTINGS, seed)


def put(writer, new: PreparedDocument, name: str = "c") -> None:
    writer.put(writer.open("t", name), new)


def run_to_end(
    writer, embedder: FakeEmbedder, chat: ChatModel | None = None, limits: SummaryLimits = LIMITS
) -> None:
    """Runs a summariser until no document of `c` waits for summaries."""
    with running(writer, embedder, chat, limits):
        wait_until(lambda: not waiting(writer))


def summary_collection(store: Store, collection: CollectionHandle) -> CollectionHandle:
    """Returns the collection that stores the summaries of `collection`.

    `collection` must have summaries.
    """
    with store.read() as txn:
        record = read_collection(store, txn, collection.collection_id)
        return summary_handle(collection, record.summaries)


def texts_of(writer: EmbeddedWriter, document_id: str = "d", name: str = "c") -> list[str]:
    """Returns the summary of a document, then the summaries of its sections."""
    collection = summary_collection(writer.store, writer.open("t", name))
    return writer.document_with_text(collection, document_id)[1].splitlines()


def ranges_of(store) -> list[tuple[range, ...]]:
    with store.read() as txn:
        entries = store.scan(txn, "summarised", b"")
        return [Summarised.from_bytes(value).sections for _, value in entries]


def chosen(engine, query: str, count: int = 1) -> tuple[ChosenSection, ...]:
    """Returns the sections that a search for the text chooses."""
    (vector,) = HashEmbedder(DIMENSION).embed([query])
    with engine.reader.snapshot("t", "c", summaries=True) as snapshot:
        return find(snapshot, vector, 1, mode=SearchMode.SUMMARY_FIRST, top_sections=count).sections


def bodies(prompts: Sequence[str]) -> list[str]:
    """Returns the texts that the prompts ask to summarise."""
    lines = (prompt.partition("\n\n")[2].removesuffix("\n") for prompt in prompts)
    return [re.sub("^> ?", "", text, flags=re.MULTILINE) for text in lines]
