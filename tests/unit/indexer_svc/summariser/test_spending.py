"""What the chat model was paid for is counted, whether a document is finished or not."""

import threading
import time
from collections import Counter

import pytest
from structlog.testing import capture_logs

from hrag.errors import ChatUnavailable, EmbedderRejected, EmbedderUnavailable, HragError
from hrag.types import SummaryUnit
from indexer_svc import summariser as summariser_module
from indexer_svc.summariser import Summariser, SummaryLimits
from tests.support.documents.fakes import DIMENSION, collection_settings, prepared, sentences
from tests.support.engines.summarisers import (
    LIMITS,
    LONG,
    SHORT,
    TREE,
    WAIT_S,
    FakeChat,
    SlowChat,
    bodies,
    document,
    put,
    run_to_end,
    running,
    wait_until,
    waiting,
)


def spent(writer) -> int:
    return writer.status(writer.open("t", "c")).summary_tokens


def test_what_is_never_finished_is_counted_and_limited(writer, embedder):
    """Each version of the document is replaced before its last section is written."""
    put(writer, document("d", LONG))
    of_version, versions = [], iter(range(1, 100))

    def say(_: str) -> str:
        of_version.append(0)
        if len(of_version) == 3:
            of_version.clear()
            put(writer, document("d", sentences(60, next(versions))))
            raise ChatUnavailable("broke off")
        return "A summary."

    run_to_end(writer, embedder, FakeChat(say), SummaryLimits(min_chars=20, max_tokens=42))
    assert next(versions) == 3  # Two sections of each of three versions were paid for.
    assert spent(writer) == 42


def test_what_was_paid_for_is_counted_at_the_end(writer, embedder, monkeypatch):
    monkeypatch.setattr(summariser_module, "_CALLS", 2)
    put(writer, document("d", LONG))
    chat = SlowChat()
    summariser = Summariser(writer, embedder, chat, LIMITS)
    summariser.start()
    for _ in range(2):
        assert chat.begun.acquire(timeout=WAIT_S)
    monkeypatch.setattr(summariser_module, "_CLOSE_S", 0.05)
    assert not summariser.close()
    chat.go_on.set()
    wait_until(summariser.close)
    assert len(chat.prompts) == 2
    assert spent(writer) == 14


def test_what_is_forgotten_is_counted(writer, embedder, monkeypatch):
    monkeypatch.setattr(summariser_module, "_DRAFTS", 1)
    monkeypatch.setattr(summariser_module, "_BACKOFF_S", WAIT_S)
    for name in ("bad0", "bad1", "bad2", "good"):
        put(writer, document(name, f"This is {name}. {LONG}"))
    embedder.refused = "Title of bad"
    chat = FakeChat()
    with running(writer, embedder, chat):
        wait_until(lambda: waiting(writer) == 3)
    assert spent(writer) == 7 * len(chat.prompts)


@pytest.mark.parametrize("error", [EmbedderUnavailable("down"), EmbedderRejected("check the key")])
def test_nothing_is_paid_for_while_the_embedder_takes_nothing(writer, embedder, error: HragError):
    for number in range(3):
        put(writer, document(f"d{number}", sentences(60, number)))
    embedder.errors = [error] * 1000
    chat = FakeChat()
    with capture_logs() as logs, running(writer, embedder, chat):
        wait_until(lambda: len(logs) == 5)
        assert chat.prompts == []
        embedder.errors.clear()
        wait_until(lambda: not waiting(writer))
    assert [log["retry_s"] for log in logs][:4] == [0.005, 0.01, 0.02, 0.02]
    assert len(bodies(chat.prompts)) == len(set(bodies(chat.prompts)))


def test_nothing_is_paid_for_a_collection_of_another_dimension(writer, embedder, monkeypatch):
    monkeypatch.setattr(summariser_module, "_BACKOFF_S", WAIT_S)
    wide = collection_settings(TREE, 2 * DIMENSION, summaries=SummaryUnit.CHUNK)
    writer.create_collection("t", "wide", wide)
    for name in ("d", "e"):
        put(writer, prepared(name, LONG, wide), "wide")
    put(writer, document("d", SHORT))
    chat = FakeChat()
    with capture_logs() as logs, running(writer, embedder, chat):
        wait_until(lambda: not waiting(writer) and bool(logs))
        time.sleep(0.05)
    assert bodies(chat.prompts) == [SHORT.strip()]
    (log,) = logs
    assert (log["tenant"], log["collection"], log["log_level"]) == ("t", "wide", "error")
    assert f"({2 * DIMENSION} dimensions)" in log["problem"]


def test_calls_beside_one_that_fails_are_not_paid_for_again(writer, embedder, monkeypatch):
    monkeypatch.setattr(summariser_module, "_CALLS", 4)
    put(writer, document("d", LONG))
    chat = SlowChat()
    answer = chat.complete

    def fail_first(prompt: str, *arguments: object) -> object:
        if "Sentence 0 0 " in prompt and not chat.go_on.is_set():
            for _ in range(3):
                assert chat.begun.acquire(timeout=WAIT_S)
            threading.Timer(0.05, chat.go_on.set).start()
            raise ChatUnavailable("limits")
        return answer(prompt, *arguments)

    monkeypatch.setattr(chat, "complete", fail_first)
    run_to_end(writer, embedder, chat)
    assert max(Counter(bodies(chat.prompts)).values()) == 1
    assert spent(writer) == 7 * len(chat.prompts)
