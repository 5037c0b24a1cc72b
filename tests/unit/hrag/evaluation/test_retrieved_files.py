"""Passages of another tool are read from a file, and compared with searches by the same rules."""

import json
from pathlib import Path
from typing import Any, cast

import pytest

from hrag.client import Client
from hrag.errors import ChunkNotFound, DocumentNotFound, InvalidArgument
from hrag.evaluation.journal import Journal
from hrag.evaluation.questions import GoldQuote, GoldSpan, Question, TextSpan
from hrag.evaluation.retrieved import RetrievalResult
from hrag.evaluation.retrieved_files import read_retrieved, retrieved_passages
from hrag.evaluation.searches import SearchTarget, best_passages, document_texts, search_all
from hrag.evaluation.summary import summarise
from hrag.evaluation.systems import baseline_of, describe, parse_systems
from hrag.types import SearchResult
from tests.support.documents.evaluation_fakes import ScriptedClient, passage, result

TEXTS = {"a": "Ä one  two\nthree one two", "b": "four"}
QUESTIONS = (
    Question("first", "one?", (GoldSpan(TextSpan("a", 2, 10)),)),
    Question("second", "two?", (GoldQuote("four", "b"),)),
)
TARGET = SearchTarget("acme", "docs", budgets=(1, 20))


class Services(ScriptedClient):
    """A client of a collection with the documents TEXTS, whose searches find the document `b`."""

    def __init__(self) -> None:
        super().__init__(lambda query, **_: self._found())
        self.read: list[str] = []

    def _found(self) -> SearchResult:
        return result(passage("b", 0, TEXTS["b"]))

    def get_text(self, tenant_id: str, document_id: str, *, collection: str) -> str:
        self.read.append(document_id)
        if document_id not in TEXTS:
            raise DocumentNotFound(f"no {document_id} in {tenant_id} {collection}")
        return TEXTS[document_id]


def written(path: Path, *lines: object) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def found(file: Path, question_id: str = "q") -> list[tuple[str, int, int, str]]:
    """Returns document, start, end and text of the passages that a file has for a question."""
    chunks = [one.chunk for one in retrieved_passages(file, question_id, TEXTS.__getitem__)]
    return [(c.document_id, c.span.char_start, c.span.char_end, c.content) for c in chunks]


def test_a_passage_is_given_by_offsets_or_by_its_text(tmp_path: Path) -> None:
    """The first place of a text counts, and white space may differ."""
    passages = [
        {"doc_id": "a", "start": 2, "end": 5},
        {"doc_id": "a", "text": "one two"},
        {"_id": "b", "text": "four"},
    ]
    file = written(tmp_path / "r.jsonl", {"qid": "q", "passages": passages})
    assert found(file) == [("a", 2, 5, "one"), ("a", 2, 10, "one  two"), ("b", 0, 4, "four")]
    chunk = retrieved_passages(file, "q", TEXTS.__getitem__)[0].chunk
    assert (chunk.span.byte_start, chunk.span.byte_end, chunk.chunk_id) == (3, 6, "")


def test_a_tool_may_find_nothing(tmp_path: Path) -> None:
    assert found(written(tmp_path / "r.jsonl", {"_id": "q", "passages": []})) == []


@pytest.mark.parametrize(
    ("passage_", "says"),
    [
        ({"doc_id": "a", "start": 0, "end": 25}, "end is 25; the document 'a' has 24 characters"),
        ({"doc_id": "b", "text": "five"}, "'b' does not contain the text that begins with 'five'"),
    ],
)
def test_a_passage_must_be_in_its_document(tmp_path: Path, passage_: Any, says: str) -> None:
    good = {"qid": "other", "passages": []}
    file = written(tmp_path / "r.jsonl", good, {"qid": "q", "passages": [passage_]})
    with pytest.raises(ChunkNotFound) as caught:
        found(file)
    assert str(caught.value).startswith(f"{file}, line 2: ")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([{"passages": []}], "line 1: qid is missing"),
        ([{"qid": "q"}], "line 1: passages is missing"),
        ([{"qid": "q", "passages": {}}], "line 1: passages is"),
        ([{"qid": "q", "passages": [{"text": "x"}]}], "line 1: doc_id is missing"),
        ([{"qid": "q", "passages": [{"doc_id": "a", "text": " "}]}], "line 1: text is"),
        ([{"qid": "q", "passages": [{"doc_id": "a", "start": 3}]}], "line 1: end is"),
        ([{"qid": "q", "passages": [{"doc_id": "a", "start": 3, "end": 3}]}], "line 1: end is '3'"),
        ([{"qid": "q", "passages": []}] * 2, "line 2: qid is 'q'; it must be different from"),
        (["x"], "line 1: the line is not a JSON object"),
    ],
)
def test_a_mistake_in_the_file_names_its_line_and_field(
    tmp_path: Path, lines: list[object], says: str
) -> None:
    file = written(tmp_path / "r.jsonl", *lines)
    with pytest.raises(InvalidArgument) as caught:
        read_retrieved(file)
    assert says in str(caught.value)


def test_a_file_that_lacks_a_question_is_named(tmp_path: Path) -> None:
    file = written(tmp_path / "r.jsonl", {"qid": "q", "passages": []})
    with pytest.raises(InvalidArgument, match=r"r\.jsonl has no line for the question 'x'"):
        retrieved_passages(file, "x", TEXTS.__getitem__)


@pytest.mark.parametrize("text", ["faiss", "=f.jsonl", "faiss=", " =f"])
def test_another_tool_has_a_name_and_a_file(text: str) -> None:
    with pytest.raises(InvalidArgument, match="it must be NAME=FILE"):
        parse_systems("standard", [text])


def test_other_tools_come_last_and_have_names_of_their_own() -> None:
    systems = parse_systems("standard", ["faiss=a=b.jsonl"])
    assert [system.name for system in systems] == ["standard", "faiss"]
    assert [system.file for system in systems] == [None, Path("a=b.jsonl")]
    assert baseline_of(systems, "") is systems[1]
    assert describe(systems[1]).endswith("in the file a=b.jsonl")
    with pytest.raises(InvalidArgument, match="the system 'standard' twice"):
        parse_systems("standard", ["standard=a.jsonl"])


def compared(tmp_path: Path, *lines: object) -> Any:
    """Returns the figures of a search and of the tool whose file has these lines."""
    systems = parse_systems("standard", [f"tool={written(tmp_path / 'r.jsonl', *lines)}"])
    client = cast("Client", Services())
    outcomes = search_all(client, QUESTIONS, systems, TARGET, Journal(), lambda *_: None)
    figures = summarise(QUESTIONS, systems, outcomes, TARGET, baseline="tool", seed=0)
    return outcomes["tool"], figures


def test_the_tool_is_measured_by_the_rules_of_the_searches(tmp_path: Path) -> None:
    first = {"qid": "first", "passages": [{"doc_id": "a", "start": 2, "end": 17}]}
    second = {"qid": "second", "passages": [{"doc_id": "b", "text": "four"}]}
    outcomes, figures = compared(tmp_path, first, second)
    search, tool = figures.systems
    assert (search.estimates["recall@20"].mean, tool.estimates["recall@20"].mean) == (0.5, 1.0)
    assert tool.estimates["recall@1"].mean < 1.0
    assert (tool.mode, tool.latency_p50_us, tool.failures) == (None, 0, ())
    assert not any("the tenant's data changed" in warning for warning in figures.warnings)
    assert [one.passages[0].span for one in outcomes] == [TextSpan("a", 2, 17), TextSpan("b", 0, 4)]


@pytest.mark.parametrize(
    "passage_", [{"doc_id": "a", "text": "five"}, {"doc_id": "c", "text": "x"}]
)
def test_a_passage_that_is_not_in_the_collection_fails_its_question_only(
    tmp_path: Path, passage_: dict[str, str]
) -> None:
    first = {"qid": "first", "passages": [passage_]}
    second = {"qid": "second", "passages": [{"doc_id": "b", "text": "four"}]}
    outcomes, figures = compared(tmp_path, first, second)
    assert isinstance(outcomes[1], RetrievalResult)
    assert [failure.subject for failure in figures.systems[1].failures] == ["first"]


def test_a_judge_reads_the_passages_of_the_tool(tmp_path: Path) -> None:
    passages = [{"doc_id": "b", "text": "four"}, {"doc_id": "a", "start": 0, "end": 24}]
    file = written(tmp_path / "r.jsonl", {"qid": "first", "passages": passages})
    system = parse_systems("standard", [f"tool={file}"])[1]
    client = cast("Client", Services())
    texts = document_texts(client, TARGET)
    read = best_passages(client, QUESTIONS[0], system, TARGET, 3, texts)
    assert read[0].chunk.content == "four"
    assert 0 < len(read[1].chunk.content) < 24


def test_the_text_of_a_document_is_read_once_for_all_questions(tmp_path: Path) -> None:
    passages = [{"doc_id": "a", "text": "one"}, {"doc_id": "b", "text": "four"}]
    lines = [{"qid": question.question_id, "passages": passages} for question in QUESTIONS]
    systems = parse_systems("standard", [f"tool={written(tmp_path / 'r.jsonl', *lines)}"])
    services = Services()
    client = cast("Client", services)
    search_all(client, QUESTIONS, systems, TARGET, Journal(), lambda *_: None)
    assert services.read == ["a", "b"]
