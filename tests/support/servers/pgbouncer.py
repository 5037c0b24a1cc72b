"""PgBouncer in front of a server, with a pool of two server connections for all callers.

PgBouncer runs with `pool_mode = transaction`: it assigns a server connection to a client for one
transaction. It must be installed on the machine. The package of Debian 13 is new enough.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg

from hrag.cli.processes import free_addresses
from tests.support.servers.postgres_server import PostgresServer, unprivileged
from tests.support.until import until

_OLDEST_VERSION = (1, 22)
_CONFIGURATION = """\
[databases]
* = host={server} port={server_port}
[pgbouncer]
pool_mode = transaction
default_pool_size = 2
max_prepared_statements = 50
auth_type = trust
auth_file = {home}/users
unix_socket_dir = {home}
listen_port = {port}
listen_addr = 127.0.0.1
"""


def why_not() -> str:
    """Returns the reason why PgBouncer cannot be started here; empty if it can."""
    program = shutil.which("pgbouncer")
    if program is None:
        return "pgbouncer is not installed"
    output = subprocess.run([program, "--version"], check=True, capture_output=True, text=True)
    version = re.search(r"(\d+)\.(\d+)", output.stdout)
    if version is None or (int(version[1]), int(version[2])) < _OLDEST_VERSION:
        oldest = ".".join(map(str, _OLDEST_VERSION))
        return f"pgbouncer is older than {oldest}: {output.stdout.splitlines()[0]}"
    return ""


@contextmanager
def pooling(server: PostgresServer, database: str) -> Iterator[str]:
    """Runs PgBouncer; yields the DSN of a connection through PgBouncer to `database`."""
    with TemporaryDirectory(prefix="hrag-pgbouncer-") as folder:
        home = Path(folder)
        port = free_addresses(1)[0].rpartition(":")[2]
        settings = {"home": home, "port": port, "server": server.home, "server_port": server.port}
        (home / "configuration").write_text(_CONFIGURATION.format(**settings), "utf-8")
        (home / "users").write_text('"postgres" ""\n', "utf-8")
        user = unprivileged(home)
        program = [shutil.which("pgbouncer") or "", home / "configuration"]
        with (home / "log").open("wb") as log:
            process = subprocess.Popen(program, stdout=log, stderr=log, cwd=home, **user)
        dsn = psycopg.conninfo.make_conninfo(
            host=folder, port=port, dbname=database, user="postgres"
        )
        try:
            until(lambda: _accepts(dsn, process, home / "log"))
            yield dsn
        finally:
            process.terminate()
            process.wait()


def _accepts(dsn: str, process: "subprocess.Popen[bytes]", log: Path) -> bool:
    assert process.poll() is None, log.read_text("utf-8", "replace")
    try:
        psycopg.connect(dsn).close()
    except psycopg.OperationalError:
        return False
    return True
