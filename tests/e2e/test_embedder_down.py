"""Clients get clear errors if the embedding endpoint is down, slow, limits calls or is wrong."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import grpc
import pytest

from hrag import errors
from hrag.cli.processes import free_addresses
from hrag.client import Client
from hrag.types import Document, IngestOutcome, Retrieval
from hrag.v1 import retriever_pb2
from hrag.wire.status_codes import error_from
from tests.support.servers.openai_server import (
    DEFAULT_DIMENSION,
    OpenAIServer,
    hang_up,
    refuse,
    shuffled,
    slow,
    without_last,
)
from tests.support.servers.processes import FAST, Running, running
from tests.support.servers.stores import COSINE_TOLERANCE, content_of
from tests.support.until import PATIENCE_S, until

TEXT = "".join(f"Sentence {number} tells a story. " for number in range(200))
KEY = "sk-test-4711"
# This Retry-After, in seconds, keeps the tests fast.
AT_ONCE = "0.001"


def _settings(base_url: str, **more: str) -> dict[str, str]:
    settings = {"HRAG_EMBEDDER": "openai", "OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": KEY}
    return {**settings, **more}


@pytest.fixture(scope="module")
def endpoint(_no_settings_from_outside: None) -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        yield server


@pytest.fixture(scope="module")
def embedded(endpoint: OpenAIServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Services whose embedder is the endpoint."""
    folder = tmp_path_factory.mktemp("openai") / "store"
    with running(folder, _settings(endpoint.base_url)) as both:
        yield both


def test_ingesting_a_corpus_again_embeds_nothing_and_changes_no_stored_byte(
    embedded: Running, endpoint: OpenAIServer, tenant: str
) -> None:
    corpus = [Document(f"{number}. {TEXT}", f"d{number}") for number in range(4)]
    client = embedded.client
    first = list(client.ingest_many(tenant, corpus))
    calls, content = endpoint.calls, content_of(embedded.data_dir)
    again = list(client.ingest_many(tenant, corpus))
    assert [result.outcome for result in first] == [IngestOutcome.CREATED] * 4
    assert [result.outcome for result in again] == [IngestOutcome.UNCHANGED] * 4
    assert [result.sequence for result in again] == [result.sequence for result in first]
    assert endpoint.calls == calls
    assert content_of(embedded.data_dir) == content


def test_a_repeated_query_is_not_embedded_again(
    embedded: Running, endpoint: OpenAIServer, tenant: str
) -> None:
    embedded.client.ingest(tenant, Document(TEXT))
    first = embedded.client.search(tenant, "a story of its own")
    calls = endpoint.calls
    again = embedded.client.search(tenant, "a story of its own")
    assert endpoint.calls == calls
    assert again.passages == first.passages


def test_a_shuffled_reply_is_sorted_by_its_indexes(
    embedded: Running, endpoint: OpenAIServer, tenant: str
) -> None:
    endpoint.inject(shuffled)
    embedded.client.ingest(tenant, Document(TEXT, "d"))
    chunk = embedded.client.get_chunk(tenant, "d#0.1").chunk
    best = embedded.client.search(tenant, chunk.content, limit=1, return_level=0).passages[0]
    assert best.chunk.chunk_id == "d#0.1"
    assert best.dense_score == pytest.approx(1, abs=COSINE_TOLERANCE)


def test_a_short_rate_limit_is_retried_without_an_error(
    embedded: Running, endpoint: OpenAIServer, tenant: str
) -> None:
    calls = endpoint.calls
    endpoint.inject(refuse(429, retry_after=AT_ONCE), times=3)
    assert embedded.client.ingest(tenant, Document(TEXT)).outcome is IngestOutcome.CREATED
    assert endpoint.calls == calls + 4


def test_a_long_rate_limit_is_an_error_after_five_attempts(
    embedded: Running, endpoint: OpenAIServer, tenant: str
) -> None:
    embedded.client.ingest(tenant, Document(TEXT, "d"))
    calls = endpoint.calls
    endpoint.inject(refuse(429, retry_after=AT_ONCE), times=5)
    with pytest.raises(errors.EmbedderUnavailable, match=r"answered 429; gave up after at most 5"):
        embedded.client.ingest(tenant, Document("Other text.", "d"))
    assert endpoint.calls == calls + 5, "the SDK must not repeat what the service repeats"
    assert embedded.client.get_text(tenant, "d") == TEXT


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (without_last, "returned 0 vectors for 1 texts"),
        (refuse(401), "answered 401: check OPENAI_API_KEY"),
    ],
)
def test_wrong_replies_of_an_endpoint_are_not_retried(
    embedded: Running, endpoint: OpenAIServer, tenant: str, fault: object, words: str
) -> None:
    embedded.client.ingest(tenant, Document("Cats sleep.", "d"))
    endpoint.inject(fault)  # type: ignore[arg-type]
    with pytest.raises(errors.EmbedderRejected, match=words):
        embedded.client.ingest(tenant, Document("Dogs bark.", "d"))
    endpoint.inject(fault)  # type: ignore[arg-type]
    request = retriever_pb2.SearchRequest(
        tenant_id=tenant, text=f"{words} {tenant}", retrieval=retriever_pb2.RETRIEVAL_DENSE
    )
    with pytest.raises(grpc.RpcError) as caught:
        embedded.raw_retriever.Search(request, timeout=PATIENCE_S)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert words in error_from(caught.value).message
    assert KEY not in error_from(caught.value).message
    assert KEY not in embedded.indexer.log + embedded.retriever.log
    assert embedded.client.get_text(tenant, "d") == "Cats sleep."


def test_vectors_with_a_wrong_number_of_dimensions_are_refused(
    embedded: Running, endpoint: OpenAIServer, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded.client.ingest(tenant, Document("Cats sleep.", "d"))
    monkeypatch.setattr(endpoint, "dimension", endpoint.dimension + 1)
    with pytest.raises(errors.EmbedderRejected, match="33 numbers where 32 are expected"):
        embedded.client.ingest(tenant, Document("Dogs bark.", "d"))


def test_a_slow_endpoint_delays_a_caller_only_to_its_deadline(
    embedded: Running, endpoint: OpenAIServer, tenant: str
) -> None:
    embedded.client.ingest(tenant, Document("Cats sleep.", "d"))
    endpoint.inject(slow(600))
    search = partial(embedded.client.search, retrieval=Retrieval.DENSE, timeout_s=0.3)
    with pytest.raises(errors.DeadlineExceeded):
        search(tenant, f"slow {tenant}")
    endpoint.forget_faults()
    endpoint.inject(slow(0.6))
    calls_in_log = embedded.indexer.log.count("/IngestDocument")
    with pytest.raises(errors.DeadlineExceeded):
        embedded.client.ingest(tenant, Document("Dogs bark.", "d"), timeout_s=0.3)
    until(lambda: embedded.indexer.log.count("/IngestDocument") > calls_in_log)
    assert embedded.client.get_text(tenant, "d") == "Cats sleep.", "the call wrote after its end"
    endpoint.forget_faults()


def _take_down(endpoint: OpenAIServer) -> None:
    """Closes the endpoint, so that neither open nor new connections are answered."""
    endpoint.inject(hang_up, times=20)
    endpoint.__exit__()


def _make_hang(endpoint: OpenAIServer) -> None:
    endpoint.inject(slow(600), times=20)


def _assert_only_calls_to_the_endpoint_fail(services: Running, words: str) -> None:
    """Fails unless calls that need the endpoint fail while all other calls succeed.

    `words` is a pattern for the message of the error.
    """
    client = services.client
    with ThreadPoolExecutor(2) as callers:
        calls = (
            callers.submit(client.search, "t", "what do cats do?", retrieval=Retrieval.DENSE),
            callers.submit(client.ingest, "t", Document("Dogs bark.", "d")),
        )
        same = client.ingest("t", Document("Cats sleep.", "d"))
        assert same.outcome is IngestOutcome.UNCHANGED
        assert len(client.search("t", [1.0] * DEFAULT_DIMENSION).passages) == 1
        by_words = client.search("t", "where do cats sleep?")
        assert (by_words.retrieval, len(by_words.passages)) == (Retrieval.LEXICAL, 1)
        assert re.search(words, by_words.fallback)
        for call in calls:
            with pytest.raises(errors.EmbedderUnavailable, match=words):
                call.result()
    assert services.indexer.serves()
    assert services.retriever.serves()


def _is_stored(client: Client, document: Document) -> bool:
    """Stores a document; returns False if the endpoint was too slow, as during a pause."""
    try:
        client.ingest("t", document)
    except errors.EmbedderUnavailable:
        return False
    return True


def _serve_with_failing_endpoint(
    data_dir: Path, how: Callable[[OpenAIServer], None], words: str
) -> None:
    with OpenAIServer() as endpoint:
        settings = _settings(endpoint.base_url, HRAG_OPENAI_TIMEOUT_S="0.5")
        with running(data_dir, settings) as services:
            until(lambda: _is_stored(services.client, Document("Cats sleep.", "d")))
            how(endpoint)
            _assert_only_calls_to_the_endpoint_fail(services, words)


@pytest.mark.slow
def test_services_report_a_missing_or_hanging_endpoint_and_serve_stored_documents(
    tmp_path: Path,
) -> None:
    """The two cases run at the same time, because a service retries for some seconds in each."""
    with ThreadPoolExecutor(2) as both:
        gone = both.submit(
            _serve_with_failing_endpoint, tmp_path / "gone", _take_down, "cannot be reached"
        )
        hangs = both.submit(
            _serve_with_failing_endpoint,
            tmp_path / "hangs",
            _make_hang,
            r"did not answer within (0\.5 s|its share)",
        )
        gone.result()
        hangs.result()


def test_a_collection_of_another_embedder_is_refused_without_asking_the_endpoint(
    data_dir: Path,
) -> None:
    (nowhere,) = free_addresses(1)
    with running(data_dir, FAST) as services:
        services.client.ingest("t", Document("Cats sleep.", "d"))
    words = r"created with embedder hash/64 \(64 dimensions\).*runs openai/text-embedding-3-small"
    with running(data_dir, _settings(f"http://{nowhere}/v1")) as services:
        with pytest.raises(errors.EmbedderMismatch, match=words):
            services.client.search("t", "cats")
        with pytest.raises(errors.EmbedderMismatch, match=words):
            services.client.ingest("t", Document("Dogs bark.", "d"))
