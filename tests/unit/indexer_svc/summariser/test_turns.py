"""Whose document is summarised next: collections take turns."""

from indexer_svc import summariser as summariser_module
from tests.support.documents.fakes import sentences
from tests.support.engines.summarisers import (
    LONG,
    SETTINGS,
    SHORT,
    FakeChat,
    bodies,
    document,
    put,
    running,
    wait_until,
    waiting,
)


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


def test_a_long_document_lets_other_collections_go_first(writer, embedder, monkeypatch):
    monkeypatch.setattr(summariser_module, "_TURN", 2)
    writer.create_collection("t", "c2", SETTINGS)
    put(writer, document("long", LONG))
    short = [document("short", SHORT)]

    def say(_: str) -> str:
        while short:
            put(writer, short.pop(), "c2")
        return "A summary."

    chat = FakeChat(say)
    with running(writer, embedder, chat):
        wait_until(lambda: not waiting(writer) and not waiting(writer, "c2"))
    asked = bodies(chat.prompts)
    assert asked.index(SHORT.strip()) == 2
    assert len(asked) == len(set(asked)) > 5
    assert writer.status(writer.open("t", "c")).summary_tokens == 7 * (len(asked) - 1)


def test_long_documents_take_turns_only_as_long_as_their_drafts_are_kept(
    writer, embedder, monkeypatch
):
    monkeypatch.setattr(summariser_module, "_TURN", 1)
    monkeypatch.setattr(summariser_module, "_DRAFTS", 2)
    names = ("c", "c2", "c3")
    for number, name in enumerate(names):
        if number:
            writer.create_collection("t", name, SETTINGS)
        put(writer, document("d", sentences(60, number)), name)
    chat = FakeChat()
    with running(writer, embedder, chat):
        wait_until(lambda: not any(waiting(writer, name) for name in names))
    assert len(bodies(chat.prompts)) == len(set(bodies(chat.prompts)))
