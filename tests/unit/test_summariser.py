"""The summariser: what it writes, what it pays for, what it goes on after."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest
from structlog.testing import capture_logs

from hrag import tokens
from hrag.chat import ChatEnd, ChatModel, Completion
from hrag.deadline import Deadline
from hrag.embedding import Vectors
from hrag.embedding.hashing import HashEmbedder
from hrag.engine import PreparedDocument, Writer
from hrag.engine.embedded.records import Summarised
from hrag.errors import (
    ChatRejected,
    ChatUnavailable,
    DeadlineExceeded,
    EmbedderRejected,
    EmbedderUnavailable,
    HragError,
    StorageFull,
    StoreUnavailable,
)
from hrag.tree import PageSpan, ParsedText, Section
from hrag.types import ChosenSection, FinishReason, SummaryScope, SummaryUnit, TreeSettings
from indexer_svc import summariser as summariser_module
from indexer_svc.extractive import extract
from indexer_svc.summariser import MAX_CHARS, Summariser, Terms
from tests.fakes import DIMENSION, collection_settings, prepared, sentences

WAIT_S = 10.0
TERMS = Terms(min_chars=20, max_tokens=1_000_000)
TREE = TreeSettings((32, 64, 128), 0.0)
SETTINGS = collection_settings(TREE, summaries=SummaryUnit.CHUNK)
LONG = sentences(60)  # Some chunks of the top level.
SHORT = sentences(5)  # One.


class FakeEmbedder:
    """The embedder `fake` of `collection_settings`; remembers texts, may be told to fail."""

    name = "fake"
    dimension = DIMENSION
    max_tokens = 1000

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.errors: list[Exception] = []

    def embed(self, texts: Sequence[str]) -> Vectors:
        if self.errors:
            raise self.errors.pop(0)
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

    def stream(self, prompt: str, max_tokens: int, deadline: Deadline) -> Iterator[str | ChatEnd]:
        raise NotImplementedError

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


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    """One call at a time, so that it is certain which is which; and no waiting."""
    monkeypatch.setattr(summariser_module, "_CALLS", 1)
    monkeypatch.setattr(summariser_module, "_POLL_S", 0.005)
    monkeypatch.setattr(summariser_module, "_FIRST_RETRY_S", 0.005)
    monkeypatch.setattr(summariser_module, "_LAST_RETRY_S", 0.02)
    monkeypatch.setattr(summariser_module, "_REST_S", 0.05)


@pytest.fixture
def writer(engine):
    engine.writer.create_collection("t", "c", SETTINGS)
    return engine.writer


@pytest.fixture
def embedder():
    return FakeEmbedder()


@contextmanager
def running(
    writer: Writer, embedder: FakeEmbedder, chat: ChatModel | None = None, terms: Terms = TERMS
) -> Iterator[Summariser]:
    summariser = Summariser(writer, embedder, chat, terms)
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
    writer, embedder: FakeEmbedder, chat: ChatModel | None = None, terms: Terms = TERMS
) -> None:
    """Summarises all that waits in `c`."""
    with running(writer, embedder, chat, terms):
        wait_until(lambda: not waiting(writer))


def texts_of(writer, document_id: str = "d", name: str = "c") -> list[str]:
    """A document's summary, then its sections'."""
    return writer.document_with_text(writer.open("t", name).beside, document_id)[1].splitlines()


def ranges_of(store) -> list[tuple[range, ...]]:
    with store.read() as txn:
        found = store.scan(txn, "summarised", b"")
        return [Summarised.from_bytes(value).sections for _, value in found]


def chosen(engine, query: str, count: int = 1) -> tuple[ChosenSection, ...]:
    """The sections that a search for a text chooses."""
    (vector,) = HashEmbedder(DIMENSION).embed([query])
    with engine.reader.snapshot("t", "c", summaries=True) as snapshot:
        return snapshot.summary_first(vector, count, SummaryScope.SECTIONS).sections


def bodies(prompts: Sequence[str]) -> list[str]:
    """The texts that were to be summarised."""
    return [prompt.partition("<text>\n")[2].rpartition("\n</text>")[0] for prompt in prompts]


# What is written


def test_sections_are_summarised_then_their_summaries(store, writer, embedder):
    stored = document("d", LONG)
    put(writer, stored)
    chat = FakeChat()
    run_to_end(writer, embedder, chat)
    leaves = stored.tree.level(0)
    (ranges,) = ranges_of(store)
    assert len(ranges) == stored.tree.counts[-1] >= 4
    texts = [LONG[leaves[own[0]]["char_start"] : leaves[own[-1]]["char_end"]] for own in ranges]
    summaries = [f"Summary {n + 1}." for n in range(len(ranges))]
    assert bodies(chat.prompts) == [*(text.strip() for text in texts), "\n\n".join(summaries)]
    assert texts_of(writer) == [f"Summary {len(ranges) + 1}.", *summaries]
    assert all("from Title of d." in prompt for prompt in chat.prompts)


def test_summaries_are_found_and_counted(engine, writer, embedder):
    put(writer, document("d", LONG))
    run_to_end(writer, embedder, FakeChat())
    (section,) = chosen(engine, "Title of d\nSummary 2.")
    assert section.score == pytest.approx(1, abs=1e-5)
    assert (section.document_id, section.summary) == ("d", "Summary 2.")
    status = writer.status(writer.open("t", "c"))
    calls = 1 + len(chosen(engine, "", 100))
    assert (status.summary_count, status.summary_tokens) == (calls, 7 * calls)


def test_headings_are_searched_with_the_summary_but_no_part_of_it(engine, writer, embedder):
    text = "Book\n\n" + sentences(20) + "Keys\n\n" + sentences(20, 1)
    outline = (Section("Book", 1, 0), Section("Keys", 2, text.index("Keys")))
    settings = collection_settings(TREE, summaries=SummaryUnit.SECTION)
    writer.create_collection("t", "sections", settings)
    put(writer, document("d", ParsedText(text, outline)), "sections")
    chat = FakeChat()
    with running(writer, embedder, chat):
        wait_until(lambda: not waiting(writer, "sections"))
    assert texts_of(writer, name="sections") == ["Summary 3.", "Summary 1.", "Summary 2."]
    assert embedder.asked[-3:] == [
        "Title of d\nSummary 3.",
        "Title of d - Book\nSummary 1.",
        "Title of d - Book > Keys\nSummary 2.",
    ]
    assert "a text from Title of d - Book > Keys." in chat.prompts[1]


def test_each_page_has_a_summary(store, writer, embedder):
    writer.create_collection("t", "pages", collection_settings(TREE, summaries=SummaryUnit.PAGE))
    half = len(LONG) // 2
    pages = (PageSpan(1, 0, half), PageSpan(2, half, len(LONG)))
    put(writer, document("d", ParsedText(LONG, (), pages)), "pages")
    with running(writer, embedder, FakeChat()):
        wait_until(lambda: not waiting(writer, "pages"))
    assert [len(ranges) for ranges in ranges_of(store)] == [2]


def test_the_summary_of_one_section_is_that_of_the_document(writer, embedder):
    put(writer, document("d", SHORT))
    chat = FakeChat()
    run_to_end(writer, embedder, chat)
    assert len(chat.prompts) == 1
    assert texts_of(writer) == ["Summary 1.", "Summary 1."]


def test_a_short_section_gets_none(store, writer, embedder):
    writer.create_collection("t", "s", collection_settings(TREE, summaries=SummaryUnit.SECTION))
    text = sentences(20) + "Keys\n\n" + sentences(20, 1) + "End\n\n" + sentences(8, 2)
    starts = (0, text.index("Keys"), text.index("End"))
    outline = tuple(Section(f"Part {start}", 1, start) for start in starts)
    put(writer, document("d", ParsedText(text, outline)), "s")
    chat = FakeChat()
    with running(writer, embedder, chat, Terms(min_chars=500, max_tokens=1_000)):
        wait_until(lambda: not waiting(writer, "s"))
    assert texts_of(writer, name="s") == ["Summary 3.", "Summary 1.", "Summary 2."]
    (ranges,) = ranges_of(store)
    assert ranges[-1].stop < document("d", text).tree.counts[0]


def test_a_short_document_gets_none_and_waits_for_none(store, writer, embedder):
    put(writer, document("d", "Only a few words."))
    chat = FakeChat()
    run_to_end(writer, embedder, chat, Terms(min_chars=18, max_tokens=1_000))
    assert chat.prompts == []
    assert ranges_of(store) == []
    assert writer.status(writer.open("t", "c")).summary_count == 0
    put(writer, document("d", "Some more words now."))
    run_to_end(writer, embedder, chat, Terms(min_chars=18, max_tokens=1_000))
    assert texts_of(writer) == ["Summary 1.", "Summary 1."]


def test_a_document_of_short_sections_has_a_summary_of_its_own(store, writer, embedder):
    put(writer, document("d", LONG))
    chat = FakeChat()
    run_to_end(writer, embedder, chat, Terms(min_chars=len(LONG) // 2, max_tokens=1_000))
    assert bodies(chat.prompts) == [LONG.strip()]
    assert texts_of(writer) == ["Summary 1."]
    assert ranges_of(store) == [()]


def test_summaries_may_be_shorter_than_what_is_worth_one(writer, embedder):
    put(writer, document("d", LONG))
    chat = FakeChat()
    run_to_end(writer, embedder, chat, Terms(min_chars=100, max_tokens=1_000))
    assert len(texts_of(writer)) == len(chat.prompts) > 3


def test_without_a_model_the_text_speaks_for_itself(writer, embedder):
    put(writer, document("d", SHORT))
    run_to_end(writer, embedder)
    assert texts_of(writer) == [extract(SHORT, embedder)] * 2
    assert writer.status(writer.open("t", "c")).summary_tokens == 0


# What the model may answer


@pytest.mark.parametrize("answer", ["", " \n\t "])
def test_where_the_model_says_nothing_the_text_speaks_for_itself(writer, embedder, answer):
    put(writer, document("d", SHORT))
    run_to_end(writer, embedder, FakeChat(lambda _: answer))
    assert texts_of(writer) == [extract(SHORT, embedder)] * 2
    assert writer.status(writer.open("t", "c")).summary_tokens == 7


@pytest.mark.parametrize("answer", ["word " * 1000, "字" * 5000, "\n\n x \r\n" * 3000])
def test_a_summary_is_one_line_of_bounded_length(writer, embedder, answer):
    put(writer, document("d", SHORT))
    run_to_end(writer, embedder, FakeChat(lambda _: answer))
    whole, section = texts_of(writer)
    assert whole == section == " ".join(answer.split())[:MAX_CHARS].strip()


def test_only_the_beginning_of_a_long_section_is_sent(writer, embedder, monkeypatch):
    monkeypatch.setattr(summariser_module, "_PROMPT_CHARS", 40)
    put(writer, document("d", SHORT))
    chat = FakeChat()
    run_to_end(writer, embedder, chat)
    assert bodies(chat.prompts) == [SHORT[:40]]


def test_a_text_may_hold_whatever_a_template_does(writer, embedder):
    text = "Braces {text} and {heading} and {0} and {{}} and %s stay."
    put(writer, document("d", text))
    chat = FakeChat()
    run_to_end(writer, embedder, chat)
    assert bodies(chat.prompts) == [text]


# What it may cost


def test_tokens_are_counted_where_the_endpoint_does_not(writer, embedder):
    put(writer, document("d", SHORT))
    chat = FakeChat(lambda _: "A summary.", ChatEnd(FinishReason.STOP))
    run_to_end(writer, embedder, chat)
    expected = len(tokens.encode(chat.prompts[0])) + len(tokens.encode("A summary."))
    assert writer.status(writer.open("t", "c")).summary_tokens == expected


def test_past_what_it_may_cost_the_text_speaks_for_itself(store, writer, embedder):
    put(writer, document("d", LONG))
    chat = FakeChat()
    run_to_end(writer, embedder, chat, Terms(min_chars=20, max_tokens=14))
    assert len(chat.prompts) == 2
    (ranges,) = ranges_of(store)
    _, *summaries = texts_of(writer)
    assert len(summaries) == len(ranges)
    assert summaries[:2] == ["Summary 1.", "Summary 2."]
    assert all(summary.startswith("Sentence ") for summary in summaries[2:])
    assert writer.status(writer.open("t", "c")).summary_tokens == 14


def test_the_bound_is_one_of_all_the_documents_of_a_collection(writer, embedder):
    writer.create_collection("t", "other", SETTINGS)
    for name in ("d", "e", "f"):
        put(writer, document(name, SHORT))
    put(writer, document("g", SHORT), "other")
    chat = FakeChat()
    with running(writer, embedder, chat, Terms(min_chars=20, max_tokens=8)):
        wait_until(lambda: not waiting(writer) and not waiting(writer, "other"))
    assert len(chat.prompts) == 3
    assert texts_of(writer, "f") == [extract(SHORT, embedder)] * 2
    assert texts_of(writer, "g", "other")[0].startswith("Summary ")
    assert writer.status(writer.open("t", "c")).summary_tokens == 14


def test_nothing_may_be_spent(writer, embedder):
    put(writer, document("d", SHORT))
    chat = FakeChat()
    run_to_end(writer, embedder, chat, Terms(min_chars=20, max_tokens=0))
    assert chat.prompts == []
    assert len(texts_of(writer)) == 2


def test_calls_that_are_under_way_may_go_past_the_bound(writer, embedder, monkeypatch):
    monkeypatch.setattr(summariser_module, "_CALLS", 3)
    put(writer, document("d", LONG))
    chat = SlowChat()
    with running(writer, embedder, chat, Terms(min_chars=20, max_tokens=1)):
        for _ in range(3):
            assert chat.begun.acquire(timeout=WAIT_S)
        chat.go_on.set()
        wait_until(lambda: not waiting(writer))
    assert len(chat.prompts) == 3
    assert writer.status(writer.open("t", "c")).summary_tokens == 21


# Failures of the model, the embedder and the disk


class FailingAt:
    """Fails as told whenever it is asked for a text that holds some words; else answers."""

    def __init__(self, words: str, *errors: Exception) -> None:
        self._words = words
        self._errors = list(errors)

    def __call__(self, prompt: str) -> str:
        if self._words in prompt and self._errors:
            raise self._errors.pop(0)
        return "All is well."


DOWN = (ChatUnavailable("down"), ChatUnavailable("limits"), DeadlineExceeded("slow"))


def test_a_model_that_is_down_is_asked_again_and_nothing_is_paid_twice(writer, embedder):
    put(writer, document("d", LONG))
    chat = FakeChat(FailingAt("Sentence 0 55 ", *DOWN))
    run_to_end(writer, embedder, chat)
    asked = bodies(chat.prompts)
    failed = [body for body in asked if "Sentence 0 55 " in body]
    assert len(failed) >= 1 + len(DOWN)
    others = [body for body in asked if body not in failed]
    assert len(others) == len(set(others))
    spent = 7 * (len(asked) - len(DOWN))
    assert writer.status(writer.open("t", "c")).summary_tokens == spent


def test_it_tries_again_later_and_later(writer, embedder, monkeypatch):
    monkeypatch.setattr(summariser_module, "_TRIES", 100)
    put(writer, document("d", SHORT))
    with capture_logs() as logs:
        run_to_end(writer, embedder, FakeChat(FailingAt("", *DOWN, *DOWN)))
        put(writer, document("e", SHORT))
        run_to_end(writer, embedder, FakeChat(FailingAt("", *DOWN[:1])))
    waits = [log["retry_s"] for log in logs if log["event"] == "cannot_summarise"]
    assert waits == [0.005, 0.01, 0.02, 0.02, 0.02, 0.02, 0.005]
    assert logs[0]["problem"] == "down"


def test_a_success_makes_it_patient_anew(writer, embedder):
    for name in ("d", "e"):
        put(writer, document(name, f"This is {name}, a document. {SHORT}"))
    failing = FailingAt("", *DOWN[:2])
    second = FailingAt("is e", *DOWN[:1])
    with capture_logs() as logs:
        run_to_end(writer, embedder, FakeChat(lambda prompt: failing(prompt) and second(prompt)))
    waits = [log["retry_s"] for log in logs if log["event"] == "cannot_summarise"]
    assert waits == [0.005, 0.01, 0.005]


def test_an_embedder_that_is_down_is_asked_again(writer, embedder):
    put(writer, document("d", LONG))
    embedder.errors = [EmbedderUnavailable("down"), EmbedderUnavailable("down")]
    chat = FakeChat()
    run_to_end(writer, embedder, chat)
    assert len(chat.prompts) == len(texts_of(writer))
    put(writer, document("e", LONG))
    embedder.errors = [EmbedderUnavailable("down")]
    run_to_end(writer, embedder)
    assert len(texts_of(writer, "e")) == len(chat.prompts)


class FailingWriter:
    """A writer whose summaries find no space at first."""

    def __init__(self, writer: Writer, *errors: HragError) -> None:
        self._writer = writer
        self._errors = list(errors)

    def __getattr__(self, name: str) -> object:
        return getattr(self._writer, name)

    def put_summaries(self, *arguments: object) -> bool:
        if self._errors:
            raise self._errors.pop(0)
        return self._writer.put_summaries(*arguments)


@pytest.mark.parametrize(
    "error", [StorageFull("full"), StoreUnavailable("gone"), ValueError("a fault")]
)
def test_what_cannot_be_stored_is_stored_later_and_not_paid_twice(writer, embedder, error):
    put(writer, document("d", LONG))
    chat = FakeChat()
    with capture_logs() as logs:
        run_to_end(FailingWriter(writer, error, error), embedder, chat)
    assert len(chat.prompts) == len(texts_of(writer))
    assert [log["event"] for log in logs] == ["cannot_summarise"] * 2


def test_a_section_that_is_refused_thrice_speaks_for_itself(writer, embedder):
    put(writer, document("d", LONG))
    chat = FakeChat(FailingAt("Sentence 0 20 ", *[ChatRejected("no")] * 3))
    run_to_end(writer, embedder, chat)
    *of_sections, _ = bodies(chat.prompts)
    assert sum("Sentence 0 20 " in body for body in of_sections) == 3
    (own,) = (text for text in texts_of(writer) if text != "All is well.")
    assert own.startswith("Sentence 0 ")


def test_a_model_that_refuses_everything_leaves_nothing_undone(writer, embedder):
    for name in ("d", "e"):
        put(writer, document(name, LONG))
    run_to_end(writer, embedder, FakeChat(FailingAt("", *[ChatRejected("wrong key")] * 100)))
    for name in ("d", "e"):
        assert all(text.startswith("Sentence ") for text in texts_of(writer, name))
    assert writer.status(writer.open("t", "c")).summary_tokens == 0


def test_a_document_at_which_the_model_always_fails_lets_others_go_first(writer, embedder):
    put(writer, document("bad", f"Poison. {SHORT}"))
    put(writer, document("good", LONG))
    chat = FakeChat(FailingAt("Poison", *[ChatUnavailable("broke off")] * 1000))
    with running(writer, embedder, chat):
        wait_until(lambda: waiting(writer) == 1)
        asked = len(chat.prompts)
        wait_until(lambda: len(chat.prompts) > asked)  # It still has its turn.
    assert texts_of(writer, "good")
    assert waiting(writer) == 1


@pytest.mark.parametrize("error", [RuntimeError("a fault"), EmbedderRejected("no")])
def test_a_document_that_fails_for_a_reason_of_its_own_rests(writer, embedder, monkeypatch, error):
    monkeypatch.setattr(summariser_module, "_REST_S", WAIT_S)
    put(writer, document("bad", f"Poison. {SHORT}"))
    put(writer, document("good", LONG))
    chat = FakeChat(FailingAt("Poison", *[error] * 100))
    with capture_logs() as logs, running(writer, embedder, chat):
        wait_until(lambda: waiting(writer) == 1)
        time.sleep(0.05)
    (log,) = (log for log in logs if log["event"] == "cannot_summarise")
    assert (log["document"], log["log_level"]) == ("bad", "error")
    assert sum("Poison" in prompt for prompt in chat.prompts) == 1
    assert texts_of(writer, "good")


def test_a_document_that_has_rested_is_tried_again(writer, embedder):
    put(writer, document("d", SHORT))
    with capture_logs():
        run_to_end(writer, embedder, FakeChat(FailingAt("", *[RuntimeError("a fault")] * 3)))
    assert texts_of(writer) == ["All is well."] * 2


def test_a_store_that_cannot_be_read_is_read_again(writer, embedder, monkeypatch):
    put(writer, document("d", SHORT))
    errors = [StoreUnavailable("gone"), RuntimeError("a fault")]
    read = writer.next_unsummarised

    def failing(*arguments: object) -> object:
        if errors:
            raise errors.pop(0)
        return read(*arguments)

    monkeypatch.setattr(writer, "next_unsummarised", failing)
    run_to_end(writer, embedder)
    assert len(texts_of(writer)) == 2


def test_few_documents_that_failed_are_remembered(writer, embedder, monkeypatch):
    monkeypatch.setattr(summariser_module, "_DRAFTS", 2)
    monkeypatch.setattr(summariser_module, "_TRIES", 1)
    for number in range(5):
        put(writer, document(f"d{number}", f"This is {number}. {SHORT}"))
    errors = [ChatUnavailable("down")] * 8
    with running(writer, embedder, FakeChat(FailingAt("", *errors))) as summariser:
        wait_until(lambda: not waiting(writer))
        assert len(summariser._drafts) <= 2


# What changes meanwhile


def _replaced(writer) -> None:
    put(writer, document("d", "A new text, which is another one.", seed=1))


def _deleted(writer) -> None:
    writer.delete(writer.open("t", "c"), "d")


def _collection_deleted(writer) -> None:
    writer.delete_collection("t", "c")


def _collection_made_anew(writer) -> None:
    writer.delete_collection("t", "c")
    writer.create_collection("t", "c", SETTINGS)


@pytest.mark.parametrize(
    "change", [_replaced, _deleted, _collection_deleted, _collection_made_anew]
)
def test_summaries_of_what_is_there_no_more_are_not_stored(store, writer, embedder, change):
    put(writer, document("d", LONG))
    writer.create_collection("t", "last", SETTINGS)
    put(writer, document("d", SHORT), "last")
    changes = [change]

    def say(prompt: str) -> str:
        while changes:
            changes.pop()(writer)
        return "A summary of old." if "Sentence " in prompt else "A summary of new."

    with running(writer, embedder, FakeChat(say)):
        wait_until(lambda: not waiting(writer, "last"))
        if change is not _collection_deleted:
            wait_until(lambda: not waiting(writer))
    assert len(ranges_of(store)) == (2 if change is _replaced else 1)
    if change is _replaced:
        assert texts_of(writer) == ["A summary of new."] * 2
    elif change is not _collection_deleted:
        assert writer.status(writer.open("t", "c")).summary_count == 0


def test_collections_take_turns(writer, embedder):
    writer.create_collection("t", "c2", SETTINGS)
    for number in range(3):
        for name in ("c", "c2"):
            put(writer, document(f"d{number}", f"In {name}: {SHORT}"), name)
    chat = FakeChat()
    with running(writer, embedder, chat):
        wait_until(lambda: not waiting(writer) and not waiting(writer, "c2"))
    names = [body.split(":")[0] for body in bodies(chat.prompts)]
    assert names in (["In c", "In c2"] * 3, ["In c2", "In c"] * 3)


def test_a_collection_of_another_embedder_is_left_alone(writer, embedder):
    other = FakeEmbedder()
    other.name = "another"
    put(writer, document("d", SHORT))
    with running(writer, other, FakeChat()):
        time.sleep(0.05)
        assert waiting(writer) == 1
    run_to_end(writer, embedder)
    assert len(texts_of(writer)) == 2


def test_a_collection_without_summaries_is_left_alone(writer, embedder):
    writer.create_collection("t", "plain", collection_settings(TREE))
    put(writer, document("d", SHORT), "plain")
    put(writer, document("d", SHORT))
    chat = FakeChat()
    run_to_end(writer, embedder, chat)
    assert len(chat.prompts) == 1
    assert writer.status(writer.open("t", "plain")).summary_count == 0


def test_what_comes_later_is_summarised_too(writer, embedder):
    with running(writer, embedder, FakeChat()):
        for number in range(3):
            put(writer, document(f"d{number}", SHORT))
            wait_until(lambda: not waiting(writer))
    assert writer.status(writer.open("t", "c")).summary_count == 6


# The end


def test_the_next_start_goes_on_with_what_was_left(engine, writer, embedder):
    for number in range(4):
        put(writer, document(f"d{number}", LONG))
    stopping = threading.Event()

    def say(_: str) -> str:
        if waiting(writer) == 2:
            stopping.set()
            time.sleep(0.02)
        return "A summary."

    with running(writer, embedder, FakeChat(say)):
        assert stopping.wait(WAIT_S)
    left = waiting(writer)
    assert left in (1, 2)
    run_to_end(writer, embedder, FakeChat(lambda _: "Another summary."))
    assert texts_of(writer, "d0")[0] == "A summary."
    assert texts_of(writer, "d3")[0] == "Another summary."


@pytest.fixture
def hanging(writer, embedder, monkeypatch):
    """A model that answers nobody until the test is over."""
    monkeypatch.setattr(summariser_module, "_CLOSE_S", 0.05)
    chat = SlowChat()
    yield chat
    chat.go_on.set()
    wait_until(lambda: not any("summar" in thread.name for thread in threading.enumerate()))


def test_nobody_waits_for_a_model_that_hangs(writer, embedder, hanging):
    put(writer, document("d", LONG))
    summariser = Summariser(writer, embedder, hanging, TERMS)
    summariser.start()
    assert hanging.begun.acquire(timeout=WAIT_S)
    began = time.monotonic()
    assert not summariser.close()
    assert time.monotonic() - began < 1
    hanging.go_on.set()
    wait_until(summariser.close)
    assert waiting(writer) == 1
    assert len(hanging.prompts) == 1


def test_a_call_that_hangs_is_told_of_whatever_became_of_the_others(
    writer, embedder, hanging, monkeypatch
):
    """Else the process would wait for it, when all else of it has ended."""
    monkeypatch.setattr(summariser_module, "_CALLS", 2)
    put(writer, document("d", LONG))
    failed = threading.Event()
    lock, answer = threading.Lock(), hanging.complete

    def fail_first(*arguments: object) -> object:
        with lock:
            first = not failed.is_set()
            failed.set()
        if first:
            assert hanging.begun.acquire(timeout=WAIT_S)
            raise ChatUnavailable("down")
        return answer(*arguments)

    monkeypatch.setattr(hanging, "complete", fail_first)
    monkeypatch.setattr(summariser_module, "_FIRST_RETRY_S", WAIT_S)
    with capture_logs() as logs:
        summariser = Summariser(writer, embedder, hanging, TERMS)
        summariser.start()
        wait_until(lambda: bool(logs))
        assert not summariser.close()


def test_it_closes_at_once_while_it_waits(writer, embedder, monkeypatch):
    for name in ("_POLL_S", "_FIRST_RETRY_S", "_REST_S"):
        monkeypatch.setattr(summariser_module, name, 10 * WAIT_S)
    with running(writer, embedder):
        time.sleep(0.02)
    put(writer, document("d", SHORT))
    chat = FakeChat(FailingAt("", ChatUnavailable("down")))
    with running(writer, embedder, chat):
        wait_until(lambda: bool(chat.prompts))
    assert waiting(writer) == 1
    assert "summariser" not in {thread.name for thread in threading.enumerate()}


def test_vectors_are_those_of_the_embedder(engine, writer, embedder):
    put(writer, document("d", LONG))
    run_to_end(writer, embedder)
    opened = writer.open("t", "c")
    scores = [section.score for section in chosen(engine, embedder.asked[-1], 100)]
    assert len(scores) == writer.status(opened).summary_count - 1
    assert np.isclose(max(scores), 1, atol=1e-5)
