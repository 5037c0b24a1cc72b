"""Streams of documents between real processes keep their order and lose no confirmed document."""

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count, islice
from pathlib import Path
from threading import Event

import pytest

from hrag import errors
from hrag.client import Client
from hrag.types import Document, IngestOutcome, IngestResult
from tests.support.servers.processes import FAST, Running, running
from tests.support.until import GROWING_S, PATIENCE_S

Results = Iterator[IngestResult | errors.HragError]

# The most seconds that a stop of the indexer may take during a stream. The indexer must not wait
# for the stream until HRAG_DRAIN_S has passed, so that limit is far higher.
EXIT_S = PATIENCE_S
PATIENT = {**FAST, "HRAG_DRAIN_S": "300"}


@pytest.fixture
def client(services: Running) -> Client:
    return services.client


def _documents() -> Iterator[Document]:
    """Yields documents d0, d1 and so on, without end."""
    return (Document(f"Text {number} says this.", f"d{number}") for number in count())


def _outcomes(results: Results) -> list[IngestOutcome]:
    return [_stored(result).outcome for result in results]


def _stored(result: IngestResult | errors.HragError) -> IngestResult:
    assert isinstance(result, IngestResult), result
    return result


# These tests check the order of documents and results.


def test_ingesting_the_same_documents_again_changes_nothing(client: Client, tenant: str) -> None:
    documents = list(islice(_documents(), 300))
    first = [_stored(result) for result in client.ingest_many(tenant, documents)]
    assert {result.outcome for result in first} == {IngestOutcome.CREATED}
    assert [result.sequence for result in first] == sorted({result.sequence for result in first})
    again = [_stored(result) for result in client.ingest_many(tenant, documents)]
    assert {result.outcome for result in again} == {IngestOutcome.UNCHANGED}
    assert [result.sequence for result in again] == [result.sequence for result in first]


def test_versions_of_a_document_in_one_stream_are_stored_in_order(
    client: Client, tenant: str
) -> None:
    documents = [Document(f"Version {number // 2}.", "d") for number in range(100)]
    outcomes = _outcomes(client.ingest_many(tenant, documents))
    assert outcomes[0] is IngestOutcome.CREATED
    assert outcomes[2::2] == [IngestOutcome.UPDATED] * 49
    assert outcomes[1::2] == [IngestOutcome.UNCHANGED] * 50
    assert client.get_text(tenant, "d") == "Version 49."
    assert client.index_status(tenant).document_count == 1


def test_a_client_may_wait_for_each_result_before_it_sends_more(
    client: Client, tenant: str
) -> None:
    answered = Event()
    answered.set()

    def one_by_one() -> Iterator[Document]:
        for document in islice(_documents(), 30):
            assert answered.wait(PATIENCE_S)
            answered.clear()
            yield document

    document_ids = []
    for result in client.ingest_many(tenant, one_by_one(), timeout_s=60):
        document_ids.append(_stored(result).document_id)
        answered.set()
    assert document_ids == [f"d{number}" for number in range(30)]


def test_confirmed_documents_are_found_while_the_stream_continues(
    client: Client, tenant: str
) -> None:
    results = client.ingest_many(tenant, _documents())
    for answered in range(1, 200):
        stored = _stored(next(results))
        if answered % 50 == 0:
            result = client.search(tenant, "x", limit=100, min_sequence=stored.sequence)
            assert len(result.passages) >= min(answered, 100)


def test_documents_of_all_sizes_share_a_stream(client: Client, tenant: str) -> None:
    large = "".join(
        f"Sentence {number} speaks of the same few things. " for number in range(20_000)
    )
    documents = [*islice(_documents(), 20), Document(large, "large")] * 2
    outcomes = _outcomes(client.ingest_many(tenant, documents))
    assert outcomes == [IngestOutcome.CREATED] * 21 + [IngestOutcome.UNCHANGED] * 21
    assert client.get_text(tenant, "large") == large


# In these tests a stream ends: by a stop, a client, a deadline or because it has no documents.


def _collect(results: Results, answered: list[str], at: int, act: Callable[[], None]) -> None:
    """Adds the id of each stored document to `answered`. Calls `act` when it has `at` ids."""
    for result in results:
        answered.append(_stored(result).document_id)
        if len(answered) == at:
            act()


def _stop_during_stream(
    services: Running, documents: Iterator[Document], after: int
) -> tuple[list[str], str]:
    """Stops the indexer after `after` results.

    Returns the ids of all documents that it confirmed, and the message of the error. If a
    connection ends while its client sends, the client may miss the last messages: some results and
    the notice that the service is stopping. Then gRPC's own message describes how the connection
    ended.
    """
    answered: list[str] = []
    results = services.client.ingest_many("t", documents)
    with pytest.raises(errors.ServiceUnavailable) as caught:
        _collect(results, answered, after, services.indexer.terminate)
    assert services.indexer.wait(EXIT_S) == 0
    return answered, str(caught.value)


def _all_ids(client: Client, tenant: str) -> set[str]:
    document_ids: set[str] = set()
    token = ""
    while True:
        page = client.list_documents(tenant, page_size=1000, page_token=token)
        document_ids |= {info.document_id for info in page.items}
        token = page.next_page_token
        if not token:
            return document_ids


@pytest.mark.slow
def test_a_stop_ends_a_busy_stream_and_confirmed_documents_are_stored(data_dir: Path) -> None:
    with running(data_dir, PATIENT) as services:
        answered, _ = _stop_during_stream(services, _documents(), 500)
        assert "some calls were still running" not in services.indexer.log
    assert answered == [f"d{number}" for number in range(len(answered))]
    with running(data_dir) as services:
        stored = _all_ids(services.client, "t")
        assert stored >= set(answered)
        assert stored == {f"d{number}" for number in range(len(stored))}
        documents = islice(_documents(), len(stored) + 100)
        outcomes = _outcomes(services.client.ingest_many("t", documents))
    assert outcomes == [IngestOutcome.UNCHANGED] * len(stored) + [IngestOutcome.CREATED] * 100


def test_a_stop_ends_a_stream_that_waits_for_its_client(data_dir: Path) -> None:
    over = Event()

    def silent() -> Iterator[Document]:
        yield from islice(_documents(), 10)
        over.wait(2 * EXIT_S)

    with running(data_dir, PATIENT) as services:
        answered, message = _stop_during_stream(services, silent(), 10)
        over.set()
    assert len(answered) == 10
    assert re.search("stopping.*, so send only the documents without", message)


def test_documents_are_stored_if_the_client_leaves_after_their_results(
    services: Running, client: Client, tenant: str
) -> None:
    answered: list[str] = []
    # The service has fewer threads than streams, so the loop ends only if no stream hangs.
    for _ in range(20):
        with closing(services.new_client()) as other:
            results = other.ingest_many(tenant, _documents())
            answered += [_stored(result).document_id for result in islice(results, 50)]
    assert set(answered) <= _all_ids(client, tenant)
    assert (
        _outcomes(client.ingest_many(tenant, islice(_documents(), 50), timeout_s=60))
        == [IngestOutcome.UNCHANGED] * 50
    )


def test_a_deadline_ends_a_stream(client: Client, tenant: str) -> None:
    answered: list[str] = []
    for timeout_s in GROWING_S:
        with pytest.raises(errors.DeadlineExceeded):
            answered.extend(
                _stored(result).document_id
                for result in client.ingest_many(tenant, _documents(), timeout_s=timeout_s)
            )
        if answered:
            break
    assert answered
    assert set(answered) <= _all_ids(client, tenant)


def test_a_stream_without_documents_ends(client: Client, tenant: str) -> None:
    assert list(client.ingest_many(tenant, [], timeout_s=PATIENCE_S)) == []
