"""While the server's disk is full, documents are refused; afterwards everything works by itself.

No acknowledged document is lost. The disk may have only the data, or also the write-ahead log. If
the write-ahead log cannot grow, PostgreSQL ends and does not start until there is space.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest

from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.postgres.store.schema import migrate
from hrag.errors import HragError, StorageFull, StoreUnavailable
from tests.crash.disks import MIB, Ballast, small_disk
from tests.crash.postgres_calls import CALLS, SMALL, TENANT, Calls
from tests.support.documents.fakes import find, prepared, query_vector, sentences
from tests.support.servers.postgres_server import PostgresServer, why_not
from tests.support.until import until

pytestmark = pytest.mark.postgres

# Enough for an empty server and, if another user cannot read the wheel, for a copy of its files.
_DISK_BYTES = 384 * MIB
_REFUSED_S = 60.0


@dataclass
class FullDisk:
    """A server whose data is on a small disk, and the documents that it has acknowledged."""

    server: PostgresServer
    ballast: Ballast
    calls: Calls
    acknowledged: list[str] = field(default_factory=list)

    def put(self) -> None:
        """Stores a document of about 90 KB."""
        number = len(self.acknowledged)
        handle = self.calls.writer.open(TENANT, SMALL)
        self.calls.writer.put(handle, prepared(f"d{number}", sentences(2000, number)))
        self.acknowledged.append(f"d{number}")

    def refusal(self) -> HragError:
        """Stores documents until one is refused; returns the error."""
        errors: list[HragError] = []

        def is_refused() -> bool:
            try:
                self.put()
            except HragError as error:
                errors.append(error)
            return bool(errors)

        until(is_refused, _REFUSED_S)
        return errors[0]

    def assert_readable(self) -> None:
        """Fails unless each acknowledged document is listed and found."""
        writer, reader = self.calls.writer, self.calls.reader
        infos = writer.documents(writer.open(TENANT, SMALL), 1000, "").items
        assert set(self.acknowledged) <= {info.document_id for info in infos}
        with reader.snapshot(TENANT, SMALL) as snapshot:
            passages = find(snapshot, query_vector(1), 10).passages
        assert len(passages) == 10

    def assert_served(self) -> None:
        """Fails unless each call succeeds again, on each connection."""
        for _ in range(3):
            for call in CALLS.values():
                call(self.calls)
        self.put()
        self.assert_readable()
        self.calls.finish()


@contextmanager
def _on_small_disk(*, has_wal: bool) -> Iterator[FullDisk]:
    if problem := why_not():
        pytest.skip(problem)
    with ExitStack() as stack:
        # The user nobody, as whom the server runs, cannot enter the folders of pytest.
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="hrag-disk-")))
        folder.chmod(0o755)
        disk = stack.enter_context(small_disk(folder / "disk", _DISK_BYTES))
        wal_folder = disk if has_wal else folder
        server = stack.enter_context(closing(PostgresServer(folder=disk, wal_folder=wal_folder)))
        database = PostgresDatabase(server.dsn(), 2, "tests", is_writer=True)
        stack.callback(database.close)
        migrate(database)
        calls = Calls(database)
        calls.fill()
        yield FullDisk(server, Ballast(disk), calls)


def test_a_full_disk_refuses_documents_and_serves_searches() -> None:
    with _on_small_disk(has_wal=False) as full:
        full.put()
        full.ballast.fill()
        for _ in range(20):
            error = full.refusal()
            assert isinstance(error, StorageFull), error
            assert "No space left on device" in str(error)
            full.assert_readable()
        for call in (Calls.maintain, Calls.move, Calls.reindex):
            with pytest.raises(StorageFull):
                call(full.calls)
        full.calls.database.check()
        full.ballast.remove()
        full.assert_served()


@pytest.mark.slow
def test_a_server_that_a_full_disk_has_ended_is_used_again_when_it_is_back() -> None:
    with _on_small_disk(has_wal=True) as full:
        full.put()
        full.ballast.fill()
        until(lambda: _writes_no_log(full.server), _REFUSED_S)
        until(lambda: not full.server.is_running, _REFUSED_S)
        for call in (Calls.put, Calls.search):
            with pytest.raises(StoreUnavailable):
                call(full.calls)
        full.ballast.remove()
        full.server.start()
        full.assert_served()


def _writes_no_log(server: PostgresServer) -> bool:
    """Writes a megabyte to the write-ahead log; returns True if the server cannot do this."""
    try:
        server.run("SELECT pg_logical_emit_message(false, 'test', repeat('x', 1 << 20))")
    except psycopg.Error:
        return True
    return False
