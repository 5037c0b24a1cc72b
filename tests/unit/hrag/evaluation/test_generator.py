"""Questions that a chat model generates are checked and added to a file.

A later run adds further questions to the same file.
"""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hrag.client import Client
from hrag.errors import ChatUnavailable, InvalidArgument
from hrag.evaluation.chat_calls import ChatCalls
from hrag.evaluation.generator import GenerationResult, QuestionGenerator
from hrag.evaluation.journal import Journal
from hrag.evaluation.question_files import read_questions
from hrag.evaluation.questions import GoldSpan
from hrag.evaluation.report_files import Report, report_json
from hrag.evaluation.searches import SearchTarget
from hrag.types import TreeSettings
from tests.support.documents.evaluation_fakes import ScriptedChat, nearly_full_disk, passage

CHUNKS = {"a": 4, "b": 3}
WORDS = "The valve  opens\nat 3 bar. " * 3


class Library:
    """A fake client of a collection.

    `chunks` maps the id of each document to the count of its chunks of level 1. Each of these
    chunks has `tokens` tokens.
    """

    def __init__(self, chunks: dict[str, int] = CHUNKS, tokens: int = 100) -> None:
        self._chunks = chunks
        self._tokens = tokens

    def get_collection(self, tenant_id: str, name: str) -> Any:
        return SimpleNamespace(settings=SimpleNamespace(tree=TreeSettings()))

    def list_documents(self, tenant_id: str, *, page_token: str, **_: Any) -> Any:
        """Returns pages of one document each."""
        number = int(page_token or 0)
        items = [
            SimpleNamespace(document_id=name, chunks_per_level=(99, count, 0, 0))
            for name, count in sorted(self._chunks.items())
        ]
        more = str(number + 1) if number + 1 < len(items) else ""
        return SimpleNamespace(items=items[number : number + 1], next_page_token=more)

    def get_chunk(self, tenant_id: str, chunk_id: str, *, collection: str) -> Any:
        document_id, _, number = chunk_id.partition("#1.")
        assert int(number) < self._chunks[document_id]
        chunk = passage(document_id, 100 * int(number), f"{number}. {WORDS}").chunk
        fields = {name: getattr(chunk, name) for name in ("content", "title", "span")}
        named = {"chunk_id": chunk_id, "document_id": document_id, "token_count": self._tokens}
        return SimpleNamespace(chunk=SimpleNamespace(**fields, **named))


def question(**changed: str) -> str:
    """Returns the reply of a model: a valid question, in which `changed` replaces fields."""
    fields = {"question": "When does it open?", "quote": "opens at 3 bar.", "answer": "At 3"}
    return json.dumps(fields | changed)


def numbered(prompt: str) -> str:
    """Returns a reply whose question is different for each chunk."""
    text = prompt.partition("<<<\n")[2]
    return question(question=f"When does valve {prompt.count('About b')}{text[:2]} open?")


def generate(
    path: Path, count: int, reply: Callable[[str], str], library: Library | None = None
) -> GenerationResult:
    """Generates questions until the file has `count` of them."""
    calls = ChatCalls(ScriptedChat(reply), Journal())
    client = cast("Client", library or Library())
    shown: list[tuple[int, int, int]] = []
    generator = QuestionGenerator(client, calls, SearchTarget("acme"), concurrency=2)
    return generator.generate(path, count, 0, lambda *counts: shown.append(counts))


def test_a_question_has_the_span_of_the_quote_that_the_model_returned(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    generated = generate(path, 5, numbered)
    assert (generated.questions, generated.added, generated.rejected) == (5, 5, {})
    assert generated.usage.calls == 5
    questions = read_questions(path)
    assert len({question.text for question in questions}) == 5
    for question in questions:
        assert question.answer == "At 3"
        (gold,) = question.gold
        assert isinstance(gold, GoldSpan)
        document_id, start, end = gold.span
        content = f"{start // 100}. {WORDS}"
        assert document_id in CHUNKS
        assert content[start % 100 : end - start + start % 100] == "opens\nat 3 bar."


def test_a_later_run_adds_questions_about_other_chunks(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    generate(path, 3, numbered)
    before = path.read_text()
    assert generate(path, 3, numbered).added == 0
    generated = generate(path, 7, numbered)
    assert (generated.questions, generated.added) == (7, 4)
    assert path.read_text().startswith(before)
    assert len({question.gold for question in read_questions(path)}) == 7
    assert generate(path, 9, numbered).added == 0


def test_a_file_without_a_last_line_end_is_continued_on_a_new_line(
    tmp_path: Path,
) -> None:
    """Some editors write no line end after the last line."""
    path = tmp_path / "q.jsonl"
    generate(path, 2, numbered)
    path.write_text(path.read_text().rstrip("\n"))
    assert generate(path, 4, numbered).questions == 4
    assert len(read_questions(path)) == 4


def test_a_full_disk_ends_the_run_and_the_file_can_be_continued(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    generate(path, 2, numbered)
    before = path.read_bytes()
    with nearly_full_disk(10), pytest.raises(OSError, match="No space left") as caught:
        generate(path, 4, numbered)
    assert caught.value.filename == str(path)
    assert path.read_bytes() == before
    assert generate(path, 4, numbered).questions == 4
    assert len(read_questions(path)) == 4


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("A question? Why?", "no JSON in the reply"),
        ("[1]", "no JSON in the reply"),
        (question(question=""), "no question in the reply"),
        (question(question="Why?"), "the question is too short"),
        (question(quote=""), "no quote in the reply"),
        (question(quote="opens at 4 bar"), "the quote is not in the chunk"),
        (question(question="When \ud83d does it open?"), "a lone surrogate in the reply"),
        (question(answer="\udc00"), "a lone surrogate in the reply"),
    ],
)
def test_rejected_replies_are_counted_by_reason(tmp_path: Path, reply: str, reason: str) -> None:
    generated = generate(tmp_path / "q.jsonl", 3, lambda _: reply)
    assert (generated.questions, generated.rejected) == (0, {reason: 7})
    assert report_json(Report({}, generated=generated))["generated"]["rejected"] == {reason: 7}


def test_a_repeated_question_is_rejected(tmp_path: Path) -> None:
    generated = generate(tmp_path / "q.jsonl", 2, lambda _: f"Here: {question()} Good?")
    assert (generated.added, generated.rejected) == (1, {"the same question again": 6})


def test_failed_calls_are_counted_and_do_not_end_the_run(tmp_path: Path) -> None:
    def fails_for_b(prompt: str) -> str:
        if "About b" in prompt:
            raise ChatUnavailable("slow")
        return numbered(prompt)

    generated = generate(tmp_path / "q.jsonl", 7, fails_for_b)
    assert generated.added == 4
    assert generated.rejected == {"the call failed (ChatUnavailable)": 3}
    assert (generated.usage.calls, generated.usage.failed) == (4, 3)


def test_short_chunks_are_left_out_and_empty_collections_refused(tmp_path: Path) -> None:
    generated = generate(tmp_path / "q.jsonl", 1, numbered, Library(tokens=39))
    assert generated.rejected == {"the chunk is too short": 4}
    with pytest.raises(InvalidArgument, match="has no documents to ask about"):
        generate(tmp_path / "q.jsonl", 1, numbered, Library({}))
