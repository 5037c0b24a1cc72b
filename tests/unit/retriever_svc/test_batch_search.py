"""Several searches in one call."""

import math
from dataclasses import replace
from itertools import repeat

import numpy as np
import pytest

from hrag import errors
from hrag.models.embedding.hashing import HashEmbedder
from hrag.server.admission.suspension import Suspended
from hrag.types import Retrieval
from hrag.v1 import retriever_pb2 as pb
from hrag.values.deadline import NEVER
from hrag.values.reply_limit import ReplyLimit
from hrag.wire.retriever import batch_from, encoded_batch, encoded_bytes
from retriever_svc.search_pipeline import _ERROR_BYTES
from tests.support.engines.rankings import (
    DIMENSION,
    QUERY,
    Embedder,
    FakeReader,
    FakeSnapshot,
    search_of,
)


def test_a_batch_embeds_its_texts_together_and_answers_each_in_order() -> None:
    snapshot = FakeSnapshot(["a", "b"])
    embedder = Embedder(snapshot)
    search = search_of(snapshot, embedder=embedder)
    asked = [
        replace(QUERY, limit=1),
        replace(QUERY, query="another"),
        replace(QUERY, query=[1.0, 0.0, 0.0, 0.0]),
        replace(QUERY, limit=2),
    ]
    found = search.batch(asked, NEVER)
    assert [each.passages for each in found] == [(b"a",), (b"a", b"b"), (b"a", b"b"), (b"a", b"b")]
    assert embedder.batches == [["what do cats do?", "another"]]
    alone = [search_of(FakeSnapshot(["a", "b"]))(query, NEVER) for query in asked]
    assert [each.exhausted for each in found] == [each.exhausted for each in alone]


def test_tenants_of_one_batch_have_vectors_caches_and_collections_of_their_own() -> None:
    snapshot = FakeSnapshot(["a"])
    embedder, reader = Embedder(snapshot), FakeReader(snapshot)
    search = search_of(snapshot, embedder=embedder, reader=reader)
    asked = [
        replace(QUERY, retrieval=Retrieval.DENSE),
        replace(QUERY, retrieval=Retrieval.DENSE, tenant_id="u", query="another"),
        replace(QUERY, retrieval=Retrieval.DENSE, tenant_id="u"),
    ]
    found = search.batch(asked, NEVER)
    assert [each.passages for each in found] == [(b"a",)] * 3
    vectors = [request.vector for request in snapshot.requests]
    assert np.array_equal(vectors, HashEmbedder(DIMENSION).embed([each.text for each in asked]))
    assert embedder.batches == [[QUERY.query], ["another", QUERY.query]]
    assert reader.opened[-3:] == [(each.tenant_id, each.collection) for each in asked]


def test_the_searches_of_a_batch_share_one_reply_with_space_for_their_errors() -> None:
    snapshot = FakeSnapshot(["x" * 1000])
    size_bytes = encoded_bytes(search_of(snapshot).encoded(QUERY, NEVER))
    reply = ReplyLimit(3 * _ERROR_BYTES + 2 * size_bytes)
    found = search_of(snapshot, reply=reply).batch([QUERY] * 3, NEVER)
    too_large = [isinstance(each, errors.ReplyTooLarge) for each in found]
    assert too_large == [False, False, True]


@pytest.mark.parametrize("message", ["é" * 5000, "a lone surrogate \ud800" * 100])
def test_any_error_fits_the_space_that_a_batch_keeps_for_it(message: str) -> None:
    error = errors.EmbedderUnavailable(message, field="merge_adjacent")
    encoded = encoded_batch([error])
    assert len(encoded) <= _ERROR_BYTES
    (outcome,) = batch_from(pb.BatchSearchResponse.FromString(encoded))
    assert isinstance(outcome, errors.EmbedderUnavailable)
    assert outcome.message[:10] == message[:10]


def test_what_is_wrong_with_one_search_of_a_batch_touches_no_other() -> None:
    refused = errors.InvalidArgument("mode is 77", field="mode")
    found = search_of(FakeSnapshot(["a"])).batch(
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
    assert found[0] is refused
    assert found[1].passages == (b"a",)
    assert [error.field for error in found[2:]] == ["limit", "vector", "vector", "text"]


def test_a_batch_searches_no_collection_of_another_embedder_by_text() -> None:
    snapshot = FakeSnapshot(["a"])
    embedder = Embedder(snapshot, name="other/model")
    vector = replace(QUERY, query=[1.0, 0.0, 0.0, 0.0])
    text, found = search_of(snapshot, embedder=embedder).batch([QUERY, vector], NEVER)
    assert isinstance(text, errors.EmbedderMismatch)
    assert found.passages == (b"a",)
    assert len(snapshot.requests) == 1


def test_a_text_that_the_embedder_refuses_spoils_no_other_of_the_batch() -> None:
    snapshot = FakeSnapshot(["a"])
    embedder = Embedder(snapshot)
    embedder.refused = "bad"
    search = search_of(snapshot, embedder=embedder)
    bad, good = search.batch([replace(QUERY, query="bad"), QUERY], NEVER)
    assert isinstance(bad, errors.EmbedderRejected)
    assert good.passages == (b"a",)


def test_an_embedder_that_is_down_is_asked_once_for_a_batch() -> None:
    snapshot = FakeSnapshot(["a"])
    embedder = Embedder(snapshot)
    embedder.failure = errors.EmbedderUnavailable("down")
    found = search_of(snapshot, embedder=embedder).batch(
        [QUERY, replace(QUERY, query="another")], NEVER
    )
    assert found == [embedder.failure] * 2
    assert len(embedder.batches) == 1


@pytest.mark.parametrize("number", [0, 33])
def test_a_batch_has_a_bound(number: int) -> None:
    with pytest.raises(errors.InvalidArgument, match=f"{number} entries; .* 1 to 32") as caught:
        search_of(FakeSnapshot(["a"])).batch([QUERY] * number, NEVER)
    assert caught.value.field == "searches"


def test_a_batch_is_suspended_before_any_of_its_searches_runs() -> None:
    snapshot = FakeSnapshot(["a"])
    embedder = Embedder(snapshot)
    search = search_of(snapshot, embedder=embedder, reader=FakeReader(snapshot, repeat(3)))
    with pytest.raises(Suspended):
        search.batch([QUERY, replace(QUERY, min_sequence=8)], NEVER)
    assert embedder.batches == []
