"""Services under load survive outages of every kind: once the database works, every call succeeds.

The services are never restarted. The clients do not repeat calls, so no failure is hidden.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import psycopg
import pytest

from hrag.types import Document
from hrag.v1 import indexer_pb2 as ipb
from hrag.v1 import indexer_pb2_grpc, retriever_pb2_grpc
from hrag.v1 import retriever_pb2 as rpb
from hrag.v1 import types_pb2 as tpb
from tests.support.documents.fakes import sentences
from tests.support.servers.postgres_server import PostgresServer
from tests.support.servers.processes import FAST, Running, running
from tests.support.servers.stores import dsn_of
from tests.support.until import until

pytestmark = pytest.mark.postgres

_TENANT = "t"
_SETTINGS = {
    **FAST,
    "HRAG_POSTGRES_HOME_LEAVES": "256",
    "HRAG_POSTGRES_CONNECTIONS": "4",
    "HRAG_SUMMARIES": "section",
    "HIERARCHICAL_CHUNK_LEVELS": "32,64,128",
    "HRAG_SUMMARY_MIN_CHARS": "1",
}
_THREADS = 4
_OUTAGE_S = 1.0
# Calls of the load give up so early that many of them end in the middle of their work.
_TIMEOUTS_S = (0.05, 0.2, 1.0)
# psycopg prepares a statement at its sixth use on a connection.
_ROUNDS = 8
# What a client may see of an outage. It may repeat a call that ends with any of these codes.
_TEMPORARY = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
# A call may find something missing or left over, because an earlier call has failed.
_CONSEQUENCES = {grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION}
_OTHERS = "FROM pg_stat_activity WHERE application_name = 'hrag'"


class Load:
    """Calls of all kinds on running services, from several threads."""

    def __init__(self, services: Running, channels: ExitStack) -> None:
        once = [("grpc.enable_retries", 0)]
        to_indexer, to_retriever = (
            channels.enter_context(grpc.insecure_channel(process.address, once))
            for process in (services.indexer, services.retriever)
        )
        self._indexer = indexer_pb2_grpc.IndexerServiceStub(to_indexer)
        self._retriever = retriever_pb2_grpc.RetrieverServiceStub(to_retriever)
        self._numbers = count(1)
        self._stop = threading.Event()
        self._calling = [threading.Lock() for _ in range(_THREADS)]
        self.codes: Counter[grpc.StatusCode] = Counter()

    def calls(self) -> list[Callable[[float], Any]]:
        """Returns calls that succeed in this order. The argument of each is its timeout."""
        number, tenant = next(self._numbers), _TENANT
        name = f"d{number}"
        document = tpb.Document(document_id=name, text=f"Cat {number} sleeps. {sentences(3)}")
        counting = _of(ipb.CountDocumentsRequest)
        counting.filter.match.field = "document_id"
        counting.filter.match.values.add(text=name)
        other = {"tenant_id": tenant, "name": f"c{number}"}
        indexer, retriever = self._indexer, self._retriever
        requests: list[tuple[Any, Any]] = [
            (indexer.CreateCollection, ipb.CreateCollectionRequest(**other)),
            (indexer.SetAlias, _alias(ipb.SetAliasRequest, number, collection=f"c{number}")),
            (indexer.DeleteAlias, _alias(ipb.DeleteAliasRequest, number)),
            (indexer.DeleteCollection, ipb.DeleteCollectionRequest(**other)),
            (indexer.IngestDocument, _of(ipb.IngestDocumentRequest, document=document)),
            (indexer.UpdateMetadata, _of(ipb.UpdateMetadataRequest, document_id=name, source="s")),
            (indexer.GetDocument, _of(ipb.GetDocumentRequest, document_id=name)),
            (indexer.CountDocuments, counting),
            (indexer.ListDocuments, _of(ipb.ListDocumentsRequest, page_size=3)),
            (retriever.Search, rpb.SearchRequest(tenant_id=tenant, text=f"cat {number}", limit=3)),
            (retriever.GetChunk, rpb.GetChunkRequest(tenant_id=tenant, chunk_id=f"{name}#0.0")),
            (indexer.DeleteDocument, _of(ipb.DeleteDocumentRequest, document_id=name)),
            (indexer.GetIndexStatus, _of(ipb.GetIndexStatusRequest)),
        ]
        return [_Call(method, request) for method, request in requests]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Makes calls in several threads inside the block. They may fail as in an outage."""
        self._stop.clear()
        with ThreadPoolExecutor(_THREADS) as threads:
            tasks = [threads.submit(self._work, thread) for thread in range(_THREADS)]
            try:
                yield
            finally:
                self._stop.set()
            for task in tasks:
                task.result()

    def _work(self, thread: int) -> None:
        while not self._stop.is_set():
            for number, call in enumerate(self.calls()):
                timeout_s = _TIMEOUTS_S[(number + thread) % len(_TIMEOUTS_S)]
                try:
                    with self._calling[thread]:
                        call(timeout_s)
                except grpc.RpcError as error:
                    self.codes[error.code()] += 1
                    if error.code() not in _TEMPORARY | _CONSEQUENCES:
                        raise

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Makes no call inside the block, because forks during calls may crash the new process."""
        with ExitStack() as locks:
            for calling in self._calling:
                locks.enter_context(calling)
            yield

    def assert_served(self) -> None:
        """Fails unless all calls succeed, on all connections and as often as it takes."""

        def work(_: int) -> None:
            for call in self.calls():
                call(60.0)

        with ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(work, range(_THREADS * _ROUNDS)))


class _Call:
    def __init__(self, method: Any, request: Any) -> None:
        self._method, self._request = method, request

    def __call__(self, timeout_s: float) -> Any:
        return self._method(self._request, timeout=timeout_s)


def _of(request: Any, **fields: Any) -> Any:
    return request(tenant_id=_TENANT, **fields)


def _alias(request: Any, number: int, **fields: Any) -> Any:
    return request(tenant_id=_TENANT, alias=f"a{number}", **fields)


class Outages:
    """The kinds of outages of one server, which has the database of `dsn`."""

    def __init__(self, server: PostgresServer, dsn: str, load: Load) -> None:
        self._server, self._dsn, self._load = server, dsn, load
        self._database = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]

    def stopped(self) -> None:
        self._server.stop()
        self._start_later()

    def killed(self) -> None:
        self._server.kill()
        self._start_later()

    def _start_later(self) -> None:
        """Starts the server again, but not before a call of the load has found it unavailable."""
        before = self._load.codes[grpc.StatusCode.UNAVAILABLE]
        time.sleep(_OUTAGE_S)
        until(lambda: self._load.codes[grpc.StatusCode.UNAVAILABLE] > before)
        with self._load.paused():
            self._server.start()

    def frozen(self) -> None:
        with self._server.frozen():
            time.sleep(_OUTAGE_S)

    def sessions_ended(self) -> None:
        for _ in range(5):
            self._server.run(f"SELECT pg_terminate_backend(pid) {_OTHERS}")
            time.sleep(_OUTAGE_S / 5)

    def statements_cancelled(self) -> None:
        end_s = time.monotonic() + _OUTAGE_S
        while time.monotonic() < end_s:
            self._server.run(f"SELECT pg_cancel_backend(pid) {_OTHERS}")

    def tenant_locked(self) -> None:
        self._locks("SELECT FROM hrag.tenants FOR UPDATE")

    def tables_locked(self) -> None:
        self._locks("LOCK TABLE hrag.documents, hrag.names IN ACCESS EXCLUSIVE MODE")

    def _locks(self, statement: str) -> None:
        for _ in range(3):
            with psycopg.connect(self._dsn) as other:
                other.execute(statement)
                time.sleep(_OUTAGE_S / 3)

    def short_timeouts(self) -> None:
        """The administrator sets timeouts so short that calls end in the middle of their work."""
        names = ("lock_timeout", "transaction_timeout", "idle_in_transaction_session_timeout")
        for name in names:
            self._server.run(f"ALTER DATABASE {self._database} SET {name} = '3ms'")
        self.sessions_ended()
        self._server.run(f"ALTER DATABASE {self._database} RESET ALL")
        self._server.run(f"SELECT pg_terminate_backend(pid, 10000) {_OTHERS}")

    def read_only(self) -> None:
        """The server behaves like a standby, as during a failover."""
        for action in ("SET default_transaction_read_only = on", "RESET ALL"):
            self._server.run(f"ALTER SYSTEM {action}")
            self._server.run("SELECT pg_reload_conf()")
            time.sleep(_OUTAGE_S)


_KINDS = (
    Outages.stopped,
    Outages.killed,
    Outages.frozen,
    Outages.sessions_ended,
    Outages.statements_cancelled,
    Outages.tenant_locked,
    Outages.tables_locked,
    Outages.short_timeouts,
    Outages.read_only,
)


_FEW_KINDS = (Outages.killed, Outages.tenant_locked, Outages.short_timeouts)


def _outages(
    server: PostgresServer, data_dir: Path, kinds: Sequence[Callable[[Outages], None]]
) -> Counter[grpc.StatusCode]:
    """Causes outages under load; returns the codes with which calls ended during them."""
    with running(data_dir, _SETTINGS) as services, ExitStack() as channels:
        load = Load(services, channels)
        outages = Outages(server, dsn_of(data_dir), load)
        services.client.ingest(_TENANT, Document("Dogs bark.", "kept"))
        load.assert_served()
        for kind in kinds:
            with load.running():
                kind(outages)
            for process in (services.indexer, services.retriever):
                process.wait_until_serving()
            load.assert_served()
        _assert_maintained(services)
        return load.codes


def _assert_maintained(services: Running) -> None:
    """Fails unless new documents are summarised and indexed."""
    client = services.client
    for number in range(20):
        client.ingest(_TENANT, Document(sentences(60, number), f"long-{number}"))
    statement = "SELECT count(home), sum(unsummarised) FROM hrag.collections WHERE tenant_id = 't'"
    with psycopg.connect(dsn_of(services.data_dir), autocommit=True) as database:

        def is_maintained() -> bool:
            homes, unsummarised = database.execute(statement).fetchall()[0]
            return bool(homes) and unsummarised == 0

        until(is_maintained, 60)
    assert client.get_text(_TENANT, "kept") == "Dogs bark."


def test_after_outages_every_call_succeeds(own_server: PostgresServer, data_dir: Path) -> None:
    codes = _outages(own_server, data_dir, _FEW_KINDS)
    assert codes[grpc.StatusCode.UNAVAILABLE]
    assert codes[grpc.StatusCode.DEADLINE_EXCEEDED]


@pytest.mark.endurance
@pytest.mark.timeout(1800)
def test_after_a_hundred_outages_every_call_succeeds(
    own_server: PostgresServer, data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    codes = _outages(own_server, data_dir, _KINDS * 12)
    with capsys.disabled():
        print(f"\ncalls that failed during {12 * len(_KINDS)} outages: {dict(codes)}")  # noqa: T201 - a run reports its figures
