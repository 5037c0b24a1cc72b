"""Every storage engine keeps these promises about summaries and searches by summaries."""

from dataclasses import replace

import pytest

from hrag.engine import Fusion
from hrag.engine.engine_documents import NO_VERSION, DocumentSummaries
from hrag.errors import NoSummaries
from hrag.filters import Match
from hrag.types import (
    FusionMethod,
    Retrieval,
    SearchMode,
    SummaryScope,
    SummaryUnit,
    TreeSettings,
)
from hrag.values.tree import PageSpan, ParsedText, Section
from tests.support.documents.fakes import (
    SMALL_TREE,
    collection_settings,
    find,
    matched_leaves,
    prepared,
    query_vector,
    sentences,
    unit_vectors,
)
from tests.support.engines.summary_model import EMBEDDER, ModelSummaries, places_in, summarise

ALL = 1000
# Summarising these documents yields no summary.
UNSUMMARISED = frozenset({"d3"})


@pytest.fixture
def opened(opened):
    """An engine with a collection whose documents get summaries."""
    settings = collection_settings(summaries=SummaryUnit.CHUNK)
    opened.model.settings = settings
    opened.writer.create_collection("t", "c", settings)
    return opened


@pytest.fixture
def filled(opened):
    """An engine with ten documents, which are summarised; `d3` got no summary."""
    opened.summaries = ModelSummaries(opened.model)
    documents = [
        prepared(f"d{n}", sentences(4 * n + 4, n), seed=n, metadata={"n": n}) for n in range(10)
    ]
    opened.fill(*documents[:5])
    assert summarise(opened.writer, opened.summaries, empty=UNSUMMARISED) == 5
    opened.fill(*documents[5:])
    assert summarise(opened.writer, opened.summaries, empty=UNSUMMARISED) == 5
    if opened.state == "sealed":
        opened.index("t", "c")
    return opened


def by_summaries(opened, query, top, scope=SummaryScope.SECTIONS, limit=ALL, **options):
    """Searches for leaves within the best `top` sections; returns the result."""
    options |= {"mode": SearchMode.SUMMARY_FIRST, "top_sections": top, "summary_scope": scope}
    with opened.snapshot(summaries=True) as snapshot:
        return find(snapshot, query, limit, **options)


def spans(model, sections):
    """Returns, for each section, its document id, its first character and its end."""
    level = model.settings.tree.embedding_level
    result = []
    for document_id, section in sections:
        tree = model.documents[document_id].tree
        first, last = tree.record(level, section[0]), tree.record(level, section[-1])
        result.append((document_id, first.char_start, last.char_end))
    return result


@pytest.mark.parametrize("scope", list(SummaryScope))
@pytest.mark.parametrize("count", [1, 3, 20, ALL])
def test_a_search_by_summaries_searches_only_the_best_sections(filled, scope, count):
    summaries = filled.summaries
    for seed in range(5):
        query = query_vector(seed)
        best = summaries.best(query, count, scope)
        result = by_summaries(filled, query, count, scope)
        assert places_in(result.sections) == spans(filled.model, best)[:100]
        expected = summaries.leaves(query, best)
        assert result.eligible_leaves == result.considered == len(expected)
        assert (result.exact, result.exhausted) == (True, True)
        assert matched_leaves(result.passages) == pytest.approx(expected, abs=1e-5)


def test_a_search_for_fewer_sections_returns_the_first_ones_of_a_search_for_more(filled):
    """The test uses hybrid searches, which are the hard case.

    A section may have the best fused score, and be the best neither by words nor by vectors.
    """
    for seed in range(8):
        words = {"text": sentences(1, seed), "retrieval": Retrieval.HYBRID}
        more = by_summaries(filled, query_vector(seed), 12, **words).sections
        for count in (1, 2, 5):
            fewer = by_summaries(filled, query_vector(seed), count, **words).sections
            assert fewer == more[:count]


@pytest.mark.parametrize("scope", list(SummaryScope))
def test_if_no_number_of_sections_is_set_their_scores_decide(filled, scope):
    """At most three tenths of the leaves are eligible, or one section."""
    summaries, counts = filled.summaries, set()
    for seed in range(6):
        query = query_vector(seed)
        best = summaries.near_the_best(query, scope)
        leaf_count = filled.model.leaf_count
        while len(best) > 1 and sum(len(leaves) for _, leaves in best) > 0.3 * leaf_count:
            best.pop()
        result = by_summaries(filled, query, 0, scope)
        assert places_in(result.sections) == spans(filled.model, best)
        assert result.eligible_leaves == sum(len(leaves) for _, leaves in best)
        assert matched_leaves(result.passages) == pytest.approx(
            summaries.leaves(query, best), abs=1e-5
        )
        counts.add(len(best))
    assert len(counts) > 1


def test_a_response_lists_no_more_sections_than_the_limit_unless_their_number_is_set(filled):
    query = query_vector(5)
    every = by_summaries(filled, query, ALL).sections
    one = by_summaries(filled, query, 0, limit=1, candidates=ALL)
    assert one.sections == every[:1]
    assert by_summaries(filled, query, 3, limit=1, candidates=ALL).sections == every[:3]


def by_words(opened, seed, top=ALL, **options):
    """Searches for words and a vector within the best `top` sections; returns the result."""
    options = {"text": sentences(1, seed), "retrieval": Retrieval.HYBRID, **options}
    return by_summaries(opened, query_vector(seed), top, **options)


@pytest.mark.parametrize("retrieval", list(Retrieval))
def test_each_leaf_of_a_document_gets_the_same_share_of_its_score(filled, retrieval):
    for seed in range(2):
        result = by_words(filled, seed, retrieval=retrieval)
        options = {"text": sentences(1, seed), "retrieval": retrieval}
        with filled.snapshot(summaries=True) as snapshot:
            scores = matched_leaves(find(snapshot, query_vector(seed), ALL, **options).passages)
        shares = {}
        for (name, leaf), score in matched_leaves(result.passages).items():
            share = score - scores[name, leaf]
            assert share == pytest.approx(shares.setdefault(name, share), abs=1e-5)
        assert len(set(shares.values())) > 1
        best = [passage.score for passage in result.passages]
        assert best == sorted(best, reverse=True)


def test_ranks_decide_documents_too_if_they_are_fused(filled):
    """Reciprocal ranks are at most 1 / 61, so scores must not contain a lexical score of up to 1.

    A leaf and its share of the document are at most 1 / 61 times 1 + (1 + 1/4) / 4.
    """
    fusion = Fusion(FusionMethod.RECIPROCAL_RANK)
    for seed in range(2):
        result = by_words(filled, seed, fusion=fusion)
        assert max(matched_leaves(result.passages).values()) <= 1.3125 / 61 + 1e-6
        assert max(section.score for section in result.sections) <= 1.4125 / 61 + 1e-6
        assert len(by_words(filled, seed, 0, fusion=fusion).sections) >= 1


def test_a_lowest_score_is_compared_with_the_documents_share(filled):
    for seed in range(3):
        whole = by_words(filled, seed, 5).passages
        least = whole[len(whole) // 2].score
        expected = [passage for passage in whole if passage.score >= least]
        assert list(by_words(filled, seed, 5, min_score=least).passages) == expected
        assert by_words(filled, seed, 5, min_score=whole[0].score + 0.01).passages == ()


@pytest.mark.parametrize("top", [0, 3, ALL])
@pytest.mark.parametrize("scope", list(SummaryScope))
def test_a_filter_leaves_only_its_documents_to_rank(filled, scope, top):
    """Documents that do not pass change nothing, except the count of leaves for the cap."""
    filter = Match("metadata.n", (1.0, 4.0, 8.0, 9.0))
    for seed in range(3):
        query = query_vector(seed)
        result = by_summaries(filled, query, top, scope, filter=filter)
        best = filled.summaries.near_the_best(query, scope, filter)
        if top:
            best = filled.summaries.best(query, top, scope, filter)
        while not top and sum(len(x) for _, x in best) > 0.3 * filled.model.leaf_count:
            best.pop()
        expected = filled.summaries.leaves(query, best)
        assert matched_leaves(result.passages) == pytest.approx(expected, abs=1e-5)


def test_equal_sections_are_ordered_by_their_summaries(opened):
    """Documents with the same text and vectors have equal scores; the older one comes first."""
    documents = [prepared(f"d{n}", sentences(9), metadata={}) for n in (2, 1, 3)]
    opened.fill(*documents)
    summarise(opened.writer, ModelSummaries(opened.model))
    for scope in SummaryScope:
        sections = by_summaries(opened, query_vector(1), ALL, scope).sections
        scores = [(section.score, section.span.char_start) for section in sections]
        best = sorted(scores, key=lambda pair: -pair[0])
        assert [score for score, _ in scores] == [score for score, _ in best]
        first = [x.document_id for x in sections if x.span == sections[0].span]
        assert first == ["d2", "d1", "d3"]


@pytest.mark.parametrize("level", [1, 2])
def test_a_search_by_summaries_climbs_from_the_leaves_of_the_sections(filled, level):
    query = query_vector(3)
    result = by_summaries(filled, query, 4, level=level)
    best = filled.summaries.best(query, 4, SummaryScope.SECTIONS)
    assert {passage.chunk.level for passage in result.passages} == {level}
    assert matched_leaves(result.passages).keys() == filled.summaries.leaves(query, best).keys()


@pytest.mark.parametrize("limit", [1, 5])
def test_a_search_by_summaries_returns_the_nearest_leaves_of_the_sections(filled, limit):
    query = query_vector(9)
    leaves = matched_leaves(by_summaries(filled, query, 6, limit=limit, candidates=ALL).passages)
    best = filled.summaries.best(query, 6, SummaryScope.SECTIONS)
    scores = sorted(filled.summaries.leaves(query, best).values(), reverse=True)
    assert sorted(leaves.values(), reverse=True) == pytest.approx(scores[:limit], abs=1e-5)


@pytest.mark.parametrize("scope", list(SummaryScope))
def test_a_filter_applies_to_summaries(filled, scope):
    filter = Match("metadata.n", (2.0, 5.0, 7.0))
    query = query_vector(4)
    for count in (1, 4, ALL):
        result = by_summaries(filled, query, count, scope, filter=filter)
        best = filled.summaries.best(query, count, scope, filter)
        expected = filled.summaries.leaves(query, best)
        assert matched_leaves(result.passages).keys() == expected.keys()
        assert {name for name, _, _ in result.stages} == {"filter", "search", "climb", "fetch"}


def test_other_modes_search_all_leaves(filled):
    query = query_vector(1)
    with filled.snapshot(summaries=True) as snapshot:
        by_summaries(filled, query, 1)
        result = find(snapshot, query, ALL)
    assert (result.sections, result.eligible_leaves) == ((), filled.model.leaf_count)
    assert len(matched_leaves(result.passages)) == filled.model.leaf_count


def test_summaries_are_deleted_with_their_document(filled):
    writer, collection = filled.writer, filled.collection
    filled.delete("d9")
    filled.summaries.forget("d9")
    changed = prepared("d8", sentences(12, 80), seed=80)
    writer.put(collection, changed)
    filled.model.put(changed)
    filled.summaries.forget("d8")
    query = query_vector(2)
    for unsummarised in (1, 0):
        assert writer.status(collection).unsummarised_documents == unsummarised
        leaves = matched_leaves(by_summaries(filled, query, ALL).passages)
        expected = filled.summaries.leaves(query, filled.summaries.all())
        assert leaves.keys() == expected.keys()
        summarise(writer, filled.summaries)
    assert any(document_id == "d8" for document_id, _ in expected)


def test_a_returned_section_has_its_summary_score_and_span(opened):
    text = "".join(f"Sentence {n} tells a short story. " for n in range(40))
    parsed = ParsedText(
        text,
        (Section("One", 1, 0), Section("Two", 2, 700)),
        (PageSpan(3, 0, 600), PageSpan(4, 600, len(text))),
    )
    opened.fill(prepared("d", parsed, opened.model.settings))
    summaries = ModelSummaries(opened.model)
    summarise(opened.writer, summaries)
    query = query_vector(1)
    sections = by_summaries(opened, query, ALL).sections
    best = summaries.best(query, ALL, SummaryScope.SECTIONS)
    assert len(best) > 1
    for section, (_, leaves) in zip(sections, best, strict=True):
        index = summaries.sections["d"].index(leaves)
        assert section.summary == f"Summary {index + 1} of d"
        assert section.score == pytest.approx(summaries.score(query, ("d", leaves)), abs=1e-5)
        assert section.title == "Title of d"
        span = section.span
        content = text[span.char_start : span.char_end].encode()
        assert content == text.encode()[span.byte_start : span.byte_end]
        assert section.first_page == (3 if span.char_start < 600 else 4)
        assert section.last_page == (3 if span.char_end <= 600 else 4)
        leaf = opened.model.documents["d"].tree.record(0, leaves[0])
        assert section.section_path == (("One",), ("One", "Two"))[leaf.section]


# Tests of writing summaries.


def test_each_document_is_returned_for_summarising_until_it_is_summarised(opened):
    documents = {f"d{n}": prepared(f"d{n}", sentences(9, n), seed=n) for n in range(3)}
    opened.fill(*documents.values())
    summarised = []
    while document := opened.writer.next_unsummarised(EMBEDDER):
        stored = documents[document.document_id]
        assert document.parsed == stored.parsed
        assert document.tree.to_bytes() == stored.tree.to_bytes()
        assert document.title == stored.title
        assert document.collection.settings == opened.model.settings
        assert document.spent_tokens == 7 * len(summarised)
        status = opened.writer.status(opened.collection)
        assert status.unsummarised_documents == 3 - len(summarised)
        summarise(opened.writer, ModelSummaries(opened.model), 1)
        summarised.append(document.document_id)
    assert sorted(summarised) == sorted(documents)
    status = opened.writer.status(opened.collection)
    assert (status.unsummarised_documents, status.summary_tokens) == (0, 21)
    assert status.document_count == 3


def test_a_document_that_gets_no_summary_does_not_wait_any_longer(opened):
    opened.fill(prepared("d", sentences(9)))
    summarise(opened.writer, ModelSummaries(opened.model), empty=frozenset({"d"}))
    status = opened.writer.status(opened.collection)
    assert (status.summary_count, status.unsummarised_documents) == (0, 0)
    result = by_summaries(opened, query_vector(0), 3, SummaryScope.DOCUMENTS)
    assert (result.eligible_leaves, result.sections, result.passages) == (0, (), ())
    assert (result.exact, result.exhausted) == (True, True)


def test_next_unsummarised_skips_excluded_documents_and_those_of_other_embedders(opened):
    opened.fill(*(prepared(f"d{n}", sentences(9, n), seed=n) for n in range(3)))
    writer, excluded = opened.writer, []
    for _ in range(3):
        excluded.append(writer.next_unsummarised(EMBEDDER, None, excluded).version)
    assert len(set(excluded)) == 3
    assert writer.next_unsummarised(EMBEDDER, None, excluded) is None
    assert writer.next_unsummarised("another/embedder") is None


def test_documents_of_different_collections_are_summarised_in_turn(opened):
    other = replace(opened.model.settings, tree=TreeSettings((32,)))
    opened.writer.create_collection("t2", "c", other)
    opened.fill(*(prepared(f"d{n}", sentences(9, n), seed=n) for n in range(2)))
    handle = opened.writer.open("t2", "c")
    opened.writer.put_many([(handle, prepared(f"e{n}", sentences(9, n), other)) for n in range(2)])
    initials, last = [], None
    while document := opened.writer.next_unsummarised(EMBEDDER, last):
        initials.append(document.document_id[0])
        last = document.collection
        no_vectors = unit_vectors(0, 0)
        assert opened.writer.put_summaries(document, DocumentSummaries((), no_vectors))
    assert initials == ["d", "e", "d", "e"]


@pytest.mark.parametrize("event", ["changed", "deleted", "dropped", "recreated", "summarised"])
def test_summaries_of_an_old_version_are_not_stored(opened, event):
    writer, collection = opened.writer, opened.collection
    opened.fill(prepared("d", sentences(9)))
    document = writer.next_unsummarised(EMBEDDER)
    if event == "changed":
        writer.put(collection, prepared("d", sentences(10)))
    elif event == "deleted":
        writer.delete(collection, "d")
    elif event == "summarised":
        summarise(writer, ModelSummaries(opened.model))
    else:
        writer.delete_collection("t", "c")
    if event == "recreated":
        writer.create_collection("t", "c", opened.model.settings)
        writer.put(opened.collection, prepared("d", sentences(9)))
    assert not writer.put_summaries(document, DocumentSummaries((), unit_vectors(0, 0)), 5)
    if event != "dropped":
        status = writer.status(opened.collection)
        assert status.unsummarised_documents == (event in ("changed", "recreated"))
        assert status.summary_tokens == {"summarised": 12, "recreated": 0}.get(event, 5)


def test_tokens_are_counted_even_if_no_summary_is_stored(opened):
    writer, collection = opened.writer, opened.collection
    opened.fill(prepared("d", sentences(9)))
    no_version = replace(writer.next_unsummarised(EMBEDDER), version=NO_VERSION)
    for count in (1, 2):
        assert not writer.put_summaries(no_version, DocumentSummaries((), unit_vectors(0, 0)), 5)
        status = writer.status(collection)
        assert (status.unsummarised_documents, status.summary_tokens) == (1, 5 * count)
    assert writer.next_unsummarised(EMBEDDER).spent_tokens == 10


def test_a_document_that_is_put_again_unchanged_keeps_its_summaries(filled):
    before = filled.writer.status(filled.collection)
    filled.writer.put(filled.collection, filled.model.documents["d4"])
    assert filled.writer.status(filled.collection) == before
    assert before.summary_count == sum(map(len, filled.summaries.vectors.values()))


def test_a_collection_without_summaries_waits_for_none_and_refuses_searches_by_them(opened):
    opened.writer.create_collection("t", "plain", collection_settings(SMALL_TREE))
    opened.writer.put(opened.writer.open("t", "plain"), prepared("d", sentences(9)))
    assert opened.writer.next_unsummarised(EMBEDDER) is None
    with (
        pytest.raises(NoSummaries, match="HRAG_SUMMARIES"),
        opened.snapshot("t", "plain", summaries=True),
    ):
        pass


def test_the_summaries_of_a_deleted_collection_are_deleted(filled):
    filled.writer.delete_collection("t", "c")
    filled.writer.create_collection("t", "c", filled.model.settings)
    assert filled.writer.status(filled.collection).summary_count == 0
    assert by_summaries(filled, query_vector(0), 3).eligible_leaves == 0
