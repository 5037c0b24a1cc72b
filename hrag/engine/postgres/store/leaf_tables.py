"""The tables that have the leaves of a collection in statements, and the text of these."""

from psycopg import sql

from hrag.engine.postgres.store.queries import table_names


def tables_of(home: int | None) -> tuple[sql.Composable, ...]:
    """The table of a home with the index, and its tail; the shared table if there is no home."""
    return tuple(sql.Identifier(*name) for name in table_names(home))


def rendered(statement: sql.Composable) -> sql.SQL:
    """The text of a statement that is composed of names and numbers, to be kept."""
    return sql.SQL(statement.as_string())
