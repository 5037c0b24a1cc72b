"""If a caller leaves or its deadline passes, PostgreSQL ends the statement of its call."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import psycopg
import pytest

from hrag.types import Document
from hrag.v1 import indexer_pb2 as ipb
from hrag.v1 import retriever_pb2 as rpb
from tests.support.servers.processes import Running, running
from tests.support.servers.stores import dsn_of
from tests.support.until import GROWING_S, PATIENCE_S, until

pytestmark = pytest.mark.postgres

_WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'hrag' AND wait_event_type = 'Lock'
"""


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory, _engine: None) -> Iterator[Running]:
    """Services with a document of tenant `t`."""
    with running(tmp_path_factory.mktemp("cancelled") / "store") as both:
        both.client.ingest("t", Document("Cats sleep.", "a"))
        yield both


@contextmanager
def _locked(services: Running) -> Iterator[Callable[[], int]]:
    """Blocks every statement on the table of documents inside the `with` block.

    Yields a function that returns how many statements are blocked.
    """
    dsn = dsn_of(services.data_dir)
    with (
        psycopg.connect(dsn) as locking,
        psycopg.connect(dsn, autocommit=True) as watching,
    ):
        locking.execute("LOCK TABLE hrag.documents IN ACCESS EXCLUSIVE MODE")
        yield lambda: watching.execute(_WAITING).fetchall()[0][0]


def _search(services: Running, timeout_s: float) -> Any:
    request = rpb.SearchRequest(tenant_id="t", text="x")
    return services.raw_retriever.Search.future(request, timeout=timeout_s)


def _count(services: Running, timeout_s: float) -> Any:
    request = ipb.CountDocumentsRequest(tenant_id="t")
    request.filter.match.field = "document_id"
    request.filter.match.values.add(text="a")
    return services.raw_indexer.CountDocuments.future(request, timeout=timeout_s)


def _get(services: Running, timeout_s: float) -> Any:
    request = ipb.GetDocumentRequest(tenant_id="t", document_id="a")
    return services.raw_indexer.GetDocument.future(request, timeout=timeout_s)


def _ingest(services: Running, timeout_s: float) -> Any:
    document = {"document_id": "b", "text": "Dogs bark."}
    request = ipb.IngestDocumentRequest(tenant_id="t", document=document)
    return services.raw_indexer.IngestDocument.future(request, timeout=timeout_s)


_CALLS = pytest.mark.parametrize("call", [_search, _count, _get, _ingest])


@_CALLS
def test_a_cancelled_call_ends_its_statement(stored: Running, call: Any) -> None:
    with _locked(stored) as statements:
        running_call = call(stored, 600)
        until(lambda: statements() == 1)
        running_call.cancel()
        until(lambda: statements() == 0)
    assert stored.client.search("t", "x").passages


def _is_blocked(running_call: Any, statements: Callable[[], int]) -> bool:
    """Waits until the call ends, at its deadline; returns True if its statement was blocked."""
    seen: list[int] = []

    def has_ended() -> bool:
        seen.append(statements())
        return bool(running_call.done())

    until(has_ended, 2 * PATIENCE_S)
    assert running_call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    return any(seen)


@_CALLS
def test_a_deadline_ends_a_long_statement(stored: Running, call: Any) -> None:
    with _locked(stored) as statements:
        assert any(_is_blocked(call(stored, timeout_s), statements) for timeout_s in GROWING_S)
        until(lambda: statements() == 0)
    assert stored.client.search("t", "x").passages
