"""The version of a store's schema, and how an older store becomes a newer one.

A migration is a file of SQL, `migrations/NNNN_name.sql`. They run in order, each in a
transaction that also writes its number to hrag.migrations; there is no way back. A lock of the
database orders processes that start together. What a released version of hrag has run is never
edited: a change is a new file.
"""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import psycopg

from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.database import Database
from hrag.engine.reports import MigrationReport
from hrag.values.errors import StoreMissing, StoreUnavailable

MIGRATION_LOCK = int.from_bytes(b"hrag")
"""The key of the advisory lock under which a migration runs."""

_OLDEST_SERVER = 18  # reverse(bytea), by which integers are read from packed trees.
_OLDEST_VECTOR = (0, 8)  # Iterative scans.

# Not to_regclass: in a transaction that waited for the lock it may still know nothing of a
# schema that another one has just made.
_HAS_MIGRATIONS = """
SELECT 1 FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = 'hrag' AND relname = 'migrations'
"""
_PLACE_OF_VECTOR = """
SELECT quote_ident(nspname), to_regtype('halfvec') IS NOT NULL
FROM pg_extension JOIN pg_namespace ON pg_namespace.oid = extnamespace WHERE extname = 'vector'
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One step: from the version before `version` to it."""

    version: int
    name: str
    script: bytes


@cache
def migrations() -> tuple[Migration, ...]:
    """Returns all migrations that this version of hrag has, oldest first."""
    folder = files("hrag.engine.postgres.store") / "migrations"
    found = []
    for file in folder.iterdir():
        number, _, name = file.name.removesuffix(".sql").partition("_")
        found.append(Migration(int(number), name, file.read_bytes()))
    return tuple(sorted(found, key=lambda each: each.version))


def newest_version() -> int:
    """Returns the version of the schema that this version of hrag reads and writes."""
    return migrations()[-1].version


def migrate(database: Database) -> MigrationReport:
    """Brings the database to the newest version; creates the store if there is none.

    May run in several processes at once, and stops between two versions if it is interrupted; a
    new store has the newest version from its first moment.
    Raises StoreUnavailable, with what to do, if the server, pgvector or the role do not suffice
    or the store is of a newer version of hrag.
    """
    with database.write() as connection:
        before = after = _locked_version(connection)
        _require_known(before)
        _require_server(connection)
        _require_vector(connection)
        if before == 0:
            # In one transaction: who looks at the database meanwhile sees no store, not an old one.
            for migration in migrations():
                _run(connection, migration)
            after = newest_version()
    for migration in migrations():
        with database.write() as connection:
            after = _locked_version(connection)
            if after == migration.version - 1:
                _run(connection, migration)
                after = migration.version
    return MigrationReport(before, after)


def _locked_version(connection: Connection) -> int:
    """Returns the version, which no other process changes until the transaction ends."""
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
    return _version_or_zero(connection)


def create_or_check(database: Database) -> None:
    """Creates the store in a database that has none; else as `check_version`."""
    with database.read() as connection:
        version = _version_or_zero(connection)
        if version > 0:
            _require_newest(version)
    if version == 0:
        migrate(database)


def check_version(connection: Connection) -> None:
    """Raises StoreUnavailable unless the store has the newest version; it says what helps.

    Raises StoreMissing if the database has no store.
    """
    version = _version_or_zero(connection)
    if version == 0:
        raise StoreMissing(
            f"the database {connection.info.dbname} holds no store; an indexer creates one"
        )
    _require_newest(version)


def _version_or_zero(connection: Connection) -> int:
    """Returns the version of the store; 0 if there is none."""
    if connection.execute(_HAS_MIGRATIONS).fetchone() is None:
        return 0
    newest = connection.execute("SELECT max(version) FROM hrag.migrations").fetchone()
    return (newest and newest[0]) or 0


def _run(connection: Connection, migration: Migration) -> None:
    connection.run_script(migration.script)
    connection.execute(
        "INSERT INTO hrag.migrations (version, name) VALUES (%s, %s)",
        (migration.version, migration.name),
    )


def _require_newest(version: int) -> None:
    _require_known(version)
    if version < newest_version():
        raise StoreUnavailable(
            f"the store has schema version {version}, this version of hrag needs "
            f"{newest_version()}: run hrag postgres migrate"
        )


def _require_known(version: int) -> None:
    if version > newest_version():
        raise StoreUnavailable(
            f"the store has schema version {version}, which a newer version of hrag has made; "
            f"this one knows {newest_version()}"
        )


def _require_server(connection: Connection) -> None:
    version = connection.info.server_version // 10_000
    if version < _OLDEST_SERVER:
        raise StoreUnavailable(
            f"the server is PostgreSQL {version}; hrag needs {_OLDEST_SERVER} or newer"
        )


def _require_vector(connection: Connection) -> None:
    """Installs pgvector in the database if it is not.

    Raises StoreUnavailable if it cannot, or if the role does not find pgvector's types.
    """
    needed = ".".join(map(str, _OLDEST_VECTOR))
    row = connection.execute(
        "SELECT installed_version, coalesce(installed_version, default_version)"
        " FROM pg_available_extensions WHERE name = 'vector'"
    ).fetchone()
    if row is None:
        raise StoreUnavailable(
            f"the server does not have pgvector: install version {needed} or newer on its machine"
        )
    installed, version = row
    if tuple(map(int, version.split(".")[:2])) < _OLDEST_VECTOR:
        helps = "ALTER EXTENSION vector UPDATE" if installed else "install that on its machine"
        raise StoreUnavailable(
            f"the server has pgvector {version}; hrag needs {needed} or newer: {helps}"
        )
    if not installed:
        _create_vector(connection)
    _require_found(connection)


def _create_vector(connection: Connection) -> None:
    try:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    except psycopg.errors.InsufficientPrivilege:
        raise StoreUnavailable(
            f"the role {connection.info.user} may not create the extension vector: let a "
            f"superuser run CREATE EXTENSION vector in the database {connection.info.dbname}"
        ) from None


def _require_found(connection: Connection) -> None:
    """Raises StoreUnavailable if pgvector's schema is not in the search path."""
    schema, is_found = connection.execute(_PLACE_OF_VECTOR).fetchone() or ("", True)
    if is_found:
        return
    info = connection.info
    raise StoreUnavailable(
        f"pgvector is in the schema {schema}, where the role {info.user} does not look: run "
        f'ALTER DATABASE {info.dbname} SET search_path = "$user", public, {schema}, and GRANT '
        f"USAGE ON SCHEMA {schema} to the roles of hrag; a role that has a search_path of its own "
        "needs ALTER ROLE ... SET search_path"
    )
