"""Every storage engine keeps these promises about lexical and hybrid searches."""

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from hrag.engine.find import FindResult, Fusion
from hrag.filters import Match
from hrag.text.analysis import analyzer
from hrag.types import (
    NO_EMBEDDER,
    FusionMethod,
    Passage,
    Retrieval,
    SearchMode,
    SummaryUnit,
)
from tests.support.documents.fakes import (
    ANALYZER,
    SCORE_TOLERANCE,
    Leaf,
    collection_settings,
    find,
    matched_leaves,
    prepared,
    query_vector,
    sentences,
    unit_vectors,
)
from tests.support.documents.vocabulary import wordy

EVERYTHING = 1000
TOP = 2
WORDLESS = collection_settings(analyzer="")
VECTORLESS = collection_settings(dimension=0)
HEADINGLESS = replace(collection_settings(), index_headings=False)


@pytest.fixture
def filled(opened):
    """An engine with ten documents of the same vocabulary, and a document with rare words."""
    opened.create()
    documents = [wordy(f"d{n}", n, sentences=4 + 2 * n, metadata={"n": n}) for n in range(10)]
    rare = "An error with the code E-9999 was seen. Call Mme. Dupont-Martin of the repair shop."
    opened.fill(*documents[:5], prepared("rare", rare), *documents[5:])
    return opened


def by_words(
    snapshot: Any, text: str, count: int = EVERYTHING, **options: Any
) -> FindResult[Passage]:
    """Returns the best leaves of a lexical search."""
    options = {"mode": SearchMode.STANDARD} | options
    return find(snapshot, None, count, text=text, retrieval=Retrieval.LEXICAL, **options)


def by_both(
    snapshot: Any, text: str, count: int = EVERYTHING, **options: Any
) -> FindResult[Passage]:
    """Returns the best leaves of a hybrid search."""
    options = {"mode": SearchMode.STANDARD} | options
    vector = query_vector(1, snapshot.settings.dimension)
    return find(snapshot, vector, count, text=text, retrieval=Retrieval.HYBRID, **options)


def scores(result: FindResult[Passage]) -> dict[Leaf, float]:
    return matched_leaves(result.passages)


# Tests of lexical searches.


def test_a_leaf_with_more_and_rarer_words_of_the_query_comes_first(filled):
    with filled.snapshot() as snapshot:
        for text in ("What does E-9999 mean?", "the dupont", "E-9999 valve pump water"):
            for search in (by_words, by_both):
                best = search(snapshot, text, 3, fusion=Fusion(lexical_weight=0.9)).passages[0]
                assert best.chunk.document_id == "rare"
                assert best.lexical_score > 0


def test_only_leaves_with_a_word_of_the_query_are_found(filled):
    """Words of the query are stemmed. Stop words are ignored if the query has other words."""
    query_terms = set(analyzer(ANALYZER).terms("pumps boilers").tolist())
    expected = set()
    for name, document in filled.model.documents.items():
        leaves = document.tree.level(0)
        for index in range(len(leaves)):
            start, end = int(leaves["char_start"][index]), int(leaves["char_end"][index])
            sections = [s.title for s in document.parsed.sections if s.char_start <= start]
            heading = f"{document.title} {' '.join(sections[-2:])} {document.source}"
            text = f"{heading} {document.parsed.text[start:end]}"
            if query_terms & set(analyzer(ANALYZER).terms(text).tolist()):
                expected.add((name, index))
    with filled.snapshot() as snapshot:
        result = by_words(snapshot, "the pumps of a boiler")
        leaves = scores(result)
        assert (result.exact, result.exhausted) == (True, True)
        assert result.considered == len(leaves) < result.eligible_leaves == filled.model.leaf_count
        assert all(0 < score <= 1 for score in leaves.values())
        empty = by_words(snapshot, "nonesuch")
    assert leaves.keys() <= expected
    # Some expected leaves have a preceding heading that is not in their section path.
    assert len(leaves) > len(expected) / 2
    assert (empty.passages, empty.considered, empty.exhausted) == ((), 0, True)


def test_lexical_scores_are_bm25_scores(opened):
    """A score is divided by the largest possible score of the query.

    The largest possible score includes words of the query that no leaf contains.
    """
    opened.model.settings = HEADINGLESS
    opened.create()
    texts = {"a": "red fish swim", "b": "red red red house with some blue window", "c": "blue"}
    opened.fill(*(prepared(name, text, HEADINGLESS) for name, text in texts.items()))
    words = {name: Counter(text.split()) for name, text in texts.items()}
    mean = sum(counts.total() for counts in words.values()) / 3
    for query in (["red"], ["red", "blue"], ["red", "nonesuch"], ["swim", "fish", "blue"]):
        idf = {}
        for word in query:
            frequency = sum(word in counts for counts in words.values())
            idf[word] = math.log(1 + (3 - frequency + 0.5) / (frequency + 0.5))
        expected = {}
        for name, counts in words.items():
            norm = 1.2 * (0.25 + 0.75 * counts.total() / mean)
            score = sum(idf[word] * counts[word] / (counts[word] + norm) for word in query)
            if score:
                expected[name, 0] = score / sum(idf.values())
        with opened.snapshot() as snapshot:
            leaves = scores(by_words(snapshot, " ".join(query)))
        assert leaves == pytest.approx(expected, abs=SCORE_TOLERANCE)


def test_headings_are_searched_but_not_marked(opened):
    """If a collection indexes headings, a search finds leaves by the title of their document."""
    for name, settings, count in (("c", collection_settings(), 1), ("c2", HEADINGLESS, 0)):
        opened.writer.create_collection("t", name, settings)
        document = replace(prepared("d", "Some text.", settings), title="Of Giraffes")
        opened.writer.put(opened.writer.open("t", name), document)
        if opened.state == "sealed":
            opened.index("t", name)
        with opened.snapshot(name=name) as snapshot:
            passages = by_words(snapshot, "giraffe").passages
            assert len(passages) == count
            assert [passage.term_spans for passage in passages] == [()] * count


def test_passages_mark_the_words_of_the_query(filled):
    with filled.snapshot() as snapshot:
        passages = by_words(snapshot, "pumping E-9999 water", mode=SearchMode.SMALL_TO_BIG).passages
        dense = find(snapshot, query_vector(0), 3, text="water").passages
    marked = set()
    for passage in passages:
        text = filled.model.documents[passage.chunk.document_id].parsed.text
        end = passage.chunk.span.char_start
        for span in passage.term_spans:
            assert end <= span.char_start < span.char_end <= passage.chunk.span.char_end
            end = span.char_end
            marked.add(text[span.char_start : span.char_end].lower())
        cited, whole = passage.matched_sentence.span, passage.chunk.span
        assert cited.char_start < whole.char_end
        assert whole.char_start < cited.char_end
    assert marked == {"pump", "water", "e-9999", "e"}  # "e" is a part of E-4711.
    assert [passage.term_spans for passage in dense] == [()] * 3


# Tests of hybrid searches.


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_a_fused_score_is_the_weighted_sum_of_both_scores(filled, weight):
    """Leaves that are found only by words also get a cosine. Leaves that are found only by their
    vectors also get a lexical score.
    """
    fusion = Fusion(lexical_weight=weight, lowest_cosine=-0.25)
    with filled.snapshot() as snapshot:
        lexical = scores(by_words(snapshot, "water pump"))
        result = by_both(snapshot, "water pump", 10, fusion=fusion)
        cosines = filled.model.scores(query_vector(1))
    nearest = sorted(cosines, key=lambda leaf: -cosines[leaf])[:10]
    candidates = {*nearest, *sorted(lexical, key=lambda leaf: -lexical[leaf])[:10]}
    assert result.considered == len(candidates)
    expected = {
        leaf: weight * lexical.get(leaf, 0.0) + (1 - weight) * (cosines[leaf] + 0.25) / 1.25
        for leaf in candidates
    }
    best = sorted(expected.values(), reverse=True)[:10]
    assert [p.score for p in result.passages] == pytest.approx(best, abs=SCORE_TOLERANCE)
    for passage in result.passages:
        leaf = (passage.chunk.document_id, passage.chunk.index)
        (child,) = passage.matched_children
        assert passage.score == child.score == pytest.approx(expected[leaf], abs=SCORE_TOLERANCE)
        assert passage.dense_score == child.dense_score
        assert passage.dense_score == pytest.approx(cosines[leaf], abs=SCORE_TOLERANCE)
        assert passage.lexical_score == child.lexical_score
        assert passage.lexical_score == pytest.approx(lexical.get(leaf, 0.0), abs=SCORE_TOLERANCE)


def test_scores_can_be_fused_by_reciprocal_ranks(filled):
    fusion = Fusion(FusionMethod.RECIPROCAL_RANK, 0.5)
    with filled.snapshot() as snapshot:
        lexical = by_words(snapshot, "repair").passages
        both = scores(by_both(snapshot, "repair", 5, fusion=fusion))
    first = (lexical[0].chunk.document_id, lexical[0].chunk.index)
    assert both[first] >= 0.5 / 61 - SCORE_TOLERANCE
    assert max(both.values()) <= 1 / 61 + SCORE_TOLERANCE


def test_a_passage_has_no_score_of_a_source_that_was_not_searched(filled):
    with filled.snapshot() as snapshot:
        words = by_words(snapshot, "water", 3).passages
        vectors = find(snapshot, query_vector(1), 3, text="water").passages
    for passage in words:
        assert (passage.dense_score, passage.lexical_score) == (None, passage.score)
    for passage in vectors:
        assert (passage.dense_score, passage.lexical_score) == (passage.score, None)


def test_the_bonus_is_a_share_of_the_best_score_of_a_leaf_and_its_neighbours(filled):
    with filled.snapshot() as snapshot:
        plain = scores(by_both(snapshot, "steam gauge"))
        with_bonus = scores(by_both(snapshot, "steam gauge", neighbour_bonus=0.5))
    for (name, leaf), score in plain.items():
        near = [plain.get((name, other), score) for other in (leaf - 1, leaf, leaf + 1)]
        assert with_bonus[name, leaf] == pytest.approx(score + 0.5 * max(near), abs=SCORE_TOLERANCE)


# Tests of required parts and of filters.


@pytest.mark.parametrize("analyzer", [ANALYZER, ""])
def test_every_returned_leaf_contains_the_required_parts(opened, analyzer):
    settings = replace(HEADINGLESS, analyzer=analyzer)
    opened.model.settings = settings
    opened.create()
    texts = {
        "apart": "The pressure of the valve.",
        "inside": "A bivalve pressured.",
        "mail": "Write to a.b@example.org of 大水泵压力。",
        "phrase": "The valve pressure is low.",
        "upper": "VALVE\n PRESSURE, see E-4711.",
    }
    opened.fill(*(prepared(name, text, settings) for name, text in texts.items()))
    for required, expected in {
        ("valve pressure",): {"phrase", "upper"},
        ("Valve", "pressure"): {"apart", "phrase", "upper"},
        ("e-4711",): {"upper"},
        ("b@example",): {"mail"},
        ("水泵",): {"mail"},
        ("。",): {"mail"},
        ("valve", "nonesuch"): set(),
    }.items():
        for retrieval in Retrieval if analyzer else [Retrieval.DENSE]:
            vector = None if retrieval is Retrieval.LEXICAL else query_vector(3)
            options = {"text": " ".join(required), "required": required, "retrieval": retrieval}
            with opened.snapshot() as snapshot:
                result = find(snapshot, vector, EVERYTHING, **options)
            assert result.eligible_leaves == len(expected)
            if retrieval is not Retrieval.LEXICAL or required != ("。",):
                assert {name for name, _ in scores(result)} == expected


def test_a_required_phrase_must_be_in_the_heading_or_in_the_text_of_a_leaf(opened):
    """A phrase that begins in the heading and ends in the text is not found."""
    opened.create()
    opened.fill(replace(prepared("a", "Gamma delta."), title="Alpha beta"))
    for required, expected in {
        ("alpha beta",): 1,
        ("alpha", "gamma delta"): 1,
        ("beta gamma",): 0,
        ("beta alpha",): 0,
    }.items():
        with opened.snapshot() as snapshot:
            result = find(snapshot, query_vector(3), EVERYTHING, text="alpha", required=required)
        assert result.eligible_leaves == expected


def test_only_leaves_that_pass_the_filter_are_found(filled):
    filter = Match("metadata.n", (2.0, 7.0))
    passing = filled.model.filtered(filter)
    with filled.snapshot() as snapshot:
        everything = scores(by_words(snapshot, "water pump"))
        leaves = scores(by_words(snapshot, "water pump", filter=filter))
        both = by_both(snapshot, "water pump", filter=filter)
    assert leaves == {leaf: s for leaf, s in everything.items() if leaf[0] in passing.documents}
    assert leaves
    assert len(scores(both)) == both.eligible_leaves == passing.leaf_count


def test_lexical_scores_depend_only_on_the_living_leaves_of_the_collection(filled):
    """Other tenants, other collections and deleted documents do not change a score."""

    def leaves() -> dict[Leaf, float]:
        with filled.snapshot() as snapshot:
            return scores(by_words(snapshot, "water pump E-9999"))

    before = leaves()
    for tenant_id, name in (("t2", "c"), ("t", "c2")):
        filled.writer.create_collection(tenant_id, name, filled.model.settings)
        handle = filled.writer.open(tenant_id, name)
        for number in range(3):
            filled.writer.put(handle, wordy(f"d{number}", 100 + number))
        if filled.state == "sealed":
            filled.index(tenant_id, name)
    assert leaves() == before
    filled.writer.put(filled.collection, wordy("more", 50))
    assert leaves() != before
    filled.writer.delete(filled.collection, "more")
    assert leaves() == pytest.approx(before, abs=SCORE_TOLERANCE)


# Tests of passages.


@pytest.mark.parametrize("max_per_document", [1, 2])
@pytest.mark.parametrize("joins", [False, True])
def test_the_count_of_passages_of_one_document_is_bounded(filled, max_per_document, joins):
    options = {"max_per_document": max_per_document, "merge_adjacent": joins}
    with filled.snapshot() as snapshot:
        limited = by_both(snapshot, "water", 8, candidates=4, **options)
        unlimited = by_both(snapshot, "water", **options)
    counts = Counter(passage.chunk.document_id for passage in limited.passages)
    assert max(counts.values()) == max_per_document
    assert len(limited.passages) == 8
    document_ids = {passage.chunk.document_id for passage in unlimited.passages}
    assert document_ids == filled.model.documents.keys()
    assert unlimited.exhausted


def test_the_context_mode_fills_a_budget_with_the_best_text(filled):
    query = "water pump pressure"
    with filled.snapshot() as snapshot:
        leaves = by_both(snapshot, query, neighbour_bonus=0.5).passages
        for budget in (10, 100, 300):
            passages = by_both(
                snapshot,
                query,
                mode=SearchMode.CONTEXT,
                token_budget=budget,
                neighbour_bonus=0.5,
            ).passages
            spent = sum(passage.chunk.token_count for passage in passages)
            assert budget * 0.6 <= spent <= budget
            assert passages[0].matched_children[0].chunk_id == leaves[0].chunk.chunk_id
            assert passages[0].score == leaves[0].score
        whole = by_both(snapshot, query, mode=SearchMode.CONTEXT, token_budget=100_000).passages
    texts = {passage.chunk.content for passage in whole}
    assert texts == {document.parsed.text for document in filled.model.documents.values()}


# Tests of collections that have only vectors or only words.


def test_a_collection_without_vectors_is_searched_by_words(opened):
    settings = replace(VECTORLESS, summaries=SummaryUnit.NONE)
    assert settings.embedder == NO_EMBEDDER
    opened.model.settings = settings
    opened.create()
    opened.fill(*(wordy(f"d{n}", n, settings, 6 + n) for n in range(8)))
    opened.delete("d3")
    with opened.snapshot() as snapshot:
        assert snapshot.settings == settings
        for mode in set(SearchMode) - {SearchMode.SUMMARY_FIRST}:
            level = TOP if mode is SearchMode.AUTO_MERGE else 0
            result = by_words(snapshot, "water pump", 5, mode=mode, level=level)
            assert (result.exact, len(result.passages) > 0) == (True, True)
    (stored,) = [s for s in opened.readers().export("t", "c") if s.document.document_id == "d0"]
    assert stored.document.vectors.shape == (len(opened.model.documents["d0"].vectors), 0)
    assert opened.writer.status(opened.collection).vector_bytes == 0


def test_a_collection_without_an_analyzer_is_searched_by_vectors(opened):
    opened.model.settings = WORDLESS
    opened.create()
    opened.fill(*(prepared(f"d{n}", sentences(9, n), WORDLESS, n) for n in range(4)))
    with opened.snapshot() as snapshot:
        result = find(snapshot, query_vector(2), EVERYTHING, text="a story", neighbour_bonus=0.5)
    assert len(scores(result)) == opened.model.leaf_count
    for passage in result.passages:
        assert passage.matched_sentence
        assert not passage.term_spans


def test_a_collection_without_vectors_refuses_vectors(opened):
    opened.model.settings = VECTORLESS
    opened.create()
    document = prepared("d", sentences(4), VECTORLESS)
    wrong = replace(document, vectors=unit_vectors(len(document.vectors), 1))
    with pytest.raises(Exception, match="vectors have shape"):
        opened.writer.put(opened.collection, wrong)
    opened.fill(document)
