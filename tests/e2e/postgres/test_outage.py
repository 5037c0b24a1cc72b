"""Services survive an outage of their database, but end if it is missing when they start."""

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import psycopg
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from hrag.cli.processes import INDEXER, RETRIEVER, Service, free_addresses
from hrag.types import Document
from hrag.v1 import indexer_pb2 as ipb
from hrag.v1 import indexer_pb2_grpc, retriever_pb2_grpc
from hrag.v1 import retriever_pb2 as rpb
from hrag.v1 import types_pb2 as tpb
from tests.support.servers.forked import HRAG, ran
from tests.support.servers.postgres_server import PASSWORD, PostgresServer
from tests.support.servers.processes import FAST, Process, Running, running
from tests.support.servers.stores import settings_of
from tests.support.until import until

pytestmark = pytest.mark.postgres

# A call that waits for the database ends at its deadline, which is far later.
_AT_ONCE_S = 25.0
_DEADLINE_S = 60.0


def _refused(call: Callable[..., Any], request: Any) -> grpc.RpcError:
    """Makes a call that must be refused within `_AT_ONCE_S`; returns its error."""
    began = time.monotonic()
    with pytest.raises(grpc.RpcError) as caught:
        call(request, timeout=_DEADLINE_S)
    assert time.monotonic() - began < _AT_ONCE_S
    return caught.value


def _retry_delay_s(error: grpc.RpcError) -> float:
    retry = error_details_pb2.RetryInfo()
    status = rpc_status.from_call(error)
    assert any(detail.Unpack(retry) for detail in status.details)
    return retry.retry_delay.ToNanoseconds() / 1e9


def _assert_unavailable(error: grpc.RpcError) -> None:
    assert error.code() is grpc.StatusCode.UNAVAILABLE, error
    assert _retry_delay_s(error) > 0
    assert "PostgreSQL is not available" in error.details()
    assert PASSWORD not in error.details()


@contextmanager
def _calls(services: Running) -> Iterator[list[tuple[Callable[..., Any], Any]]]:
    """Yields some calls of each service with their requests, on channels without retries."""
    document = tpb.Document(document_id="b", text="Dogs bark.")
    once = [("grpc.enable_retries", 0)]
    with (
        grpc.insecure_channel(services.indexer.address, once) as to_indexer,
        grpc.insecure_channel(services.retriever.address, once) as to_retriever,
    ):
        indexer = indexer_pb2_grpc.IndexerServiceStub(to_indexer)
        retriever = retriever_pb2_grpc.RetrieverServiceStub(to_retriever)
        yield [
            (retriever.Search, rpb.SearchRequest(tenant_id="t", text="x")),
            (retriever.GetChunk, rpb.GetChunkRequest(tenant_id="t", chunk_id="a#0.0")),
            (indexer.IngestDocument, ipb.IngestDocumentRequest(tenant_id="t", document=document)),
            (indexer.GetIndexStatus, ipb.GetIndexStatusRequest(tenant_id="t")),
            (indexer.ListCollections, ipb.ListCollectionsRequest(tenant_id="t")),
        ]


def test_services_recover_without_a_restart_when_the_database_is_back(
    own_server: PostgresServer, data_dir: Path
) -> None:
    with running(data_dir) as services, _calls(services) as calls:
        both = (services.indexer, services.retriever)
        services.client.ingest("t", Document("Cats sleep.", "a"))
        assert services.client.search("t", "x").passages
        own_server.kill()
        for call in calls:
            _assert_unavailable(_refused(*call))
        until(lambda: not any(process.serves() for process in both))
        for call in calls:
            _assert_unavailable(_refused(*call))
        own_server.start()
        for process in both:
            process.wait_until_serving()
        assert services.client.get_text("t", "a") == "Cats sleep."
        services.client.ingest("t", Document("Dogs bark.", "b"))
        result = services.client.search("t", "x")
        assert {passage.chunk.document_id for passage in result.passages} == {"a", "b"}
        for process in both:
            # If the machine pauses, a service may lose and find the store more than once.
            reported = re.findall(r"\] (store_lost|store_found) ", process.log)
            assert reported == ["store_lost", "store_found"] * (len(reported) // 2)
            assert reported
            assert PASSWORD not in process.log


@pytest.mark.parametrize("service", [INDEXER, RETRIEVER], ids=lambda service: service.name)
def test_a_service_whose_database_is_down_at_the_start_ends_with_the_reason(
    data_dir: Path, service: Service
) -> None:
    (nowhere,) = free_addresses(1)
    port = nowhere.rpartition(":")[2]
    dsn = f"postgresql://hrag:{PASSWORD}@127.0.0.1:{port}/hrag".replace(" ", "%20")
    process = Process(service, data_dir, {**FAST, "HRAG_POSTGRES_DSN": dsn})
    assert process.wait() == 1
    (line,) = [line for line in process.log.splitlines() if "service_failed" in line]
    assert "PostgreSQL is not available" in line
    assert port in line
    assert PASSWORD not in process.log.replace("%20", " ")
    assert not data_dir.exists()


@pytest.mark.parametrize("service", [INDEXER, RETRIEVER], ids=lambda service: service.name)
@pytest.mark.parametrize(
    ("ours", "wrong", "words"),
    [
        ("dbname=", "dbname=missing_", 'database "missing_'),
        ("user=postgres", "user=nobody", "password authentication failed"),
    ],
)
def test_a_wrong_dsn_ends_the_service_with_the_reason(
    data_dir: Path, service: Service, ours: str, wrong: str, words: str
) -> None:
    dsn = settings_of(data_dir)["HRAG_POSTGRES_DSN"].replace(ours, wrong)
    process = Process(service, data_dir, {**FAST, "HRAG_POSTGRES_DSN": dsn})
    assert process.wait() == 2
    (line,) = [line for line in process.log.splitlines() if "invalid_setting" in line]
    assert words in line
    assert "correct HRAG_POSTGRES_DSN" in line
    assert PASSWORD not in process.log


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"dbname": "missing"}, 2, "correct HRAG_POSTGRES_DSN"),
        ({"user": "nobody", "password": "x"}, 2, "correct HRAG_POSTGRES_DSN"),
        ({"sslmode": "bogus"}, 2, "correct HRAG_POSTGRES_DSN"),
        ({"port": "1"}, 4, "is not available"),
    ],
)
@pytest.mark.parametrize("command", ["postgres migrate", "reindex"])
def test_a_command_says_with_its_exit_code_whether_a_retry_may_help(
    data_dir: Path, command: str, change: dict[str, str], code: int, words: str
) -> None:
    ours = settings_of(data_dir)
    wrong = psycopg.conninfo.make_conninfo(ours["HRAG_POSTGRES_DSN"], **change)
    environment = {**os.environ, **ours, "HRAG_POSTGRES_DSN": wrong}
    done = ran(*HRAG, *command.split(), environment=environment)
    assert done.returncode == code
    error = done.stderr.splitlines()[-1]
    assert error.startswith("error: PostgreSQL ")
    assert words in error
