"""The embedder learns what one request to an endpoint may hold from the requests it refuses."""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from hrag.errors import EmbedderRejected, EmbedderUnavailable
from hrag.models.embedding.openai_embedder import OpenAIEmbedder
from hrag.models.embedding.request_limits import RequestLimits
from hrag.models.endpoint.endpoint_access import EndpointAccess
from tests.support.servers.openai_server import (
    DEFAULT_DIMENSION,
    Fault,
    OpenAIServer,
    Reply,
    refuse,
    vectors_of,
)

# The replies of text-embeddings-inference, DashScope, Mistral, a proxy, and one without words.
TEI = '{"message": "batch size 57 > maximum allowed batch size 32", "type": "Validation"}'
DASHSCOPE = "<400> InternalError.Algo.InvalidParameter: batch size is invalid"
MISTRAL = "Too many tokens in batch. Max is 16384 got 20000"
REFUSALS = [(413, TEI), (422, TEI), (400, DASHSCOPE), (400, MISTRAL), (413, "<html>"), (400, "")]


def accepting(
    max_texts: int = 10_000, max_bytes: int = 1 << 40, status: int = 413, words: str = TEI
) -> Fault:
    """Refuses requests with more texts or more bytes, as an endpoint with these limits does."""

    def fault(reply: Reply) -> Reply:
        texts = reply.request["input"]
        fits = len(texts) <= max_texts and sum(len(text.encode()) for text in texts) <= max_bytes
        return reply if fits else refuse(status, words=words)(reply)

    return fault


@pytest.fixture
def embedder_with(server: OpenAIServer) -> Callable[..., OpenAIEmbedder]:
    def make(**changes: Any) -> OpenAIEmbedder:
        access = EndpointAccess(server.base_url, "k")
        settings = {"model": "m", "access": access, "dimensions": DEFAULT_DIMENSION}
        return OpenAIEmbedder(**(settings | {"max_retries": 0} | changes))

    return make


@pytest.fixture
def embedder(embedder_with: Callable[..., OpenAIEmbedder]) -> OpenAIEmbedder:
    return embedder_with()


def texts_of(number: int, size: int = 10) -> list[str]:
    return [f"{index:>{size}}" for index in range(number)]


def embed(embedder: OpenAIEmbedder, texts: Sequence[str]) -> None:
    """Embeds the texts, and asserts that each has its own vector."""
    np.testing.assert_allclose(embedder.embed(texts), vectors_of(texts), atol=1e-6)


def counts(server: OpenAIServer) -> list[int]:
    """Returns the count of texts of each request."""
    return [len(request["input"]) for request in server.requests]


@pytest.mark.parametrize(
    ("limit", "status", "words"),
    [
        *((32, *refusal) for refusal in REFUSALS),
        *((limit, 413, TEI) for limit in (1, 2, 10, 16, 56)),
    ],
)
def test_a_limit_of_texts_is_learned_and_remembered(
    limit: int, status: int, words: str, server: OpenAIServer, embedder: OpenAIEmbedder
) -> None:
    server.inject(accepting(limit, status=status, words=words), times=2000)
    embed(embedder, texts_of(57))
    first = counts(server)
    refused = [size for size in first if size > limit]
    assert len(refused) <= 6
    assert refused == first[: len(refused)]
    server.requests.clear()
    embed(embedder, texts_of(57))
    learned = counts(server)
    assert max(learned) <= limit
    assert max(learned) > limit // 2
    assert sum(learned) == 57


@pytest.mark.parametrize("max_bytes", [300, 1_500])
@pytest.mark.parametrize("sizes", [(10, 100), (100, 10), (100, 100), (10, 10, 90, 30)])
def test_a_limit_of_bytes_is_learned_and_remembered(
    sizes: tuple[int, ...], max_bytes: int, server: OpenAIServer, embedder: OpenAIEmbedder
) -> None:
    server.inject(accepting(max_bytes=max_bytes), times=5000)
    for size in sizes * 2:
        embed(embedder, texts_of(24, size))
    server.requests.clear()
    for size in sizes:
        embed(embedder, texts_of(24, size))
        assert sum(counts(server)) == 24  # No request is refused any more.
        server.requests.clear()


def test_what_was_learned_is_logged_once(server: OpenAIServer, embedder: OpenAIEmbedder) -> None:
    server.inject(accepting(32), times=100)
    with capture_logs() as logs:
        embed(embedder, texts_of(100))
        embed(embedder, texts_of(100))
    (entry,) = logs
    assert (entry["event"], entry["max_texts"]) == ("embedding_request_limits_learned", 32)
    assert server.address in entry["endpoint"]


@pytest.mark.parametrize("status", [400, 413, 422])
@pytest.mark.parametrize("bad", [0, 1, 31, 32, 62, 63])
def test_a_text_that_is_refused_alone_is_an_error_that_names_it(
    bad: int, status: int, server: OpenAIServer, embedder: OpenAIEmbedder
) -> None:
    texts = texts_of(64)
    texts[bad] = "x" * 50

    def fault(reply: Reply) -> Reply:
        is_bad = texts[bad] in reply.request["input"]
        return refuse(status, words=texts[bad])(reply) if is_bad else reply

    server.inject(fault, times=100)
    with capture_logs() as logs, pytest.raises(EmbedderRejected) as raised:
        embedder.embed(texts)
    expected = f"this is about text {bad + 1} of 64, which was sent alone and has 50 bytes"
    assert expected in raised.value.message
    assert f"answered {status}" in raised.value.message
    assert "xxx" not in raised.value.message
    assert not raised.value.every_text
    # The text was the cause, so nothing is learned of requests without it.
    assert logs == []
    server.requests.clear()
    embed(embedder, texts_of(64))
    assert counts(server) == [64]


@pytest.mark.parametrize(
    "words",
    [
        "input (601 tokens) is too large to process. increase the physical batch size",
        "the input length exceeds the context length",
        "input exceeds maximum context length",
    ],
)
def test_a_text_that_is_too_long_for_a_server_that_answers_500_is_not_retried(
    words: str, server: OpenAIServer, embedder_with: Callable[..., OpenAIEmbedder]
) -> None:
    """llama.cpp and older versions of Ollama answer so."""
    server.inject(accepting(max_bytes=100, status=500, words=words), times=100)
    with pytest.raises(EmbedderRejected, match=r"answered 500: .*too long.* text 2 of 3"):
        embedder_with(max_retries=4).embed(["a", "x" * 101, "b"])
    assert counts(server) == [3, 2, 1, 1]


def test_a_limit_is_learned_although_a_text_was_refused_before(
    server: OpenAIServer, embedder: OpenAIEmbedder
) -> None:
    server.inject(accepting(32, max_bytes=3_000), times=1000)
    with pytest.raises(EmbedderRejected, match="text 40 of 64"):
        embedder.embed([*texts_of(39), "x" * 4_000, *texts_of(24)])
    embed(embedder, texts_of(64))
    server.requests.clear()
    embed(embedder, texts_of(64))
    assert counts(server) == [32, 32]


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 503])
def test_other_errors_do_not_make_requests_smaller(
    status: int, server: OpenAIServer, embedder: OpenAIEmbedder
) -> None:
    server.inject(refuse(status))
    with pytest.raises((EmbedderRejected, EmbedderUnavailable)):
        embedder.embed(texts_of(64))
    embed(embedder, texts_of(64))
    assert counts(server) == [64, 64]


def test_a_limit_that_becomes_smaller_is_noticed(
    server: OpenAIServer, embedder: OpenAIEmbedder
) -> None:
    embed(embedder, texts_of(60, 100))
    server.inject(accepting(32), times=1000)
    embed(embedder, texts_of(60, 100))
    server.requests.clear()
    embed(embedder, texts_of(60, 100))
    assert max(counts(server)) <= 32


@pytest.mark.parametrize("settings", [{"max_texts": 10}, {"max_bytes": 100}])
def test_the_limits_may_be_set(
    settings: dict[str, int], server: OpenAIServer, embedder_with: Callable[..., OpenAIEmbedder]
) -> None:
    embed(embedder_with(**settings), texts_of(25))
    assert counts(server) == [10, 10, 5]


def test_vectors_as_lists_are_asked_for_if_base64_is_refused(
    server: OpenAIServer, embedder: OpenAIEmbedder
) -> None:
    def fault(reply: Reply) -> Reply:
        if reply.request["encoding_format"] == "float":
            return reply
        return refuse(400, words="encoding_format must be float")(reply)

    server.inject(fault, times=4)
    embed(embedder, texts_of(3))
    embed(embedder, texts_of(3))
    assert [request["encoding_format"] for request in server.requests] == [
        *("base64", "float", "float")
    ]
    assert counts(server) == [3, 3, 3]


SIZES = st.lists(st.integers(0, 100), min_size=1, max_size=40)


@given(SIZES, st.integers(1, 10), st.integers(1, 300))
def test_requests_are_in_order_as_large_as_possible_and_within_the_limits(
    sizes: list[int], max_texts: int, max_bytes: int
) -> None:
    """Only a request with a single text may have more bytes than the limit."""
    limits = RequestLimits(max_texts, max_bytes)
    start = 0
    while start < len(sizes):
        end = limits.batch_end(sizes, start)
        batch = sizes[start:end]
        assert 1 <= len(batch) <= max_texts
        assert len(batch) == 1 or sum(batch) <= max_bytes
        if end < len(sizes) and len(batch) < max_texts:
            assert sum(batch) + sizes[end] > max_bytes
        start = end


@given(st.lists(SIZES, max_size=6), st.integers(1, 30), st.integers(100, 800))
def test_every_text_is_accepted_after_few_refusals_whatever_the_limits(
    calls: list[list[int]], accepts_texts: int, accepts_bytes: int
) -> None:
    limits = RequestLimits(512, 300_000)
    refusals = count()
    for sizes in calls:
        start = 0
        while start < len(sizes):
            end = limits.batch_end(sizes, start)
            texts, size = end - start, sum(sizes[start:end])
            if texts > accepts_texts or size > accepts_bytes:
                assert texts > 1
                smaller = limits.after_refusal(texts, size)
                assert smaller.batch_end(sizes, start) < end
                limits = smaller
                next(refusals)
            else:
                limits = limits.after_acceptance(texts, size)
                start = end
        limits = limits.combined(limits)
    assert next(refusals) <= 12
