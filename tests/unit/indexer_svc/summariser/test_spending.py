"""The tokens of the chat model are counted, even if a document is never finished."""

import threading
from collections import Counter
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from hrag.errors import ChatUnavailable, EmbedderRejected, EmbedderUnavailable, HragError
from hrag.models.chat import Completion
from hrag.types import SummaryUnit
from hrag.values.deadline import Deadline
from indexer_svc.summariser import Summariser, SummaryLimits
from tests.support.documents.fakes import DIMENSION, collection_settings, prepared, sentences
from tests.support.engines.summarisers import (
    LIMITS,
    LONG,
    QUICK,
    SHORT,
    TREE,
    WAIT_S,
    FakeChat,
    SlowChat,
    WatchedWriter,
    document,
    prompt_texts,
    put,
    run_to_end,
    running,
    unsummarised,
)
from tests.support.until import until


def spent_tokens(writer) -> int:
    """Returns the tokens that the summaries of the collection `c` have cost."""
    return writer.status(writer.open("t", "c")).summary_tokens


def test_the_tokens_of_unfinished_documents_are_counted_and_limited(writer, embedder):
    """Each version of the document is replaced before its last section is written."""
    put(writer, document("d", LONG))
    calls_for_version, versions = [], iter(range(1, 100))

    def answer(prompt: str) -> str:
        calls_for_version.append(prompt)
        if len(calls_for_version) == 3:
            calls_for_version.clear()
            put(writer, document("d", sentences(60, next(versions))))
            raise ChatUnavailable("broke off")
        return "A summary."

    run_to_end(writer, embedder, FakeChat(answer), SummaryLimits(min_chars=20, max_tokens=42))
    # Two sections of each of three versions were paid for.
    assert next(versions) == 3
    assert spent_tokens(writer) == 42


def test_tokens_are_counted_when_the_summariser_closes(writer, embedder):
    """The tokens of calls that run during the closing are counted as soon as the calls end."""
    put(writer, document("d", LONG))
    chat = SlowChat()
    policy = replace(QUICK, max_calls=2, close_s=0.05)
    summariser = Summariser(writer, embedder, chat, LIMITS, policy)
    summariser.start()
    for _ in range(2):
        assert chat.begun.acquire(timeout=WAIT_S)
    assert not summariser.close()
    chat.resume.set()
    until(summariser.close)
    assert len(chat.prompts) == 2
    assert spent_tokens(writer) == 14


def test_the_tokens_of_evicted_drafts_are_counted(writer, embedder):
    """A draft has the finished summaries of an unfinished document."""
    for name in ("bad0", "bad1", "bad2", "good"):
        put(writer, document(name, f"This is {name}. {LONG}"))
    embedder.rejected_words = "Title of bad"
    chat = FakeChat()
    policy = replace(QUICK, max_drafts=1, backoff_s=WAIT_S)
    with running(writer, embedder, chat, policy=policy):
        until(lambda: unsummarised(writer) == 3)
    assert spent_tokens(writer) == 7 * len(chat.prompts)


@pytest.mark.parametrize("error", [EmbedderUnavailable("down"), EmbedderRejected("check the key")])
def test_nothing_is_paid_for_while_the_embedder_fails(writer, embedder, error: HragError):
    for number in range(3):
        put(writer, document(f"d{number}", sentences(60, number)))
    embedder.errors = [error] * 1000
    chat = FakeChat()
    with capture_logs() as logs, running(writer, embedder, chat):
        until(lambda: len(logs) >= 5)
        assert chat.prompts == []
        embedder.errors.clear()
        until(lambda: not unsummarised(writer))
    assert [log["retry_s"] for log in logs][:4] == [0.005, 0.01, 0.02, 0.02]
    assert len(prompt_texts(chat.prompts)) == len(set(prompt_texts(chat.prompts)))


def test_nothing_is_paid_for_a_collection_of_another_dimension(writer, embedder):
    wide = collection_settings(TREE, 2 * DIMENSION, summaries=SummaryUnit.CHUNK)
    writer.create_collection("t", "wide", wide)
    for name in ("d", "e"):
        put(writer, prepared(name, LONG, wide), "wide")
    put(writer, document("d", SHORT))
    chat, watched = FakeChat(), WatchedWriter(writer)
    policy = replace(QUICK, backoff_s=WAIT_S)
    with capture_logs() as logs, running(watched, embedder, chat, policy=policy):
        until(lambda: not unsummarised(writer) and bool(logs))
        watched.wait_until_idle()
    assert prompt_texts(chat.prompts) == [SHORT.strip()]
    (log,) = logs
    assert (log["tenant"], log["collection"], log["log_level"]) == ("t", "wide", "error")
    assert f"({2 * DIMENSION} dimensions)" in log["problem"]


class FirstSectionFails(SlowChat):
    """A chat model whose call for the first section fails once, while three other calls run.

    The other calls are answered shortly after the failure. A timer answers them, because the
    summariser does nothing that a test could wait for before it has the answers.
    """

    def complete(self, prompt: str, max_tokens: int, deadline: Deadline) -> Completion:
        if "Sentence 0 0 " in prompt and not self.resume.is_set():
            for _ in range(3):
                assert self.begun.acquire(timeout=WAIT_S)
            threading.Timer(0.05, self.resume.set).start()
            raise ChatUnavailable("limits")
        return super().complete(prompt, max_tokens, deadline)


def test_calls_that_run_while_another_fails_are_not_paid_for_again(writer, embedder):
    put(writer, document("d", LONG))
    chat = FirstSectionFails()
    run_to_end(writer, embedder, chat, policy=replace(QUICK, max_calls=4))
    assert max(Counter(prompt_texts(chat.prompts)).values()) == 1
    assert spent_tokens(writer) == 7 * len(chat.prompts)
