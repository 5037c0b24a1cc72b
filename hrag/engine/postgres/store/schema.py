"""Creates the schema of a store and migrates it to newer versions.

A migration is an SQL file, `migrations/NNNN_name.sql`, where NNNN is the schema version that it
creates. Migrations run in order. Each one runs in a transaction that also writes its version to
hrag.migrations. A migration cannot be undone. An advisory lock of the database prevents two
processes from running migrations at the same time. Once a version of hrag is released, the
statements of its migrations are never edited: a change of the schema needs a new file.

In a database with nodes of Citus, the tables are then distributed over the nodes.
"""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import LiteralString

import psycopg

from hrag.engine.postgres.store.cluster import has_citus, is_distributed
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.reports import MigrationReport
from hrag.values.errors import DatabaseRefused, StoreMissing, StoreUnusable

MIGRATION_LOCK = int.from_bytes(b"hrag")
"""The key of the advisory lock that the transaction of each migration acquires."""

OLDEST_SERVER = 18
"""The oldest major version of PostgreSQL that can have a store.

PostgreSQL 18 introduced reverse(bytea), with which SQL functions of hrag read the little-endian
integers of stored trees.
"""

# The oldest version of pgvector that hrag supports. It introduced iterative scans.
_OLDEST_VECTOR = (0, 8)

# The query does not use to_regclass: in a transaction that waited for MIGRATION_LOCK, to_regclass
# may not see a schema that another transaction has just created.
_HAS_MIGRATIONS = """
SELECT 1 FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = 'hrag' AND relname = 'migrations'
"""
_VECTOR_SCHEMA = """
SELECT quote_ident(nspname), to_regtype('halfvec') IS NOT NULL
FROM pg_extension JOIN pg_namespace ON pg_namespace.oid = extnamespace WHERE extname = 'vector'
"""
_COUNT_NODES = """
SELECT count(*) FROM pg_dist_node WHERE shouldhaveshards AND isactive AND noderole = 'primary'
"""
_LOGIN_RIGHT = "SELECT rolname, rolcanlogin FROM pg_roles WHERE rolname = current_user"
_CREATION_RIGHT = "SELECT current_user, has_database_privilege(current_database(), 'CREATE')"
_COUNT_DISTRIBUTED = """
SELECT count(*) FROM pg_dist_partition JOIN pg_class ON pg_class.oid = logicalrelid
WHERE relnamespace = 'hrag'::regnamespace
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """The step from the previous schema version to `version`."""

    version: int
    name: str
    script: bytes


@cache
def migrations() -> tuple[Migration, ...]:
    """Returns all migrations of this version of hrag, oldest first."""
    folder = files("hrag.engine.postgres.store") / "migrations"
    steps = []
    for file in folder.iterdir():
        number, _, name = file.name.removesuffix(".sql").partition("_")
        steps.append(Migration(int(number), name, file.read_bytes()))
    return tuple(sorted(steps, key=lambda migration: migration.version))


def newest_version() -> int:
    """Returns the schema version that this version of hrag reads and writes."""
    return migrations()[-1].version


def migrate(database: PostgresDatabase, *, oldest_server: int = OLDEST_SERVER) -> MigrationReport:
    """Migrates the database to the newest schema version; creates the store if it does not exist.

    Several processes may call this function at once. If it is interrupted, the store has the
    version of the last complete migration. A new store is created in one transaction, so other
    transactions see it only in the newest version. If the database has nodes of Citus, one
    transaction at the end distributes the tables that are not distributed yet.

    Raises StoreUnusable if the server is older than `oldest_server` or if a newer version of hrag
    has migrated the store, and DatabaseRefused if pgvector is missing or too old or if the role
    lacks a right. The message says what to do.
    """
    with database.write() as connection:
        before = after = _lock_version(connection)
        _require_known(before)
        _require_server(connection, oldest_server)
        _require_vector(connection)
        if before == 0:
            # One transaction runs all migrations, so other transactions see either no store or a
            # store in the newest version.
            for migration in migrations():
                _run_migration(connection, migration)
            after = newest_version()
    for migration in migrations():
        with database.write() as connection:
            after = _lock_version(connection)
            if after == migration.version - 1:
                _run_migration(connection, migration)
                after = migration.version
    # This is a transaction of its own because Citus uses connections of a superuser to create what
    # the tables depend on. These connections see only what is committed.
    with database.write() as connection:
        _lock_version(connection)
        distributed, lacks_nodes = _distribute_tables(connection)
    return MigrationReport(before, after, distributed, lacks_nodes)


def _lock_version(connection: Connection) -> int:
    """Prevents migrations by other processes until this transaction ends.

    Returns the schema version of the store; 0 if there is no store.
    """
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
    return _read_version(connection)


def create_or_check(database: PostgresDatabase) -> None:
    """Creates the store if the database has none; otherwise checks its schema version.

    Raises StoreUnusable if the store does not have the newest version, and DatabaseRefused if the
    nodes of a Citus cluster would refuse the role or if the role may not create a store. When it
    creates a store, it also raises the errors of `migrate`.
    """
    with database.read() as connection:
        version = _read_version(connection)
        if version > 0:
            _require_newest(version)
            _require_login_to_nodes(connection)
        else:
            _require_right_to_create(connection)
    if version == 0:
        migrate(database)


def check_version(connection: Connection) -> None:
    """Raises StoreUnusable if the store does not have the newest schema version.

    Raises DatabaseRefused if the nodes of a Citus cluster would refuse the role. The message names
    the command to run. Raises StoreMissing if the database has no store.
    """
    version = _read_version(connection)
    if version == 0:
        raise StoreMissing(
            f"the database {connection.info.dbname} holds no store; an indexer creates one"
        )
    _require_newest(version)
    _require_login_to_nodes(connection)


def _read_version(connection: Connection) -> int:
    """Returns the schema version of the store; 0 if there is no store."""
    if connection.execute(_HAS_MIGRATIONS).fetchone() is None:
        return 0
    newest = connection.execute("SELECT max(version) FROM hrag.migrations").fetchone()
    return (newest and newest[0]) or 0


def _run_migration(connection: Connection, migration: Migration) -> None:
    connection.run_script(migration.script)
    connection.execute(
        "INSERT INTO hrag.migrations (version, name) VALUES (%s, %s)",
        (migration.version, migration.name),
    )


def _distribute_tables(connection: Connection) -> tuple[int, bool]:
    """Distributes the tables over the nodes of Citus, if the database has such nodes.

    Returns how many tables were distributed, and True if the database has Citus but no such node.
    Tables that were distributed before do not count.
    """
    if not has_citus(connection):
        return 0, False
    if not _count(connection, _COUNT_NODES):
        return 0, True
    before = _count(connection, _COUNT_DISTRIBUTED)
    connection.execute("CALL hrag.distribute_tables()")
    return _count(connection, _COUNT_DISTRIBUTED) - before, False


def _count(connection: Connection, statement: LiteralString) -> int:
    (number,) = connection.execute(statement).fetchone() or (0,)
    return int(number)


def _require_newest(version: int) -> None:
    _require_known(version)
    if version < newest_version():
        raise StoreUnusable(
            f"the store has schema version {version}, this version of hrag needs "
            f"{newest_version()}: run hrag postgres migrate"
        )


def _require_right_to_create(connection: Connection) -> None:
    role, may_create = connection.execute(_CREATION_RIGHT).fetchone() or ("", True)
    if not may_create:
        raise DatabaseRefused(
            f"the database {connection.info.dbname} holds no store, and the role {role} may not "
            "create one: run hrag postgres migrate as the owner"
        )


def _require_login_to_nodes(connection: Connection) -> None:
    """Raises DatabaseRefused if the tables are on nodes of Citus that would refuse the role.

    Citus logs in to nodes as the current role. The role of the services may do so only after
    deploy/citus.sql has run.
    """
    if not is_distributed(connection):
        return
    role, can_log_in = connection.execute(_LOGIN_RIGHT).fetchone() or ("", True)
    if not can_log_in:
        raise DatabaseRefused(
            f"the nodes of Citus would refuse the role {role}, which may not log in: let a "
            "superuser run deploy/citus.sql on the coordinator"
        )


def _require_known(version: int) -> None:
    if version > newest_version():
        raise StoreUnusable(
            f"the store has schema version {version}, which a newer version of hrag has created; "
            f"this version supports schema version {newest_version()}"
        )


def _require_server(connection: Connection, oldest_server: int) -> None:
    version = connection.info.server_version // 10_000
    if version < oldest_server:
        raise StoreUnusable(
            f"the server is PostgreSQL {version}; hrag needs {oldest_server} or newer"
        )


def _require_vector(connection: Connection) -> None:
    """Installs the extension pgvector in the database if it is not installed.

    Raises DatabaseRefused if pgvector cannot be installed, if it is too old, or if its types are
    not in the search path of the role.
    """
    needed = ".".join(map(str, _OLDEST_VECTOR))
    row = connection.execute(
        "SELECT installed_version, coalesce(installed_version, default_version)"
        " FROM pg_available_extensions WHERE name = 'vector'"
    ).fetchone()
    if row is None:
        raise DatabaseRefused(
            f"the server does not have pgvector; install version {needed} or newer on the "
            "server's machine"
        )
    installed, version = row
    if tuple(map(int, version.split(".")[:2])) < _OLDEST_VECTOR:
        remedy = (
            "ALTER EXTENSION vector UPDATE"
            if installed
            else "install a newer version on the server's machine"
        )
        raise DatabaseRefused(
            f"the server has pgvector {version}; hrag needs {needed} or newer: {remedy}"
        )
    if not installed:
        _create_vector(connection)
    _require_vector_in_path(connection)


def _create_vector(connection: Connection) -> None:
    try:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    except psycopg.errors.InsufficientPrivilege:
        raise DatabaseRefused(
            f"the role {connection.info.user} may not create the extension vector: let a "
            f"superuser run CREATE EXTENSION vector in the database {connection.info.dbname}"
        ) from None


def _require_vector_in_path(connection: Connection) -> None:
    """Raises DatabaseRefused if pgvector's schema is not in the search path."""
    schema, is_in_path = connection.execute(_VECTOR_SCHEMA).fetchone() or ("", True)
    if is_in_path:
        return
    info = connection.info
    raise DatabaseRefused(
        f"pgvector is in the schema {schema}, which is not in the search path of {info.user}: run "
        f'ALTER DATABASE {info.dbname} SET search_path = "$user", public, {schema}, and GRANT '
        f"USAGE ON SCHEMA {schema} to the roles of hrag; a role with a separate search_path "
        "needs ALTER ROLE ... SET search_path"
    )
