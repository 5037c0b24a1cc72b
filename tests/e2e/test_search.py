"""Searches over gRPC return the right passages for each mode, limit and option."""

import itertools

import pytest

from hrag.errors import CollectionNotFound, InvalidArgument
from hrag.types import Document, SearchMode, SearchQuery

LONG = "".join(f"Sentence {number} speaks of the same few things. " for number in range(3000))
SHORT = "Sentence of a short text, number {}."


@pytest.fixture
def filled(services, tenant):
    """A tenant with a long document and twelve short documents.

    The first candidates of a search may all be leaves of the long document.
    """
    services.client.ingest(tenant, Document(LONG, document_id="long"))
    for number in range(12):
        services.client.ingest(tenant, Document(SHORT.format(number), document_id=f"s{number}"))
    return tenant


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_passages_are_distinct_ancestors_that_contain_their_matches(services, filled, level):
    result = services.client.search(filled, "anything", limit=50, return_level=level)
    ids = [passage.chunk.chunk_id for passage in result.passages]
    assert len(ids) == len(set(ids))
    assert result.returned_at_level == level
    for passage in result.passages:
        assert passage.matched_children
        for child in passage.matched_children:
            assert passage.chunk.span.char_start <= child.span.char_start
            assert child.span.char_end <= passage.chunk.span.char_end
        assert passage.score == max(child.score for child in passage.matched_children)


@pytest.mark.parametrize("candidates", [1, 10, 50, 10_000])
def test_the_limit_is_filled_even_with_few_candidates(services, filled, candidates):
    result = services.client.search(filled, "x", limit=10, return_level=3, candidates=candidates)
    assert len(result.passages) == 10


def test_a_result_is_exhausted_if_the_collection_has_fewer_passages(services, tenant):
    services.client.ingest(tenant, Document("One short text."))
    result = services.client.search(tenant, "text", limit=10)
    assert (len(result.passages), result.exhausted) == (1, True)


def test_the_content_of_a_passage_is_the_text_of_its_span(services, filled):
    text = services.client.get_text(filled, "long")
    for passage in services.client.search(filled, "few things", limit=20).passages:
        if passage.chunk.document_id == "long":
            span = passage.chunk.span
            assert passage.chunk.content == text[span.char_start : span.char_end]
            assert passage.chunk.content.encode() == text.encode()[span.byte_start : span.byte_end]


def test_the_mode_standard_returns_leaves(services, filled):
    result = services.client.search(filled, "things", mode=SearchMode.STANDARD, limit=20)
    assert {passage.chunk.level for passage in result.passages} == {0}
    for passage in result.passages:
        assert [child.chunk_id for child in passage.matched_children] == [passage.chunk.chunk_id]


def test_auto_merge_returns_a_large_chunk_if_enough_of_its_leaves_match(services, tenant):
    """If all leaves are candidates, they merge into the largest chunk.

    If only one leaf is a candidate, the search returns this leaf.
    """
    client = services.client
    client.ingest(tenant, Document(LONG[:8000], document_id="d"))
    whole = client.search(tenant, "things", mode=SearchMode.AUTO_MERGE, limit=100, return_level=3)
    assert [passage.chunk.chunk_id for passage in whole.passages] == ["d#3.0"]
    assert whole.returned_at_level == 3
    narrow = client.search(
        tenant, "things", mode=SearchMode.AUTO_MERGE, limit=1, candidates=1, merge_ratio=1.0
    )
    (passage,) = narrow.passages
    assert [child.chunk_id for child in passage.matched_children] == [passage.chunk.chunk_id]


def test_joined_passages_contain_no_text_twice(services, filled):
    text = services.client.get_text(filled, "long")
    result = services.client.search(
        filled, "things", mode=SearchMode.STANDARD, limit=20, merge_adjacent=True
    )
    long = [passage for passage in result.passages if passage.chunk.document_id == "long"]
    assert any(passage.merged_chunk_ids for passage in long)
    spans = sorted((p.chunk.span.char_start, p.chunk.span.char_end) for p in long)
    assert all(end < start for (_, end), (start, _) in itertools.pairwise(spans))
    for passage in long:
        span = passage.chunk.span
        assert passage.chunk.content == text[span.char_start : span.char_end]


@pytest.mark.parametrize("mode", [SearchMode.STANDARD, SearchMode.SMALL_TO_BIG])
def test_passages_leave_out_the_text_of_better_passages(services, filled, mode):
    client = services.client
    result = client.search(filled, "things", mode=mode, limit=100)
    spans = [
        passage.chunk.span for passage in result.passages if passage.chunk.document_id == "long"
    ]
    chars = [char for span in spans for char in range(span.char_start, span.char_end)]
    assert len(chars) == len(set(chars))
    whole = client.search(filled, "things", mode=mode, limit=100, keep_overlap=True)
    chunks = [passage.chunk for passage in whole.passages]
    assert {chunk.chunk_id for chunk in chunks} == {p.chunk.chunk_id for p in result.passages}
    assert sum(chunk.token_count for chunk in chunks) > sum(
        passage.chunk.token_count for passage in result.passages
    )
    for chunk in chunks:
        assert client.get_chunk(filled, chunk.chunk_id).chunk.content == chunk.content


@pytest.mark.parametrize("joins", [{"merge_adjacent": True}, {"mode": SearchMode.CONTEXT}])
def test_joined_passages_have_no_overlap_to_keep(services, filled, joins):
    with pytest.raises(InvalidArgument, match="joins passages that overlap") as refused:
        services.client.search(filled, "things", keep_overlap=True, **joins)
    assert refused.value.field == "keep_overlap"


def test_passages_below_the_minimum_score_are_left_out(services, filled):
    best = services.client.search(filled, "things", limit=10).passages
    bound = best[4].score
    result = services.client.search(filled, "things", limit=10, min_score=bound)
    assert result.passages == tuple(passage for passage in best if passage.score >= bound)
    assert result.exhausted


def test_a_batch_returns_the_same_as_separate_searches(services, filled):
    client = services.client
    queries = [
        SearchQuery(filled, "things", limit=3),
        SearchQuery(filled, "Sentence", mode=SearchMode.STANDARD),
        SearchQuery(filled, "things", limit=0),
        SearchQuery("nobody", "things"),
        SearchQuery(filled, "things", mode=SearchMode.AUTO_MERGE, merge_adjacent=True),
    ]
    first, second, refused, missing, merged = client.batch_search(queries)
    assert first.passages == client.search(filled, "things", limit=3).passages
    assert second.passages == client.search(filled, "Sentence", mode=SearchMode.STANDARD).passages
    assert (type(refused), refused.field) == (InvalidArgument, "limit")
    assert isinstance(missing, CollectionNotFound)
    assert merged.mode is SearchMode.AUTO_MERGE
    with pytest.raises(InvalidArgument, match="it must have 1 to 32"):
        client.batch_search([])


def test_a_token_budget_bounds_the_passages(services, filled):
    result = services.client.search(filled, "things", limit=50, token_budget=1500)
    assert 0 < sum(passage.chunk.token_count for passage in result.passages) <= 1500


def test_a_document_is_found_by_meaning(builtin_services, tenant):
    client = builtin_services.client
    client.ingest(tenant, Document("Cats purr and sleep all day long.", document_id="cats"))
    client.ingest(tenant, Document("The stock market fell sharply today.", document_id="stocks"))
    client.ingest(tenant, Document("猫喜欢睡觉。", document_id="zh"))
    assert client.search(tenant, "shares lost value").passages[0].chunk.document_id == "stocks"


def test_the_next_search_sees_a_write(services, tenant):
    client = services.client
    client.ingest(tenant, Document(LONG, document_id="d"))
    for level in range(4):
        client.ingest(tenant, Document(f"Version {level}. {LONG}", document_id="d"))
        passages = client.search(tenant, "version", limit=100, return_level=level).passages
        first = next(passage for passage in passages if passage.chunk.index == 0)
        assert first.chunk.content.startswith(f"Version {level}.")
        assert sum(p.chunk.content.startswith("Version") for p in passages) == 1
    client.delete_document(tenant, "d")
    assert client.search(tenant, "version", limit=100).passages == ()
