"""The SQL examples in the manuals run and return rows."""

from collections.abc import Iterator

import psycopg
import pytest

from hrag.engine.engine_documents import CollectionHandle
from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.postgres.write.writer import PostgresWriter
from tests.support.documents.fakes import collection_settings, prepared, sentences
from tests.support.manuals import ROOT, blocks
from tests.support.servers.postgres_server import PostgresServer

pytestmark = pytest.mark.postgres

SQL = [block.text for block in blocks(ROOT / "docs/guide/sql.md", "sql")]
OPERATIONS = [block.text for block in blocks(ROOT / "docs/operations/postgres.md", "sql")]


@pytest.fixture
def filled(
    database: PostgresDatabase, postgres: PostgresServer, postgres_dsn: str
) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A connection to a store with the document of the examples.

    The first statements of the examples create a role, which is dropped after the test.
    """
    writer = PostgresWriter(database)
    writer.create_collection("acme", "docs", collection_settings())
    writer.put(writer.open("acme", "docs"), prepared("handbook", sentences(80)))
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        yield connection
    postgres.run("DROP ROLE analyst")


def test_every_query_of_the_guide_returns_rows(
    filled: psycopg.Connection[tuple[object, ...]],
) -> None:
    rights, *queries = SQL
    filled.execute(rights)
    assert len(queries) == 5
    for statements in queries:
        cursor = filled.execute(statements)
        while cursor.nextset():
            pass
        assert cursor.fetchall(), statements


def test_the_query_of_the_runbook_returns_the_indexes_to_rebuild(
    in_home: CollectionHandle, postgres_dsn: str
) -> None:
    (statement,) = (example for example in OPERATIONS if "REINDEX" in example)
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        rows = connection.execute(statement).fetchall()
        assert len(rows) == 1
        for (reindex,) in rows:
            connection.execute(reindex)
