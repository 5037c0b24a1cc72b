"""Lexical, dense and hybrid searches work over gRPC."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hrag import errors
from hrag.client import Client
from hrag.filters import Match
from hrag.models.embedding.hashing import HashEmbedder
from hrag.text.analysis import analyzer_name
from hrag.types import (
    MARKDOWN,
    Document,
    FusionMethod,
    Passage,
    Retrieval,
    SearchMode,
    SearchQuery,
    SearchResult,
    SettingsRequest,
    SummaryUnit,
)
from tests.support.documents.cited_places import CASES
from tests.support.servers.processes import FAST, Running, running
from tests.support.servers.stores import COSINE_TOLERANCE

TEXTS = {
    "denied": "Access denied means that the key has expired. Ask for another key.",
    "access": "Access is free of charge. Nothing is denied to a guest with a key.",
    "code": "The code E-4711 stands for a door that is open.",
    "codes": "The code E-47110 stands for a window that is open.",
    "cats": "Cats sleep all day. Cats wake in the evening.",
    "zh": "错误代码E-4711表示门没有关好。请先关门。",
}
# Tests run in these modes only. The tests of the engine cover the other modes.
_MODES = (
    SearchMode.SMALL_TO_BIG,
    SearchMode.STANDARD,
    SearchMode.AUTO_MERGE,
    SearchMode.CONTEXT,
)


@pytest.fixture
def client(services: Running) -> Client:
    return services.client


@pytest.fixture
def library(client: Client, tenant: str) -> str:
    """A tenant with one short document for each of TEXTS."""
    list(client.ingest_many(tenant, (Document(text, name) for name, text in TEXTS.items())))
    return tenant


def vector_of(text: str) -> list[float]:
    return HashEmbedder(64).embed([text])[0].tolist()


def names(result: SearchResult) -> list[str]:
    return [passage.chunk.document_id for passage in result.passages]


def highlights(passage: Passage) -> list[str]:
    """Returns the text of each of the passage's term spans."""
    start = passage.chunk.span.char_start
    return [
        passage.chunk.content[span.char_start - start : span.char_end - start]
        for span in passage.term_spans
    ]


# These tests check which passages each kind of retrieval finds, and their scores.


def test_words_find_exactly_the_passages_that_contain_them(client: Client, library: str) -> None:
    result = client.search(library, "sleeping cats", retrieval=Retrieval.LEXICAL, limit=50)
    (passage,) = result.passages
    assert (result.retrieval, result.fallback, result.exhausted) == (Retrieval.LEXICAL, "", True)
    assert passage.chunk.document_id == "cats"
    assert passage.score == passage.lexical_score
    assert 0 < passage.score <= 1
    assert passage.dense_score is None
    assert highlights(passage) == ["Cats", "sleep", "Cats"]
    sentence = passage.matched_sentence
    assert sentence is not None
    assert TEXTS["cats"][sentence.span.char_start : sentence.span.char_end].strip() == (
        "Cats sleep all day."
    )


def test_vectors_rank_every_passage_by_its_cosine(client: Client, library: str) -> None:
    result = client.search(library, TEXTS["cats"], retrieval=Retrieval.DENSE, limit=50)
    assert sorted(names(result)) == sorted(TEXTS)
    assert result.retrieval is Retrieval.DENSE
    assert result.passages[0].chunk.document_id == "cats"
    assert result.passages[0].score == pytest.approx(1, abs=COSINE_TOLERANCE)
    for passage in result.passages:
        assert passage.score == passage.dense_score
        assert (passage.lexical_score, passage.term_spans) == (None, ())


@pytest.mark.parametrize("weight", [None, 0.0, 0.25, 1.0])
def test_hybrid_weighs_both_scores(client: Client, library: str, weight: float | None) -> None:
    result = client.search(library, "the key to the code", limit=50, lexical_weight=weight)
    assert (result.retrieval, sorted(names(result))) == (Retrieval.HYBRID, sorted(TEXTS))
    share = 0.5 if weight is None else weight
    for passage in result.passages:
        assert passage.lexical_score is not None
        assert passage.dense_score is not None
        fused = share * passage.lexical_score + (1 - share) * (1 + passage.dense_score) / 2
        assert passage.score == pytest.approx(fused, abs=COSINE_TOLERANCE)
        child = passage.matched_children[0]
        assert (child.score, child.lexical_score) == (passage.score, passage.lexical_score)
    scores = [passage.score for passage in result.passages]
    assert scores == sorted(scores, reverse=True)


def test_reciprocal_rank_fusion_can_be_chosen(client: Client, library: str) -> None:
    result = client.search(
        library, "sleeping cats", fusion=FusionMethod.RECIPROCAL_RANK, lexical_weight=1.0
    )
    assert result.passages[0].chunk.document_id == "cats"
    assert result.passages[0].score == pytest.approx(1 / 61, abs=1e-5)


def test_a_vector_with_a_text_is_used_by_dense_retrieval_only(client: Client, library: str) -> None:
    vector = vector_of(TEXTS["cats"])
    result = client.search(library, "E-4711", vector=vector, limit=50)
    by_name = {passage.chunk.document_id: passage for passage in result.passages}
    assert by_name["cats"].dense_score == pytest.approx(1, abs=COSINE_TOLERANCE)
    assert by_name["cats"].lexical_score == 0
    assert highlights(by_name["code"]) == ["E-4711"]
    dense = client.search(library, "E-4711", vector=vector, retrieval=Retrieval.DENSE)
    alone = client.search(library, vector)
    assert dense.passages == alone.passages
    assert dense.retrieval is alone.retrieval is Retrieval.DENSE


# In these tests, queries have required terms and phrases.


@pytest.mark.parametrize("mode", _MODES)
@pytest.mark.parametrize("retrieval", Retrieval)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('why +"access denied"', {"denied"}),
        ('"ACCESS   denied"', {"denied"}),
        ("what does +E-4711 mean?", {"code", "zh"}),
        ("+E-4711 +门", {"zh"}),
        ('+cats "no such words"', set()),
    ],
)
def test_required_terms_and_phrases_are_in_every_passage(
    client: Client,
    library: str,
    retrieval: Retrieval,
    mode: SearchMode,
    text: str,
    expected: set[str],
) -> None:
    result = client.search(library, text, retrieval=retrieval, mode=mode, limit=50)
    assert set(names(result)) == expected
    assert result.exhausted
    with_vector = client.search(
        library, text, vector=vector_of("x"), retrieval=retrieval, mode=mode, limit=50
    )
    assert set(names(with_vector)) == expected


def test_required_phrases_are_in_every_window(client: Client, library: str) -> None:
    result = client.search(library, '"access denied"', mode=SearchMode.SENTENCE_WINDOW)
    assert names(result) == ["denied"]


# These tests limit passages by score and per document.


@pytest.mark.parametrize("retrieval", Retrieval)
@pytest.mark.parametrize("mode", _MODES)
def test_passages_below_the_minimum_score_are_left_out(
    client: Client, library: str, retrieval: Retrieval, mode: SearchMode
) -> None:
    options: dict[str, Any] = {"retrieval": retrieval, "mode": mode, "limit": 50}
    everything = client.search(library, "the open door to a key", **options).passages
    assert len(everything) > 2
    bound = everything[1].score
    result = client.search(library, "the open door to a key", min_score=bound, **options)
    assert result.passages == tuple(passage for passage in everything if passage.score >= bound)
    assert result.exhausted


@pytest.mark.parametrize("mode", [SearchMode.STANDARD, SearchMode.SMALL_TO_BIG])
def test_no_document_has_more_passages_than_allowed(
    client: Client, library: str, mode: SearchMode
) -> None:
    long = "".join(f"Key number {number} opens a door. " for number in range(600))
    client.ingest(library, Document(long, "long"))
    options: dict[str, Any] = {"mode": mode, "return_level": None if mode.name == "STANDARD" else 1}
    free = client.search(library, "which key opens the door?", limit=20, **options)
    assert names(free).count("long") > 2
    bounded = client.search(
        library, "which key opens the door?", limit=20, max_per_document=2, **options
    )
    assert sorted(names(bounded)) == sorted([*TEXTS, "long", "long"])
    expected = [passage for passage in free.passages if passage.chunk.document_id == "long"][:2]
    assert [
        passage for passage in bounded.passages if passage.chunk.document_id == "long"
    ] == expected


# These tests check the mode CONTEXT and citations.


@pytest.fixture
def handbook(client: Client, tenant: str) -> str:
    """A tenant with a document of many leaves in sections; every other section is about keys."""
    sections = "".join(
        f"# Part {number}\n\n"
        + "".join(
            f"The {'key' if number % 2 else 'lamp'} of room {number} has sign {number * 7 + n}. "
            for n in range(12)
        )
        + "\n\n"
        for number in range(40)
    )
    settings = SettingsRequest(level_sizes=(64, 256), overlap_ratio=0.1)
    client.create_collection(tenant, "default", settings)
    client.ingest(tenant, Document(sections, "handbook", mime_type=MARKDOWN))
    return tenant


def spans_of(result: SearchResult) -> list[tuple[int, int]]:
    spans = [passage.chunk.span for passage in result.passages]
    return sorted((span.char_start, span.char_end) for span in spans)


def test_a_context_fills_its_budget_and_repeats_nothing(client: Client, handbook: str) -> None:
    text = client.get_text(handbook, "handbook")
    covered: set[int] = set()
    for budget in (100, 400, 1600, 0):
        result = client.search(
            handbook, "keys of room 7", mode=SearchMode.CONTEXT, token_budget=budget
        )
        assert (result.mode, result.retrieval) == (SearchMode.CONTEXT, Retrieval.HYBRID)
        tokens = sum(passage.chunk.token_count for passage in result.passages)
        assert (budget or 4096) * 0.8 < tokens <= (budget or 4096)
        spans = spans_of(result)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))
        for passage in result.passages:
            span = passage.chunk.span
            assert passage.chunk.content == text[span.char_start : span.char_end]
            assert passage.chunk.content.rstrip().endswith(".")
        now = {place for start, end in spans for place in range(start, end)}
        assert covered <= now, "a larger budget keeps the text of a smaller budget"
        covered = now


def test_a_context_may_also_have_a_limit(client: Client, handbook: str) -> None:
    options: dict[str, Any] = {"mode": SearchMode.CONTEXT, "neighbour_bonus": 0.0}
    result = client.search(handbook, "keys of room 7", limit=2, **options)
    assert len(result.passages) == 2
    free = client.search(handbook, "keys of room 7", **options)
    assert len(free.passages) > 2


@pytest.mark.parametrize("mode", _MODES)
def test_a_citation_names_section_and_pages_of_the_sentence(
    client: Client, tenant: str, mode: SearchMode
) -> None:
    """The documents are Markdown, PDFs and lists of pages. Modes return passages of all sizes."""
    ids = [f"d{number}" for number in range(len(CASES))]
    pairs = zip(ids, CASES, strict=True)
    list(client.ingest_many(tenant, (replace(c.document, document_id=name) for name, c in pairs)))
    queries = [
        SearchQuery(
            tenant,
            case.query,
            mode=mode,
            retrieval=Retrieval.LEXICAL,
            filter=Match("document_id", (name,)),
        )
        for name, case in zip(ids, CASES, strict=True)
    ]
    citations = {}
    for name, case, result in zip(ids, CASES, client.batch_search(queries), strict=True):
        assert isinstance(result, SearchResult)
        cited = result.passages[0].matched_sentence
        assert cited is not None
        sentence = client.get_text(tenant, name)[cited.span.char_start : cited.span.char_end]
        pages = (cited.first_page, cited.last_page)
        citations[case.name] = (sentence, cited.section_path, pages)
    assert citations == {
        case.name: (case.sentence, case.section_path, case.pages) for case in CASES
    }


# These tests use collections with special settings.


def test_a_collection_without_vectors_is_searched_by_words(client: Client, tenant: str) -> None:
    collection = client.create_collection(tenant, "c", SettingsRequest(embedder="none"))
    assert (collection.settings.embedder, collection.settings.dimension) == ("none", 0)
    for name, text in TEXTS.items():
        client.ingest(tenant, Document(text, name), collection="c")
    assert client.index_status(tenant, collection="c").vector_bytes == 0
    for retrieval in (None, Retrieval.LEXICAL, Retrieval.HYBRID):
        result = client.search(tenant, "sleeping cats", collection="c", retrieval=retrieval)
        assert (result.retrieval, result.fallback) == (Retrieval.LEXICAL, "")
        assert names(result) == ["cats"]
    for mode in (SearchMode.CONTEXT, SearchMode.SENTENCE_WINDOW):
        result = client.search(tenant, "cats", collection="c", mode=mode)
        assert result.passages[0].chunk.content == TEXTS["cats"]
    wrong: list[tuple[Any, dict[str, Any]]] = [
        ("cats", {"retrieval": Retrieval.DENSE}),
        ([1.0] * 64, {}),
    ]
    for query, options in wrong:
        with pytest.raises(errors.NoVectors, match="no vectors"):
            client.search(tenant, query, collection="c", **options)


@pytest.mark.parametrize(
    ("settings", "field", "words"),
    [
        (
            SettingsRequest(embedder="other"),
            "embedder",
            "'hash/64', this indexer's embedder, or 'none'",
        ),
        (SettingsRequest(analyzer="klingon"), "analyzer", "german"),
        (SettingsRequest(analyzer="german/1"), "analyzer", "german"),
        (
            SettingsRequest(embedder="none", summaries=SummaryUnit.PAGE),
            "summaries",
            "without vectors",
        ),
    ],
)
def test_invalid_settings_create_no_collection(
    client: Client, tenant: str, settings: SettingsRequest, field: str, words: str
) -> None:
    with pytest.raises(errors.InvalidArgument, match=words) as caught:
        client.create_collection(tenant, "c", settings)
    assert caught.value.field == field


def test_words_are_stemmed_in_the_language_of_the_collection(client: Client, tenant: str) -> None:
    results = {}
    for language in ("german", "simple"):
        collection = client.create_collection(tenant, language, SettingsRequest(analyzer=language))
        assert collection.settings.analyzer == analyzer_name(language)
        client.ingest(tenant, Document("Die Häuser am Fluss sind alt.", "d"), collection=language)
        options: dict[str, Any] = {"collection": language, "retrieval": Retrieval.LEXICAL}
        results[language] = client.search(tenant, "altes Haus", **options)
    assert [highlights(passage) for passage in results["german"].passages] == [["Häuser", "alt"]]
    assert results["simple"].passages == ()


def test_a_leaf_is_found_by_its_title_and_section_unless_they_are_not_indexed(
    client: Client, tenant: str
) -> None:
    document = Document("# Valves\n\nTen bar.", "d", title="Pumps", mime_type=MARKDOWN)
    for name, headings in (("with", None), ("without", False)):
        client.create_collection(tenant, name, SettingsRequest(index_headings=headings))
        client.ingest(tenant, document, collection=name)
        options: dict[str, Any] = {"collection": name, "retrieval": Retrieval.LEXICAL}
        (passage,) = client.search(tenant, "valves", **options).passages
        assert passage.chunk.content == "# Valves\n\nTen bar."
        assert len(client.search(tenant, "pumps", **options).passages) == (headings is None)


# This test sends a batch of searches.


def test_each_search_of_a_batch_has_a_separate_result_or_error(
    client: Client, library: str
) -> None:
    client.create_collection(library, "words", SettingsRequest(embedder="none"))
    queries = [
        SearchQuery(library, "sleeping cats", retrieval=Retrieval.LEXICAL),
        SearchQuery(library, "sleeping cats", collection="words", retrieval=Retrieval.DENSE),
        SearchQuery(library, "sleeping cats", lexical_weight=2.0),
        SearchQuery(library, "cats", retrieval=Retrieval.DENSE, mode=SearchMode.CONTEXT),
        SearchQuery(library, vector_of("x"), retrieval=Retrieval.LEXICAL),
        SearchQuery(library, "+door +window"),
    ]
    lexical, without, weight, context, vector, nothing = client.batch_search(queries)
    assert isinstance(lexical, SearchResult)
    assert names(lexical) == ["cats"]
    assert isinstance(without, errors.NoVectors)
    assert isinstance(weight, errors.InvalidArgument)
    assert weight.field == "lexical_weight"
    assert isinstance(context, SearchResult)
    assert (context.mode, context.retrieval) == (SearchMode.CONTEXT, Retrieval.DENSE)
    assert isinstance(vector, errors.InvalidArgument)
    assert isinstance(nothing, SearchResult)
    assert (nothing.passages, nothing.exhausted) == ((), True)


# In this test, services have no embedder.


@pytest.fixture(scope="module")
def without_embedder(
    tmp_path_factory: pytest.TempPathFactory, _no_settings_from_outside: None
) -> Iterator[Running]:
    folder: Path = tmp_path_factory.mktemp("none") / "store"
    with running(folder, {**FAST, "HRAG_EMBEDDER": "none", "HRAG_ANALYZER": "german"}) as both:
        yield both


def test_a_service_without_an_embedder_creates_collections_without_vectors(
    without_embedder: Running, tenant: str
) -> None:
    client = without_embedder.client
    client.ingest(tenant, Document("Die Häuser am Fluss.", "d"))
    settings = client.get_collection(tenant, "default").settings
    german = analyzer_name("german")
    assert (settings.embedder, settings.dimension, settings.analyzer) == ("none", 0, german)
    result = client.search(tenant, "Haus")
    assert (result.retrieval, result.fallback, names(result)) == (Retrieval.LEXICAL, "", ["d"])
    assert client.server_info().embedder == "none"
    with pytest.raises(errors.NoVectors):
        client.search(tenant, "Haus", retrieval=Retrieval.DENSE)
