"""Maps each data directory to a store: in the directory itself, or in a database of PostgreSQL.

Every process of a test that has a data directory gets its engine's settings from `settings_of`.
With a PostgreSQL server, each data directory is only the name of a separate database, which is
created empty when a test first uses it. So the same tests can run on both engines.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hrag.config import EngineSettings, load
from hrag.engine import open_engine
from tests.support.until import PATIENCE_S

if TYPE_CHECKING:
    from tests.support.servers.postgres_server import PostgresServer


class _Databases:
    """The databases of a server, by the data directories that name them."""

    def __init__(self, server: "PostgresServer") -> None:
        self.server = server
        self._names: dict[Path, str] = {}

    def name(self, data_dir: Path) -> str:
        if data_dir not in self._names:
            self._names[data_dir] = self.server.empty_database()
        return self._names[data_dir]

    def drop_below(self, folder: Path) -> None:
        for data_dir in [path for path in self._names if path.is_relative_to(folder)]:
            self.server.drop(self._names.pop(data_dir))


COSINE_TOLERANCE = 1e-3
"""The largest error of a score, because PostgreSQL stores components of vectors in 16 bits."""

_databases: _Databases | None = None


@contextmanager
def in_postgres(server: "PostgresServer") -> Iterator[None]:
    """Makes every store a database of `server` inside the block."""
    global _databases  # noqa: PLW0603 - each process that a test starts asks for its store
    before, _databases = _databases, _Databases(server)
    try:
        yield
    finally:
        _databases = before


def settings_of(data_dir: Path) -> dict[str, str]:
    """Returns the environment variables by which a process opens the store of `data_dir`."""
    settings = {"HRAG_DATA_DIR": str(data_dir)}
    if _databases is None:
        return settings
    # A server on a machine that pauses needs longer to accept a connection than hrag's default.
    dsn = _databases.server.tcp_dsn(_databases.name(data_dir), connect_timeout=int(PATIENCE_S))
    return settings | {"HRAG_ENGINE": "postgres", "HRAG_POSTGRES_DSN": dsn}


def is_embedded() -> bool:
    """Returns True if stores are those of the embedded engine, and False if of PostgreSQL."""
    return _databases is None


def dsn_of(data_dir: Path) -> str:
    """Returns the DSN of the database of `data_dir`. It needs no password."""
    assert _databases is not None
    return _databases.server.dsn(_databases.name(data_dir))


def content_of(data_dir: Path) -> object:
    """Returns a value that changes with every write to the store of `data_dir`, and only then."""
    if _databases is None:
        return (data_dir / "data.mdb").read_bytes()
    # A sum, because each node of a cluster counts its own transactions.
    rows = "SELECT count(*), sum(xmin::text::bigint) FROM hrag."
    database = _databases.name(data_dir)
    return [_databases.server.run(rows + table, database) for table in ("tenants", "documents")]


def check_store(data_dir: Path) -> None:
    """Fails unless the store is sound and no other process has it open for writing."""
    engine = open_engine(load(EngineSettings, **settings_of(data_dir)))
    try:
        engine.writer()
        assert engine.administration().check().problems == ()
    finally:
        engine.close()


def drop_below(folder: Path) -> None:
    """Drops the databases whose data directories are below `folder`."""
    if _databases is not None:
        _databases.drop_below(folder)
