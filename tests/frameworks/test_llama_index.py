"""The retriever for LlamaIndex works alone and in query engines."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from llama_index.core.llms import MockLLM
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import MetadataMode, QueryBundle
from llama_index.core.vector_stores import (
    FilterCondition,
    MetadataFilter,
    MetadataFilters,
)

from hrag import errors
from hrag.client import Client
from hrag.filters import Match
from hrag.integrations.llama_index import HragRetriever
from hrag.types import SearchMode
from tests.frameworks.conftest import QUERY, TENANT
from tests.support.servers.processes import Running

pytestmark = pytest.mark.frameworks

ZOO = Match("metadata.team", ("zoo",))


def document_ids(retriever: HragRetriever, query: str = QUERY) -> set[str]:
    return {node.metadata["document_id"] for node in retriever.retrieve(query)}


def metadata_filters(*conditions: tuple[object, ...], how: str = "and") -> MetadataFilters:
    filters = [MetadataFilter(key=key, operator=op, value=value) for key, op, value in conditions]
    return MetadataFilters(filters=filters, condition=FilterCondition(how))


def test_a_node_carries_its_citation(client: Client):
    (scored_node,) = HragRetriever(client, TENANT, filter=ZOO).retrieve(QUERY)
    node = scored_node.node
    assert scored_node.score == node.metadata["score"]
    assert (node.node_id, node.ref_doc_id) == ("pets#0.0", "pets")
    assert (node.start_char_idx, node.end_char_idx) == (0, len(node.text))
    assert (node.metadata["heading"], node.metadata["team"]) == ("[Pets, pages 1-2]", "zoo")
    assert node.get_content(MetadataMode.LLM) == f"heading: [Pets, pages 1-2]\n\n{node.text}"
    assert type(node).from_json(node.to_json()) == node


async def test_a_query_engine_answers_with_the_retriever(client: Client):
    llm = MockLLM()
    engine = RetrieverQueryEngine(
        HragRetriever(client, TENANT, limit=2),
        response_synthesizer=get_response_synthesizer(llm=llm),
        node_postprocessors=[SimilarityPostprocessor(similarity_cutoff=0.01)],
    )
    for answer in (engine.query(QUERY), await engine.aquery(QUERY)):
        assert "Dogs bark at night." in str(answer)
        assert "heading: [Pets, pages 1-2]" in str(answer)
        assert QUERY in str(answer)
        assert len(answer.source_nodes) == 2


async def test_two_retrievers_can_be_fused(client: Client):
    """The fusion treats nodes with the same id as one node."""
    both = [
        HragRetriever(
            client, TENANT, mode=SearchMode.STANDARD, search_options={"retrieval": retrieval}
        )
        for retrieval in ("lexical", "dense")
    ]
    fused = QueryFusionRetriever(
        both, llm=MockLLM(), num_queries=1, mode="reciprocal_rerank", similarity_top_k=9
    )
    nodes = await fused.aretrieve(QUERY)
    document_ids = [node.metadata["document_id"] for node in nodes]
    assert sorted(document_ids) == ["bread", "keys", "pets", "rivers"]


def test_an_embedding_of_another_model_is_not_used(client: Client):
    bundle = QueryBundle(QUERY, embedding=[0.5, 0.5])
    plain = HragRetriever(client, TENANT).retrieve(QUERY)
    assert HragRetriever(client, TENANT).retrieve(bundle) == plain


def test_one_retriever_serves_threads_and_event_loops_at_the_same_time(client: Client):
    retriever = HragRetriever(client, TENANT)

    def in_a_loop(_: int) -> list[str]:
        return [node.node_id for node in asyncio.run(retriever.aretrieve(QUERY))]

    def without_a_loop(_: int) -> list[str]:
        return [node.node_id for node in retriever.retrieve(QUERY)]

    with ThreadPoolExecutor(4) as pool:
        runs = [*pool.map(in_a_loop, range(8)), *pool.map(without_a_loop, range(8))]
    assert all(run == runs[0] for run in runs)


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        (metadata_filters(("team", "==", "zoo")), {"pets"}),
        (metadata_filters(("team", "!=", "zoo")), {"keys", "bread", "rivers"}),
        (metadata_filters(("team", "in", ["zoo", "kitchen"])), {"pets", "bread"}),
        (metadata_filters(("team", "nin", ["zoo", "kitchen"])), {"keys", "rivers"}),
        (metadata_filters(("year", ">", 2025)), {"keys"}),
        (metadata_filters(("year", ">=", 2025), ("year", "<", 2026)), {"pets"}),
        (metadata_filters(("date", "<=", "2026-01-01")), {"rivers"}),
        (metadata_filters(("tags", "contains", "a")), {"keys"}),
        (metadata_filters(("tags", "any", ["b", "c"])), {"keys"}),
        (metadata_filters(("tags", "all", ["a", "b"])), {"keys"}),
        (metadata_filters(("tags", "all", ["a", "c"])), set()),
        (metadata_filters(("year", "is_empty", None)), {"bread", "rivers"}),
        (
            metadata_filters(("title", "==", "Pets"), ("team", "==", "kitchen"), how="or"),
            {"pets", "bread"},
        ),
        (metadata_filters(("team", "==", "zoo"), ("year", ">", 0), how="not"), {"bread", "rivers"}),
        (
            MetadataFilters(
                filters=[
                    metadata_filters(("team", "==", "zoo")),
                    metadata_filters(("year", ">", 0)),
                ]
            ),
            {"pets"},
        ),
        (metadata_filters(("document_id", "==", "bread")), {"bread"}),
    ],
)
def test_filters_of_llama_index_mean_the_same_as_in_llama_index(client: Client, filter, expected):
    assert document_ids(HragRetriever(client, TENANT, filter=filter)) == expected


def nested(depth: int) -> MetadataFilters:
    inner = metadata_filters(("team", "==", "zoo"))
    for _ in range(depth):
        inner = MetadataFilters(filters=[inner])
    return inner


@pytest.mark.parametrize(
    ("filter", "error", "message"),
    [
        (
            metadata_filters(("team", "text_match", "z")),
            errors.InvalidArgument,
            "operator is 'text_match'",
        ),
        (
            metadata_filters(("team", ">", "zoo")),
            errors.InvalidArgument,
            r"filters\[0\].value is 'zoo'",
        ),
        (
            metadata_filters(("team", "in", [])),
            errors.InvalidArgument,
            "a list with at least one value",
        ),
        (
            metadata_filters(("team", "in", "zoo")),
            errors.InvalidArgument,
            "a list with at least one value",
        ),
        (metadata_filters(("year", "==", float("nan"))), errors.InvalidArgument, "finite"),
        (
            metadata_filters(("score", ">", 1)),
            errors.InvalidArgument,
            "'score', which describes a passage",
        ),
        (metadata_filters(("title", ">", 1)), errors.InvalidArgument, "only metadata has numbers"),
        (MetadataFilters(filters=[]), errors.InvalidArgument, "all_of is empty"),
        (nested(100), errors.TooLarge, "over 16 deep"),
        ({"team": "zoo"}, errors.InvalidArgument, "filter contains"),
    ],
)
def test_filters_that_hrag_cannot_express_are_refused_with_the_reason(
    client: Client, filter, error, message
):
    with pytest.raises(error, match=message):
        HragRetriever(client, TENANT, filter=filter)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"mode": "best"}, errors.InvalidArgument, "mode is 'best'; allowed are small_to_big"),
        ({"limit": "many"}, errors.InvalidArgument, "limit is 'many'"),
        ({"collection": ""}, errors.InvalidArgument, "collection is ''"),
        ({"search_options": {"nonsense": 1}}, TypeError, "nonsense"),
    ],
)
def test_invalid_arguments_are_refused_when_a_retriever_is_created(
    client: Client, arguments, error, message
):
    with pytest.raises(error, match=message):
        HragRetriever(client, TENANT, **arguments)
    with pytest.raises(errors.InvalidArgument, match="tenant_id is"):
        HragRetriever(client, 5)


@pytest.mark.parametrize(
    ("query", "error"),
    [
        (" ", errors.InvalidArgument),
        ("a\ud800", errors.InvalidArgument),
        ("x" * 32_769, errors.TooLarge),
    ],
)
async def test_errors_of_searches_are_raised_unchanged(client: Client, query, error):
    retriever = HragRetriever(client, TENANT)
    with pytest.raises(error):
        retriever.retrieve(query)
    with pytest.raises(error):
        await retriever.aretrieve(query)


async def test_the_owner_of_the_client_closes_it(services: Running):
    with services.new_client() as owned:
        retriever = HragRetriever(owned, TENANT)
        assert await retriever.aretrieve(QUERY)
    with pytest.raises(errors.ServiceUnavailable, match="this client is closed"):
        retriever.retrieve(QUERY)
