"""The retriever for LangChain passes the tests of LangChain and further tests."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import ConfigurableField, RunnablePassthrough
from langchain_tests.integration_tests import RetrieversIntegrationTests
from pydantic import ValidationError

from hrag import errors
from hrag.client import Client
from hrag.filters import Exists, Match, NoneOf, Range
from hrag.integrations.langchain import HragRetriever
from hrag.types import SearchMode
from tests.frameworks.conftest import QUERY, TENANT
from tests.support.servers.processes import Running

pytestmark = pytest.mark.frameworks

ZOO = Match("metadata.team", ("zoo",))


class TestStandard(RetrieversIntegrationTests):
    """The tests that LangChain requires of every retriever."""

    @pytest.fixture(autouse=True)
    def _set_client(self, client: Client) -> None:
        self.client = client

    @property
    def retriever_constructor(self) -> type[HragRetriever]:
        return HragRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"client": self.client, "tenant_id": TENANT}

    @property
    def retriever_query_example(self) -> str:
        return QUERY

    @property
    def num_results_arg_name(self) -> str:
        return "limit"


@pytest.fixture
def retriever(client: Client) -> HragRetriever:
    return HragRetriever(client=client, tenant_id=TENANT)


def ids(documents: list[Document]) -> set[str]:
    return {document.metadata["document_id"] for document in documents}


def test_a_document_carries_its_citation_and_its_metadata(retriever):
    (document,) = retriever.invoke(QUERY, filter=ZOO)
    score = document.metadata.pop("score")
    assert 0 < score <= 1.5
    assert document.id == "pets#0.0"
    assert "Dogs bark at night." in document.page_content
    assert document.metadata == {
        "team": "zoo",
        "year": 2025,
        "heading": "[Pets, pages 1-2]",
        "document_id": "pets",
        "chunk_id": "pets#0.0",
        "title": "Pets",
        "source": "pets.pdf",
        "section_path": [],
        "first_page": 1,
        "last_page": 2,
        "page_unit": "page",
        "is_recognised": False,
        "char_start": 0,
        "char_end": len(document.page_content),
        "sentence_start": document.page_content.index("Dogs"),
        "sentence_end": document.page_content.index(" They dig"),
        "sentence_page": 2,
    }


def test_metadata_cannot_forge_the_document_id_or_the_score(retriever):
    (bread,) = retriever.invoke(QUERY, filter=Match("metadata.team", ("kitchen",)))
    assert bread.metadata["document_id"] == "bread"
    assert isinstance(bread.metadata["score"], float)


def test_fields_control_the_search(client):
    options = {"min_score": 5.0}
    assert HragRetriever(client=client, tenant_id=TENANT, **options).invoke(QUERY) == []
    dates = Range("metadata.year", at_least=2026)
    fields = {"filter": dates, "mode": "standard", "limit": 1, "token_budget": 100}
    more = {"search_options": {"retrieval": "lexical"}}
    retriever = HragRetriever(client=client, tenant_id=TENANT, **fields, **more)
    assert retriever.mode is SearchMode.STANDARD
    assert ids(retriever.invoke("rotate")) == {"keys"}
    assert retriever.invoke("cats") == []


def test_a_filter_of_a_call_narrows_the_filter_of_the_retriever(client):
    retriever = HragRetriever(client=client, tenant_id=TENANT, filter=NoneOf((ZOO,)))
    assert ids(retriever.invoke(QUERY)) == {"keys", "bread", "rivers"}
    assert retriever.invoke(QUERY, filter=ZOO) == []
    assert ids(retriever.invoke(QUERY, filter=Exists("title"))) == {"keys"}


def test_the_retriever_can_be_part_of_a_chain(retriever):
    prompt = ChatPromptTemplate.from_template("{context}\n\n{question}")
    prompts = []
    model = FakeListChatModel(responses=["They bark."])
    chain = (
        {"context": retriever, "question": RunnablePassthrough()}
        | prompt
        | (lambda value: prompts.append(value.to_string()) or value)
        | model
        | StrOutputParser()
    )
    assert chain.invoke(QUERY) == "They bark."
    assert "Dogs bark at night." in prompts[0]
    assert QUERY in prompts[0]


def test_fields_can_be_configured_for_a_call(retriever):
    """LangChain creates a new retriever for the call, which shares the client."""
    configurable = retriever.configurable_fields(limit=ConfigurableField(id="limit"))
    assert len(configurable.invoke(QUERY)) > 1
    assert len(configurable.invoke(QUERY, {"configurable": {"limit": 1}})) == 1


def test_one_retriever_serves_one_event_loop_after_another(retriever):
    for _ in range(3):
        assert "pets" in ids(asyncio.run(retriever.ainvoke(QUERY)))


def test_one_retriever_serves_threads_and_event_loops_at_the_same_time(retriever):
    async def several() -> list[set[str]]:
        results = await asyncio.gather(*(retriever.ainvoke(QUERY, limit=2) for _ in range(5)))
        return [ids(documents) for documents in results]

    def in_a_loop(_: int) -> list[set[str]]:
        return asyncio.run(several())

    def without_a_loop(_: int) -> list[set[str]]:
        return [ids(documents) for documents in retriever.batch([QUERY] * 5, limit=2)]

    with ThreadPoolExecutor(4) as pool:
        runs = [*pool.map(in_a_loop, range(4)), *pool.map(without_a_loop, range(4))]
    id_sets = [id_set for run in runs for id_set in run]
    assert len(id_sets) == 40
    assert all(id_set == id_sets[0] for id_set in id_sets)


async def test_a_cancelled_task_cancels_only_its_search(retriever):
    """The cancelled search waits for a sequence number that is never reached."""
    waiting = retriever.model_copy(update={"search_options": {"min_sequence": 1 << 40}})
    task = asyncio.create_task(waiting.ainvoke(QUERY))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await retriever.ainvoke(QUERY)


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"tenant_id": ""}, errors.InvalidArgument, "tenant_id is ''"),
        ({"tenant_id": 5}, ValidationError, "valid string"),
        ({"collection": "a b"}, errors.InvalidArgument, "collection is 'a b'"),
        ({"k": 3}, ValidationError, "Extra inputs are not permitted"),
        ({"mode": "best"}, ValidationError, "small_to_big"),
        ({"limit": -1}, errors.InvalidArgument, "limit is '-1'"),
        ({"filter": {"team": "zoo"}}, errors.InvalidArgument, "filter contains .*AllOf"),
        ({"filter": "team=zoo"}, errors.InvalidArgument, "filter contains .*AllOf"),
        ({"filter": Match("team", ("zoo",))}, errors.InvalidArgument, "metadata.<key>"),
        ({"search_options": {"limit": 3}}, TypeError, "limit"),
        ({"search_options": {"nonsense": 3}}, TypeError, "nonsense"),
        ({"search_options": {"fusion": "best"}}, errors.InvalidArgument, "fusion is 'best'"),
    ],
)
def test_invalid_fields_are_refused_when_a_retriever_is_created(client, fields, error, message):
    with pytest.raises(error, match=message):
        HragRetriever(**{"client": client, "tenant_id": TENANT, **fields})


@pytest.mark.parametrize(
    ("query", "arguments", "error", "message"),
    [
        (" ", {}, errors.InvalidArgument, "text is blank"),
        ("a\ud800", {}, errors.InvalidArgument, "valid Unicode"),
        ([0.5] * 64, {}, errors.InvalidArgument, "it must be a text"),
        ("x" * 32_769, {}, errors.TooLarge, "32769 bytes"),
        (QUERY, {"limit": 101}, errors.InvalidArgument, "limit is 101"),
        (QUERY, {"filter": {}}, errors.InvalidArgument, "filter contains '{}'"),
    ],
)
async def test_errors_of_searches_are_raised_unchanged(retriever, query, arguments, error, message):
    with pytest.raises(error, match=message):
        retriever.invoke(query, **arguments)
    with pytest.raises(error, match=message):
        await retriever.ainvoke(query, **arguments)


async def test_a_collection_that_does_not_exist_is_named(client):
    retriever = HragRetriever(client=client, tenant_id=TENANT, collection="none")
    with pytest.raises(errors.CollectionNotFound, match="none"):
        retriever.invoke(QUERY)
    with pytest.raises(errors.CollectionNotFound, match="none"):
        await retriever.ainvoke(QUERY)


async def test_the_owner_of_the_client_closes_it(services: Running):
    with services.new_client() as owned:
        retriever = HragRetriever(client=owned, tenant_id=TENANT)
        assert retriever.invoke(QUERY)
    with pytest.raises(errors.ServiceUnavailable, match="this client is closed"):
        retriever.invoke(QUERY)
    with pytest.raises(errors.ServiceUnavailable, match="this client is closed"):
        await retriever.ainvoke(QUERY)
