"""A summariser at work for tests: models that are actors, and what it has left behind."""

import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from hrag.engine import CollectionHandle, PreparedDocument, Writer
from hrag.engine.common.summary_documents import summary_handle
from hrag.engine.embedded.store.environment import Store
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

WAIT_S = 10.0
LIMITS = SummaryLimits(min_chars=20, max_tokens=1_000_000)
TREE = TreeSettings((32, 64, 128), 0.0)
SETTINGS = collection_settings(TREE, summaries=SummaryUnit.CHUNK)
LONG = sentences(60)  # Some chunks of the top level.
SHORT = sentences(5)  # One.


class FakeEmbedder:
    """The embedder `fake` of `collection_settings`; remembers texts, may be told to fail.

    It rejects texts that hold `refused`, unless that is empty.
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
    """Says what `say` says to a prompt, which may be an error; 7 tokens a call."""

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
    """Holds every call until it is let go."""

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
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def waiting(writer, name: str = "c") -> int:
    return writer.status(writer.open("t", name)).unsummarised_documents


def document(document_id: str, text: str | ParsedText, seed: int = 0) -> PreparedDocument:
    return prepared(document_id, text, SETTINGS, seed)


def put(writer, new: PreparedDocument, name: str = "c") -> None:
    writer.put(writer.open("t", name), new)


def run_to_end(
    writer, embedder: FakeEmbedder, chat: ChatModel | None = None, limits: SummaryLimits = LIMITS
) -> None:
    """Summarises all that waits in `c`."""
    with running(writer, embedder, chat, limits):
        wait_until(lambda: not waiting(writer))


def summary_collection(store: Store, collection: CollectionHandle) -> CollectionHandle:
    """The collection that holds the summaries of `collection`, which has them."""
    with store.read() as txn:
        record = txn.collections.require(collection.collection_id)
        return summary_handle(collection, record.summaries)


def texts_of(writer: EmbeddedWriter, document_id: str = "d", name: str = "c") -> list[str]:
    """A document's summary, then its sections'."""
    collection = summary_collection(writer.commits.store, writer.open("t", name))
    return writer.document_with_text(collection, document_id)[1].splitlines()


def ranges_of(store) -> list[tuple[range, ...]]:
    with store.read() as txn:
        return [summarised.sections for summarised in txn.summarised.values()]


def chosen(engine, query: str, count: int = 1) -> tuple[ChosenSection, ...]:
    """The sections that a search for a text chooses."""
    (vector,) = HashEmbedder(DIMENSION).embed([query])
    with engine.reader.snapshot("t", "c", summaries=True) as snapshot:
        return find(snapshot, vector, 1, mode=SearchMode.SUMMARY_FIRST, top_sections=count).sections


def bodies(prompts: Sequence[str]) -> list[str]:
    """The texts that were to be summarised."""
    lines = (prompt.partition("\n\n")[2].removesuffix("\n") for prompt in prompts)
    return [re.sub("^> ?", "", text, flags=re.MULTILINE) for text in lines]
