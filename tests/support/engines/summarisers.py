"""Helpers for tests of the summariser.

The module has fake models, functions that run a summariser, and functions that read the summaries
that the summariser stored.
"""

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hrag.engine import CollectionHandle, PreparedDocument, Unsummarised, Writer
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
from indexer_svc.summariser import Summariser, SummariserPolicy, SummaryLimits
from tests.support.documents.fakes import DIMENSION, collection_settings, find, prepared, sentences
from tests.support.until import PATIENCE_S, until

WAIT_S = PATIENCE_S
LIMITS = SummaryLimits(min_chars=20, max_tokens=1_000_000)
TREE = TreeSettings((32, 64, 128), 0.0)
SETTINGS = collection_settings(TREE, summaries=SummaryUnit.CHUNK)
LONG = sentences(60)  # This text has several chunks of the top level.
SHORT = sentences(5)  # This text has one chunk of the top level.

# One call runs at a time, so that the order of the prompts is certain. No wait takes long.
QUICK = SummariserPolicy(
    max_calls=1,
    poll_s=0.005,
    first_retry_s=0.005,
    last_retry_s=0.02,
    backoff_s=0.05,
    close_s=WAIT_S,
)


class FakeEmbedder:
    """The embedder `fake` of `collection_settings`, which records the texts that it embeds.

    Each call raises the next error of `errors`, until none is left. If `rejected_words` is not
    empty, texts that contain it are rejected.
    """

    name = "fake"
    dimension = DIMENSION
    max_tokens = 1000

    def __init__(self) -> None:
        self.embedded_texts: list[str] = []
        self.rejected_words = ""
        self.errors: list[Exception] = []

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        if self.errors:
            raise self.errors.pop(0)
        if self.rejected_words and any(self.rejected_words in text for text in texts):
            raise EmbedderRejected("no")
        self.embedded_texts += texts
        return HashEmbedder(DIMENSION).embed(texts)


Answers = Callable[[str], str]


class FakeChat:
    """A chat model that answers a prompt with what `answer` returns or raises.

    Without `answer`, it answers "Summary 1.", "Summary 2." and so on. By default, a call costs 7
    tokens.
    """

    name = "fake"

    def __init__(self, answer: Answers | None = None, end: ChatEnd | None = None) -> None:
        self.prompts: list[str] = []
        self._answer = answer or (lambda _: f"Summary {len(self.prompts)}.")
        self._end = end or ChatEnd(FinishReason.STOP, 5, 2)
        self._lock = threading.Lock()

    def stream(self, prompt: str, max_tokens: int, deadline: Deadline) -> Pieces:
        raise AssertionError("summaries are not streamed")

    def complete(self, prompt: str, max_tokens: int, deadline: Deadline) -> Completion:
        assert max_tokens > 0
        assert deadline.remaining_s > 0
        with self._lock:
            self.prompts.append(prompt)
            text = self._answer(prompt)
        return Completion(text, self._end)


class SlowChat(FakeChat):
    """A chat model that answers no call before the test sets `resume`.

    `begun` is released once for each call that has begun.
    """

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Semaphore(0)
        self.resume = threading.Event()

    def complete(self, prompt: str, max_tokens: int, deadline: Deadline) -> Completion:
        self.begun.release()
        assert self.resume.wait(WAIT_S)
        return super().complete(prompt, max_tokens, deadline)


@contextmanager
def running(
    writer: Writer,
    embedder: FakeEmbedder,
    chat: ChatModel | None = None,
    limits: SummaryLimits = LIMITS,
    policy: SummariserPolicy = QUICK,
) -> Iterator[Summariser]:
    """Runs a summariser, and closes it at the end."""
    summariser = Summariser(writer, embedder, chat, limits, policy)
    summariser.start()
    try:
        yield summariser
    finally:
        assert summariser.close()


class WatchedWriter:
    """A writer that reports when the summariser has nothing to do.

    `idle` is released each time the writer says that no document needs a summary now.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.idle = threading.Semaphore(0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)

    def next_unsummarised(self, *arguments: Any) -> Unsummarised | None:
        document = self._writer.next_unsummarised(*arguments)
        if document is None:
            self.idle.release()
        return document

    def wait_until_idle(self) -> None:
        """Waits until the summariser has read the store again and found nothing to do."""
        while self.idle.acquire(blocking=False):
            pass
        for _ in range(2):  # The first of the two reads may have begun before this call.
            assert self.idle.acquire(timeout=WAIT_S)


def unsummarised(writer, name: str = "c") -> int:
    """Returns the count of documents in a collection that still wait for summaries."""
    return writer.status(writer.open("t", name)).unsummarised_documents


def document(document_id: str, text: str | ParsedText, seed: int = 0) -> PreparedDocument:
    """Returns a document with the settings of the collection `c`."""
    return prepared(document_id, text, SETTINGS, seed)


def put(writer, prepared_document: PreparedDocument, name: str = "c") -> None:
    """Stores a document in a collection of the tenant `t`."""
    writer.put(writer.open("t", name), prepared_document)


def run_to_end(
    writer,
    embedder: FakeEmbedder,
    chat: ChatModel | None = None,
    limits: SummaryLimits = LIMITS,
    policy: SummariserPolicy = QUICK,
) -> None:
    """Runs a summariser until all documents of the collection `c` have summaries."""
    with running(writer, embedder, chat, limits, policy):
        until(lambda: not unsummarised(writer))


def summary_collection(store: Store, collection: CollectionHandle) -> CollectionHandle:
    """Returns the collection that stores the summaries of `collection`."""
    with store.read() as txn:
        record = txn.collections.require(collection.collection_id)
        return summary_handle(collection, record.summaries)


def texts_of(writer: EmbeddedWriter, document_id: str = "d", name: str = "c") -> list[str]:
    """Returns the summary of a document, then the summaries of its sections."""
    collection = summary_collection(writer.commits.store, writer.open("t", name))
    return writer.document_with_text(collection, document_id)[1].splitlines()


def ranges_of(store) -> list[tuple[range, ...]]:
    """Returns the leaf ranges of the summarised sections, one tuple for each document."""
    with store.read() as txn:
        return [summarised.sections for summarised in txn.summarised.values()]


def search_sections(engine, query: str, count: int = 1) -> tuple[ChosenSection, ...]:
    """Returns the sections that a search for a text chooses, best first."""
    (vector,) = HashEmbedder(DIMENSION).embed([query])
    with engine.reader.snapshot("t", "c", summaries=True) as snapshot:
        return find(snapshot, vector, 1, mode=SearchMode.SUMMARY_FIRST, top_sections=count).sections


def prompt_texts(prompts: Sequence[str]) -> list[str]:
    """Returns, for each prompt, the text that it asks to summarise."""
    lines = (prompt.partition("\n\n")[2].removesuffix("\n") for prompt in prompts)
    return [re.sub("^> ?", "", text, flags=re.MULTILINE) for text in lines]
