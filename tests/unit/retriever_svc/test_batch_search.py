"""A batch runs several searches in one call. Each search has its own result or error."""

import math
from dataclasses import replace
from itertools import repeat

import numpy as np
import pytest

from hrag import errors
from hrag.models.embedding.hashing import HashEmbedder
from hrag.server.admission.suspension import Suspended
from hrag.types import Retrieval, SearchResult
from hrag.v1 import retriever_pb2 as pb
from hrag.values.deadline import NEVER
from hrag.values.reply_limit import ReplyLimit
from hrag.wire.encoded_results import encoded_batch, encoded_bytes
from hrag.wire.retriever import batch_from
from retriever_svc.search_pipeline import _ERROR_BYTES
from tests.support.engines.rankings import (
    DIMENSION,
    QUERY,
    Embedder,
    FakeReader,
    FakeSnapshot,
    search_of,
)


def test_a_batch_embeds_its_texts_together_and_returns_results_in_order() -> None:
    snapshot = FakeSnapshot(["a", "b"])
    embedder = Embedder(snapshot)
    search = search_of(snapshot, embedder=embedder)
    queries = [
        replace(QUERY, limit=1),
        replace(QUERY, query="another"),
        replace(QUERY, query=[1.0, 0.0, 0.0, 0.0]),
        replace(QUERY, limit=2),
    ]
    results = search.batch(queries, NEVER)
    assert [result.passages for result in results] == [
        (b"a",),
        (b"a", b"b"),
        (b"a", b"b"),
        (b"a", b"b"),
    ]
    assert embedder.batches == [["what do cats do?", "another"]]
    alone = [search_of(FakeSnapshot(["a", "b"]))(query, NEVER) for query in queries]
    assert [result.exhausted for result in results] == [result.exhausted for result in alone]


def test_tenants_in_one_batch_share_neither_vectors_nor_caches_nor_collections() -> None:
    snapshot = FakeSnapshot(["a"])
    embedder, reader = Embedder(snapshot), FakeReader(snapshot)
    search = search_of(snapshot, embedder=embedder, reader=reader)
    queries = [
        replace(QUERY, retrieval=Retrieval.DENSE),
        replace(QUERY, retrieval=Retrieval.DENSE, tenant_id="u", query="another"),
        replace(QUERY, retrieval=Retrieval.DENSE, tenant_id="u"),
    ]
    results = search.batch(queries, NEVER)
    assert [result.passages for result in results] == [(b"a",)] * 3
    vectors = [request.vector for request in snapshot.requests]
    assert np.array_equal(vectors, HashEmbedder(DIMENSION).embed([query.text for query in queries]))
    assert embedder.batches == [[QUERY.query], ["another", QUERY.query]]
    assert reader.opened[-3:] == [(query.tenant_id, query.collection) for query in queries]


def test_the_results_of_a_batch_share_one_reply_limit_that_reserves_space_for_errors() -> None:
    snapshot = FakeSnapshot(["x" * 1000])
    size_bytes = encoded_bytes(search_of(snapshot).encoded(QUERY, NEVER))
    reply = ReplyLimit(3 * _ERROR_BYTES + 2 * size_bytes)
    outcomes = search_of(snapshot, reply=reply).batch([QUERY] * 3, NEVER)
    too_large = [isinstance(outcome, errors.ReplyTooLarge) for outcome in outcomes]
    assert too_large == [False, False, True]


@pytest.mark.parametrize("message", ["é" * 5000, "a lone surrogate \ud800" * 100])
def test_any_error_fits_into_the_space_that_a_batch_reserves_for_it(message: str) -> None:
    error = errors.EmbedderUnavailable(message, field="merge_adjacent")
    encoded = encoded_batch([error])
    assert len(encoded) <= _ERROR_BYTES
    (outcome,) = batch_from(pb.BatchSearchResponse.FromString(encoded))
    assert isinstance(outcome, errors.EmbedderUnavailable)
    assert outcome.message[:10] == message[:10]


def test_an_invalid_search_of_a_batch_does_not_affect_the_other_searches() -> None:
    refused = errors.InvalidArgument("mode is 77", field="mode")
    outcomes = search_of(FakeSnapshot(["a"])).batch(
        [
            refused,
            QUERY,
            replace(QUERY, limit=0),
            replace(QUERY, query=[math.nan] * 4),
            replace(QUERY, query=[1.0]),
            replace(QUERY, query=" "),
        ],
        NEVER,
    )
    assert outcomes[0] is refused
    assert outcomes[1].passages == (b"a",)
    assert [error.field for error in outcomes[2:]] == ["limit", "vector", "vector", "text"]


def test_a_batch_refuses_a_search_by_text_in_a_collection_of_another_embedder() -> None:
    snapshot = FakeSnapshot(["a"])
    embedder = Embedder(snapshot, name="other/model")
    vector = replace(QUERY, query=[1.0, 0.0, 0.0, 0.0])
    error, result = search_of(snapshot, embedder=embedder).batch([QUERY, vector], NEVER)
    assert isinstance(error, errors.EmbedderMismatch)
    assert result.passages == (b"a",)
    assert len(snapshot.requests) == 1


def test_a_text_that_the_embedder_refuses_does_not_affect_other_searches_of_the_batch() -> None:
    snapshot = FakeSnapshot(["a"])
    embedder = Embedder(snapshot)
    embedder.refused = "bad"
    search = search_of(snapshot, embedder=embedder)
    bad, good = search.batch([replace(QUERY, query="bad"), QUERY], NEVER)
    assert isinstance(bad, errors.EmbedderRejected)
    assert good.passages == (b"a",)


def test_an_embedder_that_is_down_is_called_once_for_a_batch() -> None:
    snapshot = FakeSnapshot(["a"])
    embedder = Embedder(snapshot)
    embedder.failure = errors.EmbedderUnavailable("down")
    outcomes = search_of(snapshot, embedder=embedder).batch(
        [QUERY, replace(QUERY, query="another")], NEVER
    )
    assert outcomes == [embedder.failure] * 2
    assert len(embedder.batches) == 1


@pytest.mark.parametrize("count", [0, 33])
def test_a_batch_of_no_searches_or_of_too_many_is_refused(count: int) -> None:
    with pytest.raises(errors.InvalidArgument, match=f"{count} entries; .* 1 to 32") as caught:
        search_of(FakeSnapshot(["a"])).batch([QUERY] * count, NEVER)
    assert caught.value.field == "searches"


def test_a_batch_runs_no_search_after_two_that_do_not_fit_into_the_reply() -> None:
    snapshot = FakeSnapshot(["a" * 5000])
    limit = ReplyLimit(_ERROR_BYTES * 8 + 6000)
    invalid = replace(QUERY, limit=0)
    outcomes = search_of(snapshot, reply=limit).batch([QUERY] * 7 + [invalid], NEVER)
    assert isinstance(outcomes[0], SearchResult)
    assert all(isinstance(outcome, errors.ReplyTooLarge) for outcome in outcomes[1:7])
    assert len(snapshot.requests) == 3
    assert "was not run" in outcomes[3].message
    assert "HRAG_MAX_REPLY_BYTES" in outcomes[3].message
    assert isinstance(outcomes[7], errors.InvalidArgument)


def test_a_batch_is_suspended_before_any_of_its_searches_runs() -> None:
    snapshot = FakeSnapshot(["a"])
    embedder = Embedder(snapshot)
    search = search_of(snapshot, embedder=embedder, reader=FakeReader(snapshot, repeat(3)))
    with pytest.raises(Suspended):
        search.batch([QUERY, replace(QUERY, min_sequence=8)], NEVER)
    assert embedder.batches == []
