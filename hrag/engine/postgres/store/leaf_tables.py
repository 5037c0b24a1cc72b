"""Names, in SQL statements, the tables that store the leaves of a collection."""

from psycopg import sql

from hrag.engine.postgres.store.queries import table_names


def tables_of(home: int | None) -> tuple[sql.Composable, ...]:
    """Returns the table identifiers for the leaves of a collection.

    If `home` is the id of a home, which is a table with an HNSW index, returns this table, then the
    table `hrag.leaves`, which has the newest leaves of the collection: its tail. If `home` is None,
    returns only the table `hrag.leaves`.
    """
    return tuple(sql.Identifier(*name) for name in table_names(home))


def home_table(home: int) -> sql.Identifier:
    """Returns the identifier of the table of the home with this id."""
    return sql.Identifier(*table_names(home)[0])


def rendered(statement: sql.Composable) -> sql.SQL:
    """Renders a composed statement as one text, so that a cached statement is rendered only once.

    The statement may contain only names and numbers, because it is rendered without a connection.
    """
    return sql.SQL(statement.as_string())
