"""A Citus cluster that exists already, with a database for each test.

The cluster is for tests alone, because its roles get the passwords of tests. A DSN names the
coordinator and a superuser, who can log in to all nodes with the same password. The database of
the DSN has the extension citus, and its nodes are known there.

Each database exists on all nodes. It is a copy of a template that is prepared as
docs/operations/postgres.md tells operators: with the extensions, the nodes, the roles, the schema
and the distribution of its tables. Engines log in as `hrag`, with the rights of a service. Copying
a database takes seconds, so a database that a test has used is emptied for the next test.
"""

import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.support.manuals import ROOT
from tests.support.servers.postgres_server import (
    PASSWORD,
    PostgresServer,
    Prepare,
    installed_server,
)

# Roles belong to all databases, so only one process at a time may prepare a template.
_PREPARATION_LOCK = 34
_PASSWORD_FILES = ("owner", "service", "nodes")
# The time to copy and to drop a database grows with the count of its tables.
_END_CLIENTS = """
SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity
WHERE datname = current_database() AND usename IN ('hrag', 'hrag_owner')
  AND backend_type = 'client backend'
"""
# Names that begin like those of the shards of a table are left out.
_EMPTY = """
SELECT format('DROP TABLE hrag_homes.%I', relname) FROM pg_class
WHERE relnamespace = 'hrag_homes'::regnamespace AND relname ~ '^leaves_[0-9]+$' AND relkind = 'r'
UNION ALL SELECT format('DELETE FROM hrag.%I', relname) FROM pg_class
WHERE relnamespace = 'hrag'::regnamespace AND relname !~ '_[0-9]+$|^migrations$' AND relkind = 'r'
UNION ALL VALUES ('ALTER SEQUENCE hrag.home_ids RESTART'),
  ('ALTER SEQUENCE hrag.collection_ids RESTART')
"""
_FEW_SHARDS = "-c citus.shard_count=8"


class CitusCluster(PostgresServer):
    """The cluster as a server of databases. It cannot be started, stopped or killed."""

    # Its servers write durably, so a checkpoint for FILE_COPY takes longer than the WAL.
    _strategy = "WAL_LOG"

    def __init__(self, dsn: str, prepare: Prepare) -> None:
        """Connects to the coordinator. `prepare` creates the schema in an empty database."""
        self._superuser = dsn
        self._main = str(conninfo_to_dict(dsn)["dbname"])
        self._prepare = prepare
        self._token = f"citus_test_{secrets.token_hex(4)}"
        self._database_numbers = count(1)
        self._emptied: list[str] = []
        self._nodes = self.run(
            "SELECT nodename, nodeport, groupid FROM pg_dist_node"
            " WHERE noderole = 'primary' AND isactive ORDER BY groupid"
        )
        assert self._nodes[0][2] == 0, "add the coordinator by citus_set_coordinator_host"

    @property
    def binaries(self) -> Path:
        return installed_server() / "pginstall" / "bin"

    def dsn(self, database: str = "postgres", user: str = "hrag", **more: object) -> str:
        """Returns the DSN of a connection to the coordinator; its default user is a service."""
        options: dict[str, Any] = {"user": user, "password": PASSWORD} | more
        return make_conninfo(self._superuser, dbname=self._database(database), **options)

    def tcp_dsn(self, database: str = "postgres", user: str = "hrag", **more: object) -> str:
        return self.dsn(database, user, **more)

    def connect(self, database: str = "postgres", **options: Any) -> psycopg.Connection[Any]:
        dsn = make_conninfo(self._superuser, dbname=self._database(database))
        return psycopg.connect(dsn, **{"autocommit": True} | options)

    def empty_database(self) -> str:
        """Creates a database with a schema, because a service cannot distribute the tables."""
        return self.new_database()

    def new_database(self) -> str:
        return self._emptied.pop() if self._emptied else super().new_database()

    def drop(self, database: str) -> None:
        """Empties the database for the next test; drops it if this fails."""
        try:
            self._empty(database)
        except psycopg.Error:
            super().drop(database)
        else:
            self._emptied.append(database)

    def close(self) -> None:
        """Drops the template and the emptied databases. The roles stay."""
        databases = [*self._emptied, *([self._template] if "_template" in vars(self) else [])]
        for database in databases:
            super().drop(database)

    def _empty(self, database: str) -> None:
        with self.connect(database) as connection:
            connection.execute(_END_CLIENTS)
            for (statement,) in connection.execute(_EMPTY).fetchall():
                connection.execute(statement)

    def _database(self, name: str) -> str:
        return self._main if name == "postgres" else name

    def _create(self, kind: str, template: str) -> str:
        name = super()._create(f"{self._token}_{kind}", template)
        # A copy of a database does not get its settings.
        self._run_outside(
            "INSERT INTO pg_db_role_setting SELECT copy.oid, setrole, setconfig"
            " FROM pg_db_role_setting JOIN pg_database AS original ON original.oid = setdatabase,"
            " pg_database AS copy"
            f" WHERE original.datname = '{template}' AND copy.datname = '{name}'"
        )
        return name

    def _run_outside(self, statement: str) -> None:
        """Runs a statement on all nodes, in the main database of each."""
        with self.connect() as connection:
            rows = connection.execute(
                "SELECT result FROM run_command_on_all_nodes(%s) WHERE NOT success", (statement,)
            ).fetchall()
        assert not rows, f"{statement}: {rows}"

    @cached_property
    def _template(self) -> str:
        with self.connect() as connection:
            connection.execute("SELECT pg_advisory_lock(%s)", (_PREPARATION_LOCK,))
            name = self._create("template", "template0")
            try:
                self._fill(name)
            except BaseException:
                self.drop(name)
                raise
        return name

    def _fill(self, name: str) -> None:
        """Prepares a database in the order of docs/operations/postgres.md."""
        for host, port, _ in self._nodes:
            node = make_conninfo(self._superuser, host=host, port=port, dbname=name)
            with psycopg.connect(node, autocommit=True) as connection:
                connection.execute("CREATE EXTENSION citus")
                connection.execute("CREATE EXTENSION vector")
        with self.connect(name) as connection:
            for host, port, group in self._nodes:
                add = "citus_add_node" if group else "citus_set_coordinator_host"
                connection.execute(f"SELECT {add}(%s, %s)", (host, port))
        with _password_files() as folder:
            self._run_script(name, ROOT / "deploy" / "postgres" / "roles.sql", folder)
            self._tell_passwords(name)
            assert self._prepare is not None
            self._prepare(self.dsn(name, "hrag_owner", options=_FEW_SHARDS))
            self._run_script(name, ROOT / "deploy" / "citus.sql", folder)
        # A database that is in use cannot be copied. Citus itself is connected to it.
        self._run_outside(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        self._run_outside(
            "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity"
            f" WHERE datname = '{name}'"
        )

    def _tell_passwords(self, name: str) -> None:
        """Lets nodes log in to each other. Operators have a file of passwords on each node."""
        with self.connect(name) as connection:
            connection.execute(
                "INSERT INTO pg_dist_authinfo (nodeid, rolename, authinfo)"
                " SELECT 0, rolname, %s FROM pg_roles WHERE rolname LIKE 'hrag%%'",
                (make_conninfo(password=PASSWORD),),
            )

    def _run_script(self, database: str, script: Path, folder: Path) -> None:
        dsn = make_conninfo(self._superuser, dbname=database)
        program = [str(self.binaries / "psql"), "--no-psqlrc", "--quiet"]
        program += ["--set", "ON_ERROR_STOP=1", "--set", f"secrets={folder}"]
        program += ["--dbname", dsn, "--file", str(script)]
        ended = subprocess.run(program, check=False, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr


@contextmanager
def _password_files() -> Iterator[Path]:
    """Provides the folder with passwords that the scripts read."""
    with TemporaryDirectory(prefix="hrag-citus-") as folder:
        for name in _PASSWORD_FILES:
            (Path(folder) / name).write_text(PASSWORD)
        yield Path(folder)
