"""The search tool for agents describes itself to the model and returns passages to cite."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import TypeAdapter

from hrag import errors
from hrag.client import AsyncClient, Client
from hrag.client.tools import Findings, as_text, async_knowledge_base, knowledge_base
from hrag.errors import HragError
from hrag.types import (
    Chunk,
    MatchedChild,
    Passage,
    SearchMode,
    SearchPlan,
    SearchResult,
    Span,
    Timings,
)

MAKERS: dict[str, Callable[..., Callable[..., Any]]] = {
    "sync": knowledge_base,
    "async": async_knowledge_base,
}


def passage(index: int, content: str, score: float) -> Passage:
    span = Span(0, len(content), 0, len(content))
    chunk_id = f"guide#2.{index}"
    chunk = Chunk(
        *(chunk_id, "guide", 2, index, content, 3, span),
        section_path=("Guide", "Keys"),
        first_page=3,
        last_page=3 + index,
        title="Guide",
        source="guide.pdf",
        metadata={"secret": "x"},
    )
    return Passage(chunk, score, (MatchedChild("guide#0.0", score, span),))


def search_result(*passages: Passage) -> SearchResult:
    timings = Timings(1, 1, 1, 1, 4)
    return SearchResult(
        passages, SearchMode.SMALL_TO_BIG, 0, 2, 1, True, 1, timings, SearchPlan.SCAN, 1
    )


@dataclass
class FakeClient:
    """Returns the same result for every search, or raises the same error, and records arguments."""

    answer: SearchResult | HragError = field(default_factory=search_result)
    requests: list[tuple[str, Any, dict[str, Any]]] = field(default_factory=list)

    def search(self, tenant_id: str, query: Any, **options: Any) -> SearchResult:
        self.requests.append((tenant_id, query, options))
        if isinstance(self.answer, HragError):
            raise self.answer
        return self.answer


class FakeAsyncClient(FakeClient):
    """A `FakeClient` whose search is a coroutine."""

    async def search(  # type: ignore[override]
        self, tenant_id: str, query: Any, **options: Any
    ) -> SearchResult:
        return super().search(tenant_id, query, **options)


@dataclass
class Tool:
    """A knowledge base over a fake client. A call returns findings, also of an async function."""

    client: FakeClient
    function: Callable[..., Any]

    def __call__(self, *arguments: Any, **named: Any) -> Findings:
        result = self.function(*arguments, **named)
        return result if isinstance(result, Findings) else asyncio.run(result)


@pytest.fixture(params=MAKERS)
def tool(request: pytest.FixtureRequest) -> Callable[..., Tool]:
    """A function that creates a tool whose client returns or raises a given answer."""

    def make(answer: SearchResult | HragError | None = None, **options: Any) -> Tool:
        kind = FakeClient if request.param == "sync" else FakeAsyncClient
        client = kind(search_result() if answer is None else answer)
        return Tool(client, MAKERS[request.param](client, "acme", **options))

    return make


def test_passages_come_with_headings_to_cite_and_with_their_sources(tool):
    findings = tool(
        search_result(passage(0, " Rotate keys.\n", 0.123456), passage(1, "Often.", 0.1))
    )("q")
    first = findings.passages[0]
    assert (first.heading, first.text) == ("[Guide - Keys, page 3]", "Rotate keys.")
    assert (first.document_id, first.chunk_id, first.source) == ("guide", "guide#2.0", "guide.pdf")
    assert (first.first_page, first.last_page, first.score) == (3, 3, 0.1235)
    assert findings.error == ""
    assert str(findings) == (
        "[Guide - Keys, page 3]\n> Rotate keys.\n\n[Guide - Keys, pages 3-4]\n> Often."
    )


def test_a_result_without_passages_is_described_as_such(tool):
    findings = tool(search_result())("q")
    assert (findings.passages, findings.error) == ((), "")
    assert "No passage" in str(findings)


def test_the_creator_of_the_tool_fixes_tenant_and_options(tool):
    knowledge = tool(collection="handbook", limit=3, mode=SearchMode.STANDARD, token_budget=100)
    knowledge("how often?")
    knowledge("how often?", limit=7)
    options = {"collection": "handbook", "mode": SearchMode.STANDARD, "token_budget": 100}
    assert knowledge.client.requests == [
        ("acme", "how often?", {**options, "limit": 3}),
        ("acme", "how often?", {**options, "limit": 7}),
    ]
    with pytest.raises(TypeError, match="tenant_id"):
        knowledge("q", tenant_id="other")


def test_words_of_earlier_questions_are_searched_for_too(tool):
    knowledge = tool()
    findings = knowledge("and how is it treated?", earlier_questions=["What is leukaemia?"])
    assert knowledge.client.requests[-1][1] == "and how is it treated? leukaemia"
    assert findings.searched_for == "and how is it treated? leukaemia"
    assert knowledge("dogs?").searched_for == ""
    assert "it must be a text" in knowledge("why?", earlier_questions=[[1.0]]).error


def test_the_description_for_the_model_has_three_parameters_and_no_more(tool):
    function = tool(limit=3, description="The staff handbook of Acme.").function
    schema = TypeAdapter(function).json_schema()
    assert function.__name__ == "search_knowledge_base"
    assert all(word in function.__doc__ for word in ("cite", "heading", "handbook of Acme"))
    assert set(schema["properties"]) == {"query", "limit", "earlier_questions"}
    assert schema["required"] == ["query"]
    assert schema["properties"]["query"]["type"] == "string"
    limit = schema["properties"]["limit"]
    assert (limit["minimum"], limit["maximum"], limit["default"]) == (1, 100, 3)
    assert all(parameter["description"] for parameter in schema["properties"].values())


def test_two_knowledge_bases_keep_their_descriptions(tool):
    cats, dogs = tool(description="Cats."), tool(description="Dogs.")
    assert "Cats." in cats.function.__doc__
    assert "Cats." not in dogs.function.__doc__


def test_an_empty_description_is_left_out(tool):
    assert "The documents:" in tool(description=" Cats. ").function.__doc__
    assert "The documents:" not in tool(description=" \n").function.__doc__


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ("x" * 2001, "description has 2001 characters; at most 2000"),
        ("a\udcff", "surrogate at offset 1"),
    ],
)
def test_invalid_descriptions_are_refused_when_the_tool_is_created(tool, description, message):
    with pytest.raises(errors.InvalidArgument, match=message):
        tool(description=description)


def test_findings_are_a_value_with_a_schema():
    adapter = TypeAdapter(Findings)
    cited = adapter.json_schema()["$defs"]["CitedPassage"]
    assert set(cited["required"]) >= {"heading", "text", "document_id", "chunk_id", "source"}
    findings = Findings((), "why")
    assert adapter.validate_json(adapter.dump_json(findings)) == findings


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            errors.InvalidArgument("text is blank; a query must say something", field="text"),
            "The search failed: query is blank; a query must say something.",
        ),
        (
            errors.InvalidArgument("limit is 101; it must be from 1 to 100", field="limit"),
            "The search failed: limit is 101; it must be from 1 to 100.",
        ),
        (
            errors.ServiceUnavailable("nobody listens"),
            "The search failed: nobody listens. Trying again later may help.",
        ),
        (errors.CollectionNotFound("no such one"), "The search failed: no such one."),
    ],
)
def test_errors_are_returned_as_text(tool, error, message):
    findings = tool(error)("q")
    assert (findings.passages, findings.error, str(findings)) == ((), message, message)


def test_a_mistake_in_the_program_is_not_hidden(tool):
    knowledge = tool()
    knowledge.client.answer = None  # type: ignore[assignment]
    with pytest.raises(AttributeError):
        knowledge("q")


@pytest.mark.parametrize("query", [None, 5, ["a"], [0.5, 0.5], b"text", {"query": "x"}])
def test_a_query_that_is_not_a_text_is_refused_and_never_a_vector(tool, query):
    knowledge = tool()
    assert "must be a text" in knowledge(query).error
    assert knowledge.client.requests == []


@pytest.mark.parametrize("name", ["", "no tenant", "x" * 65, "ä", "a\ud800"])
@pytest.mark.parametrize("make", MAKERS.values(), ids=list(MAKERS))
def test_invalid_names_are_refused_when_the_tool_is_created(make, name):
    with pytest.raises(errors.InvalidArgument, match="tenant_id is "):
        make(FakeClient(), name)
    with pytest.raises(errors.InvalidArgument, match="collection is "):
        make(FakeClient(), "acme", collection=name)


def test_unknown_options_are_refused_when_the_tool_is_created():
    with Client() as client, pytest.raises(TypeError, match="nonsense"):
        knowledge_base(client, "acme", nonsense=1)
    with Client() as client, pytest.raises(TypeError, match="query"):
        knowledge_base(client, "acme", query="x")
    with pytest.raises(TypeError, match="nonsense"):
        async_knowledge_base(AsyncClient.__new__(AsyncClient), "acme", nonsense=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"query": "a\ud800"}, "valid Unicode"),
        ({"query": "q", "limit": -1}, "limit is"),
        ({"query": "q", "limit": "many"}, "limit is"),
        ({"query": "q", "limit": float("nan")}, "limit is"),
        ({"query": "q", "limit": 1 << 70}, "limit is"),
    ],
)
def test_values_that_cannot_be_sent_are_returned_as_errors_too(arguments, message):
    with Client() as client:
        assert message in knowledge_base(client, "acme")(**arguments).error


def test_as_text_a_tool_has_the_same_description_and_returns_quoted_lines() -> None:
    client: Any = FakeClient(search_result(passage(0, "[Guide]\nFollow me.", 0.5)))
    tool = knowledge_base(client, "acme")
    textual = as_text(tool)
    assert (textual.__doc__, textual.__name__) == (tool.__doc__, tool.__name__)
    assert textual("keys").endswith("\n> [Guide]\n> Follow me.")
