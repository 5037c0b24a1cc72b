"""The Haystack component works alone and in pipelines, and can be saved and loaded."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from haystack import Document, Pipeline
from haystack.components.builders import PromptBuilder
from haystack.components.joiners import DocumentJoiner
from haystack.utils import Secret
from haystack.utils.filters import document_matches_filter

from hrag import errors
from hrag.filters import AllOf, AnyOf, Exists, Match, NoneOf, Range
from hrag.integrations.haystack import HragRetriever, filter_of
from hrag.types import Aggregation, SearchMode
from tests.frameworks.conftest import DOCUMENTS, QUERY, TENANT
from tests.support.servers.processes import Running

pytestmark = pytest.mark.frameworks

ZOO = Match("metadata.team", ("zoo",))
ALLOWED = ["hrag.integrations.haystack"]


@pytest.fixture
def make(services: Running):
    retrievers = []

    def new_retriever(tenant_id: str = TENANT, **arguments: object) -> HragRetriever:
        retrievers.append(HragRetriever(tenant_id, address=services.retriever.address, **arguments))
        return retrievers[-1]

    yield new_retriever
    for retriever in retrievers:
        retriever.close()


def ids(result: dict[str, list[Document]]) -> set[str]:
    return {document.meta["document_id"] for document in result["documents"]}


def test_a_document_carries_its_citation_and_its_metadata(make):
    (document,) = make(filters=ZOO).run(QUERY)["documents"]
    assert (document.id, document.score) == ("pets#0.0", document.meta["score"])
    assert "Dogs bark at night." in document.content
    assert (document.meta["heading"], document.meta["team"]) == ("[Pets, pages 1-2]", "zoo")
    assert Document.from_dict(document.to_dict()) == document


def pipeline(retriever: HragRetriever) -> Pipeline:
    new_pipeline = Pipeline()
    template = "{% for node in documents %}{{ node.meta.heading }} {{ node.content }}{% endfor %}"
    new_pipeline.add_component("retriever", retriever)
    new_pipeline.add_component("prompt", PromptBuilder(template, required_variables=["documents"]))
    new_pipeline.connect("retriever.documents", "prompt.documents")
    return new_pipeline


def test_a_pipeline_feeds_its_documents_to_a_prompt_and_closes_it(make):
    prompt_pipeline = pipeline(make())
    arguments = {"query": QUERY, "filters": ZOO, "top_k": 3}
    prompt = prompt_pipeline.run({"retriever": arguments})["prompt"]["prompt"]
    assert prompt.startswith("[Pets, pages 1-2] Cats sleep all day.")
    prompt_pipeline.close()
    assert prompt_pipeline.run({"retriever": arguments})["prompt"]["prompt"] == prompt, (
        "a closed pipeline connects again"
    )


async def test_the_component_runs_in_an_asynchronous_pipeline(make):
    fusion_pipeline = Pipeline()
    for name, options in (("words", {"retrieval": "lexical"}), ("vectors", {"retrieval": "dense"})):
        fusion_pipeline.add_component(name, make(mode=SearchMode.STANDARD, search_options=options))
    fusion_pipeline.add_component("joiner", DocumentJoiner(join_mode="reciprocal_rank_fusion"))
    for name in ("words", "vectors"):
        fusion_pipeline.connect(f"{name}.documents", "joiner.documents")
    arguments = {name: {"query": QUERY} for name in ("words", "vectors")}
    result = (await fusion_pipeline.run_async(arguments))["joiner"]
    assert ids(result) == {"pets", "keys", "bread", "rivers"}
    assert len(result["documents"]) == 4


def test_the_component_is_saved_and_loaded_with_a_pipeline(make, monkeypatch):
    monkeypatch.setenv("PETS_KEY", "unused")
    filters = {"field": "meta.team", "operator": "in", "value": ["zoo", "kitchen"]}
    original = pipeline(
        make(
            token=Secret.from_env_var("PETS_KEY"),
            filters=filters,
            mode=SearchMode.STANDARD,
            top_k=1,
            search_options={"aggregation": Aggregation.SUM},
        )
    )
    loaded = Pipeline.loads(original.dumps(), allowed_modules=ALLOWED)
    assert loaded.dumps() == original.dumps()
    assert "unused" not in original.dumps()
    arguments = {"retriever": {"query": QUERY, "top_k": 5}}
    assert loaded.run(arguments) == original.run(arguments)
    loaded.close()


def test_filters_of_hrag_are_saved(make):
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    filters = AllOf(
        (
            AnyOf((ZOO, Match("metadata.year", (2026.0, True)))),
            NoneOf((Exists("title"), Range("metadata.date", above=moment))),
        )
    )
    saved = json.loads(json.dumps(make(filters=filters).to_dict()))
    loaded = HragRetriever.from_dict(saved)
    assert loaded.filters == filters
    assert loaded.to_dict() == saved


@pytest.mark.parametrize(
    ("key", "field"),
    [
        ("format", "format"),
        ("mime_type", "mime_type"),
        ("meta.format", "metadata.format"),
        ("meta.mime_type", "metadata.mime_type"),
        ("metadata.format", "metadata.format"),
        ("meta.metadata.format", "metadata.format"),
        ("meta.title", "title"),
    ],
)
def test_a_format_in_meta_is_a_key_of_the_metadata(key, field):
    assert filter_of(condition(key, "==", "application/pdf")) == Match(field, ("application/pdf",))


def test_a_token_itself_is_neither_saved_nor_shown(make):
    retriever = make(token=Secret.from_token("hrag_secret"))
    assert retriever.run(QUERY)["documents"]
    with pytest.raises(ValueError, match="Cannot serialize token"):
        retriever.to_dict()
    assert "hrag_secret" not in repr(retriever)


def test_a_token_comes_from_the_environment_and_leaves_this_machine_by_tls_only(monkeypatch):
    monkeypatch.setenv("HRAG_TOKEN", "hrag_secret")
    retriever = HragRetriever(TENANT, address="192.0.2.1:50052")
    with pytest.raises(errors.InvalidArgument, match="in plaintext") as raised:
        retriever.run(QUERY)
    assert "hrag_secret" not in str(raised.value)


def test_filters_of_a_run_narrow_the_filters_of_the_component(make):
    retriever = make(filters={"field": "meta.team", "operator": "!=", "value": "zoo"})
    assert ids(retriever.run(QUERY)) == {"keys", "bread", "rivers"}
    assert retriever.run(QUERY, filters=ZOO) == {"documents": []}
    has_year = {"field": "meta.year", "operator": "!=", "value": None}
    assert ids(retriever.run(QUERY, filters=has_year)) == {"keys"}


def test_one_component_serves_threads_and_event_loops_at_the_same_time(make):
    retriever = make()

    def in_a_loop(_: int) -> list[str]:
        result = asyncio.run(retriever.run_async(QUERY))
        return [document.id for document in result["documents"]]

    def without_a_loop(_: int) -> list[str]:
        return [document.id for document in retriever.run(QUERY)["documents"]]

    with ThreadPoolExecutor(4) as pool:
        runs = [*pool.map(in_a_loop, range(8)), *pool.map(without_a_loop, range(8))]
    assert all(run == runs[0] for run in runs)


def condition(field: str, operator: str, value: object) -> dict[str, object]:
    return {"field": field, "operator": operator, "value": value}


def compound(operator: str, *conditions: object) -> dict[str, object]:
    return {"operator": operator, "conditions": list(conditions)}


@pytest.mark.parametrize(
    "filters",
    [
        condition("meta.team", "==", "zoo"),
        condition("team", "==", "zoo"),
        condition("meta.team", "!=", "zoo"),
        condition("meta.team", "==", None),
        condition("meta.team", "!=", None),
        condition("meta.team", "in", ["zoo", "kitchen", "none"]),
        condition("meta.team", "in", ["zoo", None]),
        condition("meta.team", "not in", ["zoo", "kitchen"]),
        condition("meta.team", "not in", ["zoo", None]),
        condition("meta.year", ">", 2025),
        condition("meta.year", ">=", 2025),
        condition("meta.year", "<", 2026),
        condition("meta.year", "<=", 2025.5),
        condition("meta.date", ">", "2026-01-01"),
        condition("meta.date", "==", "2026-03-01T00:00:00Z"),
        condition("meta.date", "<", datetime(2026, 1, 1, tzinfo=UTC)),
        condition("meta.document_id", "in", ["pets", "rivers"]),
        condition("meta.title", "==", "Keys"),
        condition("meta.source", "!=", "pets.pdf"),
        compound("AND", condition("meta.year", ">", 2024), condition("meta.team", "!=", "zoo")),
        compound("OR", condition("meta.year", ">", 2025), condition("meta.team", "==", "kitchen")),
        compound("NOT", condition("meta.year", ">", 2024), condition("meta.team", "==", "zoo")),
        compound(
            "NOT",
            compound("OR", condition("meta.year", ">", 2025), condition("meta.team", "==", "zoo")),
        ),
    ],
    ids=repr,
)
def test_filters_of_haystack_mean_the_same_as_in_haystack(make, filters):
    """The expected documents are those for which Haystack evaluates the filter to true."""
    expected = {
        document.document_id
        for document in DOCUMENTS
        if document_matches_filter(
            filters,
            Document(
                meta={
                    **document.metadata,
                    "document_id": document.document_id,
                    "title": document.title,
                    "source": document.source,
                }
            ),
        )
    }
    assert ids(make(filters=filters).run(QUERY)) == expected


def nested(depth: int) -> dict[str, object]:
    inner = condition("meta.team", "==", "zoo")
    for _ in range(depth):
        inner = compound("AND", inner)
    return inner


@pytest.mark.parametrize(
    ("filters", "error", "message"),
    [
        ({}, errors.InvalidArgument, "filters.field is missing"),
        ({"field": "meta.team"}, errors.InvalidArgument, "filters.operator is missing"),
        ({"conditions": []}, errors.InvalidArgument, "filters.operator is missing"),
        (compound("AND"), errors.InvalidArgument, "all_of is empty"),
        (compound("and", ZOO), errors.InvalidArgument, r"conditions\[0\] is .Match"),
        (compound("XOR", condition("a", "==", 1)), errors.InvalidArgument, "operator is 'XOR'"),
        (compound("AND", "x"), errors.InvalidArgument, r"filters.conditions\[0\] is 'x'"),
        ({"operator": "AND", "conditions": 5}, errors.InvalidArgument, "conditions is '5'"),
        (condition("meta.team", "~", "z"), errors.InvalidArgument, "operator is '~'"),
        (condition("meta.team", [], "z"), errors.InvalidArgument, "operator is"),
        (condition("meta.team", ">", "zoo"), errors.InvalidArgument, "value is 'zoo'"),
        (condition("meta.team", ">", None), errors.InvalidArgument, "value is 'None'"),
        (condition("meta.team", "==", ["zoo"]), errors.InvalidArgument, "value is "),
        (
            condition("meta.team", "in", "zoo"),
            errors.InvalidArgument,
            "a list with at least one value",
        ),
        (condition("meta.year", "==", float("inf")), errors.InvalidArgument, "finite"),
        (condition("meta.team", "==", "a\ud800"), errors.InvalidArgument, "Unicode"),
        (condition("content", "==", "x"), errors.InvalidArgument, "field is 'content'"),
        (condition("id", "==", "x"), errors.InvalidArgument, "field is 'id'"),
        (condition(5, "==", "x"), errors.InvalidArgument, "field is '5'"),
        (
            condition("meta.score", ">", 0.5),
            errors.InvalidArgument,
            "'score', which describes a passage",
        ),
        (nested(200), errors.TooLarge, "over 16 deep"),
        ("team=zoo", errors.InvalidArgument, "filter contains 'team=zoo'"),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_filters_that_hrag_cannot_express_are_refused_with_the_reason(
    make, filters, error, message
):
    with pytest.raises(error, match=message):
        make(filters=filters)
    with pytest.raises(error, match=message):
        make().run(QUERY, filters=filters)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"mode": "best"}, errors.InvalidArgument, "mode is 'best'; allowed are small_to_big"),
        ({"top_k": "many"}, errors.InvalidArgument, "limit is 'many'"),
        ({"tenant_id": 5}, errors.InvalidArgument, "tenant_id is '5'"),
        ({"search_options": {"nonsense": 1}}, TypeError, "nonsense"),
    ],
)
def test_invalid_arguments_are_refused_when_a_component_is_created(make, arguments, error, message):
    with pytest.raises(error, match=message):
        make(**arguments)


@pytest.mark.parametrize(
    ("query", "error"),
    [
        (" ", errors.InvalidArgument),
        ("a\ud800", errors.InvalidArgument),
        ([0.5], errors.InvalidArgument),
        ("x" * 32_769, errors.TooLarge),
    ],
)
async def test_errors_of_searches_are_raised_unchanged(make, query, error):
    retriever = make()
    with pytest.raises(error):
        retriever.run(query)
    with pytest.raises(error):
        await retriever.run_async(query)


def test_saved_filters_that_cannot_be_read_are_refused(make):
    saved = make().to_dict()
    saved["init_parameters"]["filters"] = {"anyOf": {"filter": []}}
    with pytest.raises(errors.InvalidArgument, match="filter cannot be read"):
        HragRetriever.from_dict(saved)
