"""The tables that have the leaves of a collection, as parts of statements."""

from psycopg import sql

from hrag.engine.postgres.store.opened_collection import OpenedCollection
from hrag.engine.postgres.store.queries import table_names


def tables_of(collection: OpenedCollection) -> tuple[sql.Composable, ...]:
    """The tables of a collection's leaves: the shared one, or the two of its home."""
    if collection.home is None:
        return (sql.SQL("hrag.leaves"),)
    return tables_of_home(collection.home)


def tables_of_home(home: int) -> tuple[sql.Composable, ...]:
    """The table of a home with the index, and its tail."""
    return tuple(sql.Identifier(*name) for name in table_names(home))
