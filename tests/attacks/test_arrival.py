"""Calls without messages, silent streams and idle connections do not block other callers."""

import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager

import grpc
import pytest
from grpc_health.v1 import health_pb2

from hrag.cli.processes import INDEXER
from hrag.client import Client
from hrag.errors import DocumentNotFound
from hrag.server.admission.executor import MAX_ARRIVING, MAX_ARRIVING_INLINE
from hrag.server.auth import api_keys
from hrag.types import Document
from hrag.v1 import indexer_pb2, retriever_pb2, types_pb2
from tests.attacks.http2 import Connection, half_open
from tests.attacks.observed import (
    MAX_GROWTH_BYTES,
    MAX_S,
    health_s,
    memory_bytes,
    threads_of,
    typical_s,
)
from tests.attacks.uptime_clock import uptime_s
from tests.attacks.world import (
    ATTACKER,
    HALF_OPEN,
    IDLE_STREAMS,
    INGEST,
    INGEST_MANY,
    LIMITS,
    REFLECTION,
    SEARCH,
    VICTIM,
    Guarded,
    guarded_services,
)
from tests.support.servers.credentials import id_of, new_key
from tests.support.servers.processes import FAST, Process, started
from tests.support.until import until

pytestmark = pytest.mark.attacks

CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"
UNREAD_WATCHES = 240


@contextmanager
def _checked(guarded: Guarded) -> Iterator[None]:
    """Fails if the services have many more threads or much more memory after the block."""
    processes = (guarded.services.indexer, guarded.services.retriever)
    guarded.search()
    threads = [threads_of(process) for process in processes]
    memory = [memory_bytes(process) for process in processes]
    yield
    for process, before in zip(processes, threads, strict=True):
        until(lambda process=process, before=before: threads_of(process) <= before + 20)
    for process, before in zip(processes, memory, strict=True):
        until(
            lambda process=process, before=before: memory_bytes(process) < before + MAX_GROWTH_BYTES
        )


@pytest.fixture
def quiet(guarded: Guarded) -> Iterator[Guarded]:
    """The services, which are checked after the test."""
    with _checked(guarded):
        yield guarded


@pytest.fixture(scope="module")
def patient_services(
    tmp_path_factory: pytest.TempPathFactory, _no_settings_from_outside: None
) -> Iterator[Guarded]:
    """Services whose time limits are longer than any test."""
    limits = dict.fromkeys(LIMITS, "300")
    with guarded_services(tmp_path_factory.mktemp("patient"), settings=limits) as services:
        yield services


@pytest.fixture
def patient(patient_services: Guarded) -> Iterator[Guarded]:
    """Services with long time limits, which are checked after the test."""
    with _checked(patient_services):
        yield patient_services


def _check_service(guarded: Guarded, process: Process) -> None:
    assert typical_s(lambda: health_s(process)) < MAX_S
    assert typical_s(guarded.search) < MAX_S


@pytest.mark.parametrize("whose", ["a stranger's", "a tenant's"])
@pytest.mark.parametrize("method", [SEARCH, CHECK, INGEST])
def test_calls_without_a_message_do_not_delay_other_callers(
    quiet: Guarded, method: str, whose: str
) -> None:
    services = quiet.services
    process = services.indexer if method == INGEST else services.retriever
    token = quiet.attacker_key if whose == "a tenant's" else ""
    with half_open(process.address, method, HALF_OPEN, token):
        for _ in range(3):
            _check_service(quiet, process)
    if method == SEARCH:
        with quiet.attacker() as attacker:
            assert attacker.search(ATTACKER, "ship").passages


def test_a_call_with_an_unfinished_message_ends_at_the_time_limit(quiet: Guarded) -> None:
    retriever = quiet.services.retriever
    before = _ended_late(retriever.log)
    with closing(Connection(retriever.address)) as connection:
        streams = [connection.open(SEARCH, quiet.attacker_key) for _ in range(100)]
        for stream in streams:
            connection.send(stream, b"\0\0\0")
        _check_service(quiet, retriever)
        assert not connection.is_answered(streams[-1])
        until(lambda: _ended_late(retriever.log) >= before + 100, 60)


def _ended_late(log: str) -> int:
    """Returns how many calls have ended with DEADLINE_EXCEEDED, also those of earlier tests.

    The log has one line each for a few of these calls, and lines with a count for the others.
    """
    late = [line for line in log.splitlines() if "DEADLINE_EXCEEDED" in line]
    counts = [int(count) for line in late for count in re.findall(r"\bcount=(\d+)", line)]
    return len(late) - len(counts) + sum(counts)


@pytest.mark.parametrize(("method", "whose"), [(CHECK, "a stranger's"), (INGEST, "a tenant's")])
def test_calls_without_a_message_do_not_end_calls_of_other_callers(
    patient: Guarded, method: str, whose: str
) -> None:
    indexer = patient.services.indexer
    document = types_pb2.Document(document_id=f"slow-{method[-5:]}", text="Sent slowly.")
    message = indexer_pb2.IngestDocumentRequest(tenant_id=VICTIM, document=document)
    body = message.SerializeToString()
    with closing(Connection(indexer.address)) as upload:
        stream = upload.open(INGEST, patient.victim_key)
        upload.send(stream, struct.pack(">BI", 0, len(body)) + body[:9])
        token = patient.attacker_key if whose == "a tenant's" else ""
        with half_open(indexer.address, method, MAX_ARRIVING + 100, token):
            health_s(indexer)
            upload.send(stream, body[9:])
            until(lambda: _exists(patient.victim, document.document_id))


def test_health_checks_without_a_message_do_not_end_checks_from_another_address(
    patient: Guarded,
) -> None:
    address = patient.services.indexer.address
    with closing(Connection(address, source="127.0.0.2")) as supervisor:
        check = supervisor.open(CHECK)
        with half_open(address, CHECK, 5 * MAX_ARRIVING_INLINE):
            health_s(patient.services.indexer)
            supervisor.send(check, struct.pack(">BI", 0, 0))
            assert supervisor.is_answered(check)


def test_unread_health_watches_occupy_no_thread_and_keep_nobody_from_watching(
    quiet: Guarded,
) -> None:
    """The HTTP/2 flow-control windows of the unread watches have 0 bytes."""
    retriever = quiet.services.retriever
    before = threads_of(retriever)
    with closing(Connection(retriever.address, window_bytes=0)) as connection:
        for _ in range(UNREAD_WATCHES):
            connection.call(WATCH, b"")
        connection.wait_until_read()
        with closing(Connection(retriever.address)) as supervisor:
            watch = supervisor.open(WATCH)
            supervisor.send(watch, struct.pack(">BI", 0, 0))
            assert supervisor.is_answered(watch)
        _check_service(quiet, retriever)
        assert threads_of(retriever) <= before + 20


def _exists(client: Client, document_id: str) -> bool:
    try:
        return client.get_document(VICTIM, document_id) is not None
    except DocumentNotFound:
        return False


def test_health_checks_of_megabytes_are_refused(quiet: Guarded) -> None:
    retriever = quiet.services.retriever
    with grpc.insecure_channel(retriever.address) as channel, ThreadPoolExecutor(4) as callers:
        check = channel.unary_unary(CHECK)
        message = health_pb2.HealthCheckRequest(service="x" * 15_000_000).SerializeToString()
        checks = [callers.submit(check, message, timeout=60) for _ in range(12)]
        _check_service(quiet, retriever)
        codes = {call.exception().code() for call in checks}
    assert codes <= {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.DEADLINE_EXCEEDED}


def test_refused_requests_leave_no_memory(quiet: Guarded) -> None:
    """A parsed request can need many times as much memory as its encoded bytes."""
    request = retriever_pb2.BatchSearchRequest(searches=[retriever_pb2.SearchRequest()] * 200_000)
    message = request.SerializeToString()
    with grpc.insecure_channel(quiet.services.retriever.address) as channel:
        call = channel.unary_unary("/hrag.v1.RetrieverService/BatchSearch")
        for _ in range(20):
            with pytest.raises(grpc.RpcError) as caught:
                call(message, metadata=_metadata(quiet.attacker_key), timeout=60)
            assert caught.value.code() is not grpc.StatusCode.DEADLINE_EXCEEDED


def test_searches_that_wait_for_a_change_occupy_no_thread(quiet: Guarded) -> None:
    with quiet.attacker() as attacker:
        waiting = [_waiting_search(quiet) for _ in range(100)]
        _check_service(quiet, quiet.services.retriever)
        assert attacker.search(ATTACKER, "ship").passages
        codes = {call.exception().code() for call, _ in waiting}
    assert codes == {grpc.StatusCode.DEADLINE_EXCEEDED}
    for _, channel in waiting:
        channel.close()


def _waiting_search(guarded: Guarded) -> tuple[grpc.Future, grpc.Channel]:
    """Starts a search that waits for a change that nobody makes."""
    channel = grpc.insecure_channel(guarded.services.retriever.address)
    request = retriever_pb2.SearchRequest(tenant_id=ATTACKER, text="ship", min_sequence=1 << 62)
    call = channel.unary_unary(SEARCH).future(
        request.SerializeToString(), timeout=4, metadata=_metadata(guarded.attacker_key)
    )
    return call, channel


def _metadata(key: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {key}"),)


@pytest.mark.parametrize("method", [INGEST_MANY, REFLECTION])
def test_idle_streams_are_bounded_and_end(quiet: Guarded, method: str) -> None:
    indexer = quiet.services.indexer
    before = threads_of(indexer)
    with half_open(indexer.address, method, IDLE_STREAMS, quiet.attacker_key):
        _check_service(quiet, indexer)
        quiet.victim.ingest("victim", Document(f"Written beside {method}.", "beside"))
        outcomes = quiet.victim.ingest_many("victim", [Document("As a stream.", "stream")])
        assert [outcome.document_id for outcome in outcomes] == ["stream"]
        until(lambda: threads_of(indexer) <= before + 20)


def test_a_stream_ends_when_its_key_is_revoked(quiet: Guarded) -> None:
    key = new_key(quiet.key_file, ATTACKER)
    ending = threading.Event()
    with grpc.insecure_channel(quiet.services.retriever.address) as channel:
        requests = _silent_requests(ending)
        call = channel.stream_stream(REFLECTION)(requests, metadata=_metadata(key), timeout=60)
        call.initial_metadata()
        api_keys.revoke(quiet.key_file, id_of(key))
        began = uptime_s()
        with pytest.raises(grpc.RpcError) as caught:
            next(call)
        ending.set()
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert uptime_s() - began < 8


def _silent_requests(ending: threading.Event) -> Iterator[bytes]:
    """Yields no request, and stops when the event is set, at the latest after a minute."""
    ending.wait(60)
    yield from ()
    yield from ()


def test_a_stream_is_not_idle_while_its_documents_are_embedded(quiet: Guarded) -> None:
    """The stream takes longer than HRAG_STREAM_IDLE_TIMEOUT_S, but no pause of it does."""

    def documents() -> Iterator[indexer_pb2.IngestDocumentsRequest]:
        for number in range(15):
            time.sleep(float(LIMITS["HRAG_STREAM_IDLE_TIMEOUT_S"]) / 10)
            document = types_pb2.Document(document_id=f"slow-{number}", text="Slowly sent.")
            yield indexer_pb2.IngestDocumentsRequest(tenant_id=ATTACKER, document=document)

    answers = quiet.services.raw_indexer.IngestDocuments(
        documents(), metadata=_metadata(quiet.attacker_key), timeout=60
    )
    assert sum(len(answer.outcomes) for answer in answers) == 15


def test_connections_are_bounded_and_silent_connections_end(tmp_path) -> None:
    settings = {**FAST, "HRAG_MAX_CONNECTIONS": "50"}
    with started(INDEXER, tmp_path / "store", settings) as indexer, ExitStack() as connections:
        indexer.wait_until_serving()
        host, _, port = indexer.address.rpartition(":")
        for _ in range(200):
            connections.enter_context(socket.create_connection((host, int(port))))
        until(lambda: _answers(indexer), 30)


def _answers(process: Process) -> bool:
    try:
        return health_s(process) < 20
    except grpc.RpcError:
        return False
