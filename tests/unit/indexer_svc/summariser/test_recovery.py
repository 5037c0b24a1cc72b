"""The summariser continues after failures, after changes of the store, and after a restart."""

import threading
import time
from dataclasses import replace

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
from indexer_svc.summariser import Summariser
from tests.support.documents.fakes import collection_settings
from tests.support.engines.summarisers import (
    LIMITS,
    LONG,
    QUICK,
    SETTINGS,
    SHORT,
    TREE,
    WAIT_S,
    FakeChat,
    FakeEmbedder,
    SlowChat,
    WatchedWriter,
    document,
    prompt_texts,
    put,
    ranges_of,
    run_to_end,
    running,
    texts_of,
    unsummarised,
)
from tests.support.until import until
from tests.unit.hrag.engine.embedded.store.bits import flip

# The following tests cover failures of the model, the embedder and the disk.


class FailingAt:
    """The answers of a chat model that raises errors for prompts that contain some words.

    Each of these prompts raises the next error, as long as there are errors. All other prompts
    are answered.
    """

    def __init__(self, words: str, *errors: Exception) -> None:
        self._words = words
        self._errors = list(errors)

    def __call__(self, prompt: str) -> str:
        if self._words in prompt and self._errors:
            raise self._errors.pop(0)
        return "All is well."


# After these errors, the model is called again.
DOWN = (ChatUnavailable("down"), ChatUnavailable("limits"), DeadlineExceeded("slow"))


def test_a_model_that_is_down_is_called_again_and_nothing_is_paid_twice(writer, embedder):
    put(writer, document("d", LONG))
    chat = FakeChat(FailingAt("Sentence 0 55 ", *DOWN))
    run_to_end(writer, embedder, chat)
    texts = prompt_texts(chat.prompts)
    failed = [text for text in texts if "Sentence 0 55 " in text]
    assert len(failed) >= 1 + len(DOWN)
    answered = [text for text in texts if text not in failed]
    assert len(answered) == len(set(answered))
    spent = 7 * (len(texts) - len(DOWN))
    assert writer.status(writer.open("t", "c")).summary_tokens == spent


def test_the_time_until_the_next_retry_doubles_up_to_a_limit(writer, embedder):
    policy = replace(QUICK, max_tries=100)
    put(writer, document("d", SHORT))
    with capture_logs() as logs:
        run_to_end(writer, embedder, FakeChat(FailingAt("", *DOWN, *DOWN)), policy=policy)
        put(writer, document("e", SHORT))
        run_to_end(writer, embedder, FakeChat(FailingAt("", *DOWN[:1])), policy=policy)
    waits = [log["retry_s"] for log in logs if log["event"] == "summary_failed"]
    assert waits == [0.005, 0.01, 0.02, 0.02, 0.02, 0.02, 0.005]
    assert logs[0]["problem"] == "down"


def test_after_a_success_the_time_until_a_retry_is_short_again(writer, embedder):
    for name in ("d", "e"):
        put(writer, document(name, f"This is {name}, a document. {SHORT}"))
    failing = FailingAt("", *DOWN[:2])
    second = FailingAt("is e", *DOWN[:1])
    with capture_logs() as logs:
        run_to_end(writer, embedder, FakeChat(lambda prompt: failing(prompt) and second(prompt)))
    waits = [log["retry_s"] for log in logs if log["event"] == "summary_failed"]
    assert waits == [0.005, 0.01, 0.005]


def test_an_embedder_that_is_down_is_called_again(writer, embedder):
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
    """A writer whose first calls of `put_summaries` raise the errors."""

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
def test_summaries_that_cannot_be_stored_are_kept_and_stored_later(writer, embedder, error):
    put(writer, document("d", LONG))
    chat = FakeChat()
    with capture_logs() as logs:
        run_to_end(FailingWriter(writer, error, error), embedder, chat)
    assert len(chat.prompts) == len(texts_of(writer))
    assert [log["event"] for log in logs] == ["summary_failed"] * 2


def test_after_three_rejections_a_summary_is_extracted_from_the_section(writer, embedder):
    put(writer, document("d", LONG))
    chat = FakeChat(FailingAt("Sentence 0 20 ", *[ChatRejected("no")] * 3))
    run_to_end(writer, embedder, chat)
    *section_texts, _ = prompt_texts(chat.prompts)
    assert sum("Sentence 0 20 " in text for text in section_texts) == 3
    (extracted,) = (summary for summary in texts_of(writer) if summary != "All is well.")
    assert extracted.startswith("Sentence 0 ")


def test_if_the_model_rejects_everything_all_documents_still_get_summaries(writer, embedder):
    for name in ("d", "e"):
        put(writer, document(name, LONG))
    run_to_end(writer, embedder, FakeChat(FailingAt("", *[ChatRejected("wrong key")] * 100)))
    for name in ("d", "e"):
        assert all(text.startswith("Sentence ") for text in texts_of(writer, name))
    assert writer.status(writer.open("t", "c")).summary_tokens == 0


def test_a_document_at_which_the_model_always_fails_does_not_block_others(writer, embedder):
    put(writer, document("bad", f"Poison. {SHORT}"))
    put(writer, document("good", LONG))
    chat = FakeChat(FailingAt("Poison", *[ChatUnavailable("broke off")] * 1000))
    with running(writer, embedder, chat):
        until(lambda: unsummarised(writer) == 1)
        calls = len(chat.prompts)
        # The summariser still tries the bad document again.
        until(lambda: len(chat.prompts) > calls)
    assert texts_of(writer, "good")
    assert unsummarised(writer) == 1


def test_a_document_that_causes_an_unexpected_error_is_not_tried_again_for_a_while(
    writer, embedder
):
    put(writer, document("bad", f"Poison. {SHORT}"))
    put(writer, document("good", LONG))
    chat = FakeChat(FailingAt("Poison", *[RuntimeError("a fault")] * 100))
    watched, policy = WatchedWriter(writer), replace(QUICK, backoff_s=WAIT_S)
    with capture_logs() as logs, running(watched, embedder, chat, policy=policy):
        until(lambda: unsummarised(writer) == 1)
        watched.wait_until_idle()
    (log,) = (log for log in logs if log["event"] == "summary_failed")
    assert (log["document"], log["log_level"]) == ("bad", "error")
    assert sum("Poison" in prompt for prompt in chat.prompts) == 1
    assert texts_of(writer, "good")


def test_a_document_whose_summaries_the_embedder_rejects_does_not_block_others(writer, embedder):
    put(writer, document("bad", f"Poison. {SHORT}"))
    put(writer, document("good", LONG))
    embedder.rejected_words = "Title of bad"
    chat = FakeChat()
    with running(writer, embedder, chat):
        until(lambda: unsummarised(writer) == 1)
    assert texts_of(writer, "good")
    assert sum("Poison" in prompt for prompt in chat.prompts) == 1


def test_a_document_that_caused_an_unexpected_error_is_tried_again_later(writer, embedder):
    put(writer, document("d", SHORT))
    with capture_logs():
        run_to_end(writer, embedder, FakeChat(FailingAt("", *[RuntimeError("a fault")] * 3)))
    assert texts_of(writer) == ["All is well."] * 2


def test_a_store_that_cannot_be_read_is_read_again_later(writer, embedder, monkeypatch):
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
def test_a_damaged_document_is_skipped_for_a_while_and_others_are_summarised(
    store, writer, embedder, database
):
    put(writer, document("bad", SHORT))
    writer.create_collection("t", "c2", SETTINGS)
    for number in range(3):
        put(writer, document(f"d{number}", SHORT), "c2")
    number = writer.open("t", "c").collection_id
    key = number.to_bytes(4) if database in ("collections", "counters") else b""
    flip(store, database, key)
    watched, policy = WatchedWriter(writer), replace(QUICK, backoff_s=WAIT_S)
    with capture_logs() as logs, running(watched, embedder, policy=policy):
        until(lambda: not unsummarised(writer, "c2"))
        put(writer, document("late", SHORT), "c2")
        until(lambda: not unsummarised(writer, "c2"))
        watched.wait_until_idle()
    flip(store, database, key)
    (log,) = (log for log in logs if log["event"] == "summary_failed")
    assert (log["retry_s"], log["log_level"]) == (WAIT_S, "error")
    assert f"its entry in '{database}'" in log["problem"]
    assert "'t/c' is damaged" in log["problem"]
    run_to_end(writer, embedder)


def test_the_log_reports_the_time_until_the_store_is_read_again(writer, embedder, monkeypatch):
    errors = [DataLoss("somewhere")]

    def failing(*_: object) -> None:
        if errors:
            raise errors.pop(0)

    monkeypatch.setattr(writer, "next_unsummarised", failing)
    with capture_logs() as logs, running(writer, embedder):
        until(lambda: bool(logs))
    assert logs[0]["retry_s"] == QUICK.first_retry_s


def test_finished_summaries_stay_in_memory_for_only_a_few_failed_documents(writer, embedder):
    for number in range(5):
        put(writer, document(f"d{number}", f"This is {number}. {SHORT}"))
    chat = FakeChat(FailingAt("", *[ChatUnavailable("down")] * 8))
    policy = replace(QUICK, max_drafts=2, max_tries=1)
    with running(writer, embedder, chat, policy=policy) as summariser:
        until(lambda: not unsummarised(writer))
        assert summariser.draft_count <= 2


# The following tests cover changes of the store while a summary is written.


def _replace(writer) -> None:
    put(writer, document("d", "A new text, which is another one.", seed=1))


def _delete(writer) -> None:
    writer.delete(writer.open("t", "c"), "d")


def _delete_collection(writer) -> None:
    writer.delete_collection("t", "c")


def _create_collection_again(writer) -> None:
    writer.delete_collection("t", "c")
    writer.create_collection("t", "c", SETTINGS)


@pytest.mark.parametrize(
    "change", [_replace, _delete, _delete_collection, _create_collection_again]
)
def test_summaries_of_a_document_that_has_changed_meanwhile_are_not_stored(
    store, writer, embedder, change
):
    put(writer, document("d", LONG))
    writer.create_collection("t", "last", SETTINGS)
    put(writer, document("d", SHORT), "last")
    changes = [change]

    def answer(prompt: str) -> str:
        while changes:
            changes.pop()(writer)
        return "A summary of old." if "Sentence " in prompt else "A summary of new."

    with running(writer, embedder, FakeChat(answer)):
        until(lambda: not unsummarised(writer, "last"))
        if change is not _delete_collection:
            until(lambda: not unsummarised(writer))
    assert len(ranges_of(store)) == (2 if change is _replace else 1)
    if change is _replace:
        assert texts_of(writer) == ["A summary of new."] * 2
    elif change is not _delete_collection:
        assert writer.status(writer.open("t", "c")).summary_count == 0


def test_a_collection_of_another_embedder_is_not_summarised(writer, embedder):
    other_embedder = FakeEmbedder()
    other_embedder.name = "another"
    put(writer, document("d", SHORT))
    watched = WatchedWriter(writer)
    with running(watched, other_embedder, FakeChat()):
        watched.wait_until_idle()
        assert unsummarised(writer) == 1
    run_to_end(writer, embedder)
    assert len(texts_of(writer)) == 2


def test_a_collection_without_summaries_is_not_summarised(writer, embedder):
    writer.create_collection("t", "plain", collection_settings(TREE))
    put(writer, document("d", SHORT), "plain")
    put(writer, document("d", SHORT))
    chat = FakeChat()
    run_to_end(writer, embedder, chat)
    assert len(chat.prompts) == 1
    assert writer.status(writer.open("t", "plain")).summary_count == 0


def test_documents_that_are_stored_while_the_summariser_runs_are_summarised_too(writer, embedder):
    with running(writer, embedder, FakeChat()):
        for number in range(3):
            put(writer, document(f"d{number}", SHORT))
            until(lambda: not unsummarised(writer))
    assert writer.status(writer.open("t", "c")).summary_count == 6


# The following tests cover closing and restarting.


def test_the_next_start_summarises_the_documents_that_are_left(engine, writer, embedder):
    """The summariser closes while it writes the first summary of the third document."""
    for number in range(4):
        put(writer, document(f"d{number}", LONG))
    half_done, resume = threading.Event(), threading.Event()

    def answer(_: str) -> str:
        if unsummarised(writer) == 2:
            half_done.set()
            assert resume.wait(WAIT_S)
        return "A summary."

    policy = replace(QUICK, close_s=0.05)
    summariser = Summariser(writer, embedder, FakeChat(answer), LIMITS, policy)
    summariser.start()
    assert half_done.wait(WAIT_S)
    assert not summariser.close()
    resume.set()
    until(summariser.close)
    assert unsummarised(writer) == 2
    run_to_end(writer, embedder, FakeChat(lambda _: "Another summary."))
    assert texts_of(writer, "d0")[0] == "A summary."
    assert texts_of(writer, "d3")[0] == "Another summary."


@pytest.fixture
def hanging(writer, embedder):
    """A chat model that answers no call until the test is over or sets `resume`."""
    chat = SlowChat()
    yield chat
    chat.resume.set()
    until(lambda: not any("summar" in thread.name for thread in threading.enumerate()))


def test_closing_does_not_wait_for_a_model_that_hangs(writer, embedder, hanging):
    put(writer, document("d", LONG))
    summariser = Summariser(writer, embedder, hanging, LIMITS, replace(QUICK, close_s=0.05))
    summariser.start()
    assert hanging.begun.acquire(timeout=WAIT_S)
    began = time.monotonic()
    assert not summariser.close()
    assert time.monotonic() - began < WAIT_S
    hanging.resume.set()
    until(summariser.close)
    assert unsummarised(writer) == 1
    assert len(hanging.prompts) == 1


def test_close_reports_a_call_that_hangs_even_if_another_call_fails(
    writer, embedder, hanging, monkeypatch
):
    """If `close` did not report the call, the process would still wait for it at its end."""
    put(writer, document("d", LONG))
    failed, has_failed = threading.Event(), threading.Event()
    lock, complete = threading.Lock(), hanging.complete

    def fail_first(*arguments: object) -> object:
        with lock:
            first = not failed.is_set()
            failed.set()
        if first:
            assert hanging.begun.acquire(timeout=WAIT_S)
            has_failed.set()
            raise ChatUnavailable("down")
        return complete(*arguments)

    monkeypatch.setattr(hanging, "complete", fail_first)
    policy = replace(QUICK, max_calls=2, close_s=0.05)
    summariser = Summariser(writer, embedder, hanging, LIMITS, policy)
    summariser.start()
    assert has_failed.wait(WAIT_S)
    assert not summariser.close()


def test_a_summariser_that_waits_closes_immediately(writer, embedder):
    long_s = 10 * WAIT_S
    policy = replace(QUICK, poll_s=long_s, first_retry_s=long_s, backoff_s=long_s)
    watched = WatchedWriter(writer)
    with running(watched, embedder, policy=policy):
        assert watched.idle.acquire(timeout=WAIT_S)
    put(writer, document("d", SHORT))
    chat = FakeChat(FailingAt("", ChatUnavailable("down")))
    with running(writer, embedder, chat, policy=policy):
        until(lambda: bool(chat.prompts))
    assert unsummarised(writer) == 1
    assert "summariser" not in {thread.name for thread in threading.enumerate()}


def test_the_vectors_of_summaries_come_from_the_embedder(engine, writer, embedder):
    put(writer, document("d", LONG))
    run_to_end(writer, embedder)
    (stored,) = engine.reader.export("t", "c")
    summaries = stored.summaries
    assert len(summaries.vectors) == writer.status(writer.open("t", "c")).summary_count
    texts = [f"Title of d\n{summary.text}" for summary in summaries.summaries]
    assert embedder.embedded_texts[-len(texts) :] == texts
    np.testing.assert_allclose(summaries.vectors, embedder.embed(texts), atol=1e-5)
