"""Collections take turns: after a document of one collection comes one of another collection."""

from dataclasses import replace

from tests.support.documents.fakes import sentences
from tests.support.engines.summarisers import (
    LONG,
    QUICK,
    SETTINGS,
    SHORT,
    FakeChat,
    document,
    prompt_texts,
    put,
    running,
    unsummarised,
)
from tests.support.until import until


def test_documents_of_two_collections_are_summarised_alternately(writer, embedder):
    writer.create_collection("t", "c2", SETTINGS)
    for number in range(3):
        for name in ("c", "c2"):
            put(writer, document(f"d{number}", f"In {name}: {SHORT}"), name)
    chat = FakeChat()
    with running(writer, embedder, chat):
        until(lambda: not unsummarised(writer) and not unsummarised(writer, "c2"))
    names = [text.split(":")[0] for text in prompt_texts(chat.prompts)]
    assert names in (["In c", "In c2"] * 3, ["In c2", "In c"] * 3)


def test_after_some_sections_of_a_long_document_another_collection_has_its_turn(writer, embedder):
    writer.create_collection("t", "c2", SETTINGS)
    put(writer, document("long", LONG))
    short = [document("short", SHORT)]

    def answer(_: str) -> str:
        while short:
            put(writer, short.pop(), "c2")
        return "A summary."

    chat = FakeChat(answer)
    with running(writer, embedder, chat, policy=replace(QUICK, turn_sections=2)):
        until(lambda: not unsummarised(writer) and not unsummarised(writer, "c2"))
    summarised = prompt_texts(chat.prompts)
    assert summarised.index(SHORT.strip()) == 2
    assert len(summarised) == len(set(summarised)) > 5
    assert writer.status(writer.open("t", "c")).summary_tokens == 7 * (len(summarised) - 1)


def test_long_documents_take_turns_only_while_their_drafts_fit_in_memory(writer, embedder):
    policy = replace(QUICK, turn_sections=1, max_drafts=2)
    names = ("c", "c2", "c3")
    for number, name in enumerate(names):
        if number:
            writer.create_collection("t", name, SETTINGS)
        put(writer, document("d", sentences(60, number)), name)
    chat = FakeChat()
    with running(writer, embedder, chat, policy=policy):
        until(lambda: not any(unsummarised(writer, name) for name in names))
    assert len(prompt_texts(chat.prompts)) == len(set(prompt_texts(chat.prompts)))
