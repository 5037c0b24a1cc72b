"""What the summariser goes on after: failures, changes meanwhile, a stop."""

import threading
import time

import numpy as np
import pytest
from structlog.testing import capture_logs

from hrag.engine import Writer
from hrag.errors import (
    ChatRejected,
    ChatUnavailable,
    DataLoss,
    DeadlineExceeded,
    EmbedderUnavailable,
    HragError,
    StorageFull,
    StoreUnavailable,
)
from indexer_svc import summariser as summariser_module
from indexer_svc.summariser import Summariser
from tests.support.documents.fakes import collection_settings
from tests.support.engines.summarisers import (
    LIMITS,
    LONG,
    SETTINGS,
    SHORT,
    TREE,
    WAIT_S,
    FakeChat,
    FakeEmbedder,
    SlowChat,
    bodies,
    chosen,
    document,
    put,
    ranges_of,
    run_to_end,
    running,
    texts_of,
    wait_until,
    waiting,
)
from tests.unit.hrag.engine.embedded.store.bits import flip

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
    waits = [log["retry_s"] for log in logs if log["event"] == "summary_failed"]
    assert waits == [0.005, 0.01, 0.02, 0.02, 0.02, 0.02, 0.005]
    assert logs[0]["problem"] == "down"


def test_a_success_makes_it_patient_anew(writer, embedder):
    for name in ("d", "e"):
        put(writer, document(name, f"This is {name}, a document. {SHORT}"))
    failing = FailingAt("", *DOWN[:2])
    second = FailingAt("is e", *DOWN[:1])
    with capture_logs() as logs:
        run_to_end(writer, embedder, FakeChat(lambda prompt: failing(prompt) and second(prompt)))
    waits = [log["retry_s"] for log in logs if log["event"] == "summary_failed"]
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
    assert [log["event"] for log in logs] == ["summary_failed"] * 2


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


def test_a_document_that_fails_for_a_reason_of_its_own_rests(writer, embedder, monkeypatch):
    monkeypatch.setattr(summariser_module, "_BACKOFF_S", WAIT_S)
    put(writer, document("bad", f"Poison. {SHORT}"))
    put(writer, document("good", LONG))
    chat = FakeChat(FailingAt("Poison", *[RuntimeError("a fault")] * 100))
    with capture_logs() as logs, running(writer, embedder, chat):
        wait_until(lambda: waiting(writer) == 1)
        time.sleep(0.05)
    (log,) = (log for log in logs if log["event"] == "summary_failed")
    assert (log["document"], log["log_level"]) == ("bad", "error")
    assert sum("Poison" in prompt for prompt in chat.prompts) == 1
    assert texts_of(writer, "good")


def test_a_document_whose_summaries_the_embedder_refuses_lets_others_go_first(writer, embedder):
    put(writer, document("bad", f"Poison. {SHORT}"))
    put(writer, document("good", LONG))
    embedder.refused = "Title of bad"
    chat = FakeChat()
    with running(writer, embedder, chat):
        wait_until(lambda: waiting(writer) == 1)
    assert texts_of(writer, "good")
    assert sum("Poison" in prompt for prompt in chat.prompts) == 1


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


@pytest.mark.parametrize("database", ["documents", "collections", "counters"])
def test_what_cannot_be_read_rests_while_others_are_summarised(
    store, writer, embedder, monkeypatch, database
):
    monkeypatch.setattr(summariser_module, "_BACKOFF_S", WAIT_S)
    put(writer, document("bad", SHORT))
    writer.create_collection("t", "c2", SETTINGS)
    for number in range(3):
        put(writer, document(f"d{number}", SHORT), "c2")
    number = writer.open("t", "c").collection_id
    key = number.to_bytes(4) if database in ("collections", "counters") else b""
    flip(store, database, key)
    with capture_logs() as logs, running(writer, embedder):
        wait_until(lambda: not waiting(writer, "c2"))
        put(writer, document("late", SHORT), "c2")
        wait_until(lambda: not waiting(writer, "c2"))
        time.sleep(0.05)
    flip(store, database, key)
    (log,) = (log for log in logs if log["event"] == "summary_failed")
    assert (log["retry_s"], log["log_level"]) == (WAIT_S, "error")
    assert f"its entry in '{database}'" in log["problem"]
    assert "'t/c' is damaged" in log["problem"]
    run_to_end(writer, embedder)


def test_the_log_says_how_long_it_waits_before_it_reads_again(writer, embedder, monkeypatch):
    errors = [DataLoss("somewhere")]

    def failing(*_: object) -> None:
        if errors:
            raise errors.pop(0)

    monkeypatch.setattr(writer, "next_unsummarised", failing)
    with capture_logs() as logs, running(writer, embedder):
        wait_until(lambda: bool(logs))
    assert logs[0]["retry_s"] == summariser_module._FIRST_RETRY_S


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
    summariser = Summariser(writer, embedder, hanging, LIMITS)
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
    failed, has_failed = threading.Event(), threading.Event()
    lock, answer = threading.Lock(), hanging.complete

    def fail_first(*arguments: object) -> object:
        with lock:
            first = not failed.is_set()
            failed.set()
        if first:
            assert hanging.begun.acquire(timeout=WAIT_S)
            has_failed.set()
            raise ChatUnavailable("down")
        return answer(*arguments)

    monkeypatch.setattr(hanging, "complete", fail_first)
    summariser = Summariser(writer, embedder, hanging, LIMITS)
    summariser.start()
    assert has_failed.wait(WAIT_S)
    assert not summariser.close()


def test_it_closes_at_once_while_it_waits(writer, embedder, monkeypatch):
    for name in ("_POLL_S", "_FIRST_RETRY_S", "_BACKOFF_S"):
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
