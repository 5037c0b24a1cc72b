"""What the chat model was paid for is counted, whether a document is finished or not."""

from hrag.errors import ChatUnavailable, EmbedderRejected
from indexer_svc import summariser as summariser_module
from indexer_svc.summariser import Summariser, SummaryLimits
from tests.fakes import sentences
from tests.summarisers import (
    LIMITS,
    LONG,
    WAIT_S,
    FakeChat,
    SlowChat,
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
    for number in range(4):
        put(writer, document(f"d{number}", f"Number {number}. {LONG}"))
    embedder.errors = [EmbedderRejected("no")] * 3
    chat = FakeChat()
    with running(writer, embedder, chat):
        wait_until(lambda: waiting(writer) == 3)
    assert spent(writer) == 7 * len(chat.prompts)
