"""The tables that store the leaves of a collection, as parts of SQL statements."""

from psycopg import sql

from hrag.engine.postgres.store.queries import table_names


def tables_of(home: int | None) -> tuple[sql.Composable, ...]:
    """Returns the table identifiers for the leaves of a collection.

    With a `home`, they are the home's table with the HNSW index and its tail. Without one, it is
    the table that all collections share.
    """
    return tuple(sql.Identifier(*name) for name in table_names(home))


def rendered(statement: sql.Composable) -> sql.SQL:
    """Renders a statement that is composed of names and numbers, so that it can be cached."""
    return sql.SQL(statement.as_string())
