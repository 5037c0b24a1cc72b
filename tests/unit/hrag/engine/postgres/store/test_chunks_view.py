"""The view hrag.chunks shows users of SQL the same chunks as the engine returns."""

from typing import Any, NamedTuple

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hrag.engine.engine_documents import (
    DocumentSummaries,
    PreparedDocument,
    StoredDocument,
    Summary,
)
from hrag.engine.postgres.search.reader import PostgresReader
from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.postgres.write.writer import PostgresWriter
from hrag.types import SummaryUnit, TreeSettings
from hrag.values.ids import ChunkId
from tests.support.documents.fakes import (
    SMALL_TREE,
    collection_settings,
    prepared,
    sentences,
    unit_vectors,
)

pytestmark = pytest.mark.postgres

ONE_LEVEL = TreeSettings((64,), 0.0)
MANY_LEVELS = TreeSettings((32, 64, 128, 256, 512), 0.1)
NUL_SYMBOL = "\N{SYMBOL FOR NULL}"

Rows = list[tuple[Any, ...]]


class Row(NamedTuple):
    """A row of the view, with the columns in the order of the view."""

    id: str
    tenant_id: str
    document_id: str
    content: str
    level: int
    parent_id: str | None
    child_ids: list[str]
    token_count: int
    metadata: dict[str, Any]
    collection: str


def rows(dsn: str, condition: str = "true") -> list[Row]:
    """Returns the rows of the view that meet a condition, in ascending order."""
    statement = f"SELECT * FROM hrag.chunks WHERE {condition}"
    with psycopg.connect(dsn) as connection:
        return sorted(map(Row._make, connection.execute(statement)))


def expected(
    database: PostgresDatabase, document: PreparedDocument, tenant: str = "t", name: str = "c"
) -> list[Row]:
    """Returns the rows that the view must have for a document, from the chunks of the engine."""
    rows = []
    with PostgresReader(database).snapshot(tenant, name) as snapshot:
        for level, count in enumerate(document.tree.counts):
            for index in range(count):
                node = snapshot.chunk(ChunkId(document.document_id, level, index))
                chunk = node.chunk
                rows.append(
                    Row(
                        chunk.chunk_id,
                        tenant,
                        chunk.document_id,
                        chunk.content,
                        chunk.level,
                        node.parent_id or None,
                        list(node.child_ids),
                        chunk.token_count,
                        dict(chunk.metadata),
                        name,
                    )
                )
    return sorted(rows)


def store(
    database: PostgresDatabase,
    *documents: PreparedDocument,
    tenant: str = "t",
    name: str = "c",
    tree: TreeSettings = SMALL_TREE,
) -> None:
    writer = PostgresWriter(database)
    writer.create_collection(tenant, name, collection_settings(tree))
    for document in documents:
        writer.put(writer.open(tenant, name), document)


def plan_of(dsn: str, condition: str, columns: str = "*") -> str:
    """Returns the query plan of a query of the view."""
    statement = f"EXPLAIN SELECT {columns} FROM hrag.chunks WHERE {condition}"
    with psycopg.connect(dsn) as connection:
        connection.execute("ANALYZE hrag.documents, hrag.collections")
        return "\n".join(line for (line,) in connection.execute(statement))


TEXTS = st.one_of(
    st.integers(1, 60).map(sentences),
    st.text("雪は天から送られた手紙である。漢字と仮名、𠮷野家", min_size=1, max_size=200),
    st.text("👩🏽‍🚀🇪🇺é\u0301 ab\\\n'\"", min_size=1, max_size=200),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=300),
).filter(str.strip)
METADATA = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8),
    st.one_of(st.booleans(), st.integers(-9, 9), st.just("\\u0000 with \\ and ü"), st.none()),
    max_size=4,
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=TEXTS,
    metadata=METADATA,
    tree=st.sampled_from([SMALL_TREE, ONE_LEVEL, MANY_LEVELS]),
)
def test_the_view_has_the_chunks_that_the_engine_returns(
    database: PostgresDatabase,
    postgres_dsn: str,
    text: str,
    metadata: dict[str, Any],
    tree: TreeSettings,
) -> None:
    writer = PostgresWriter(database)
    chosen_settings = collection_settings(tree)
    writer.create_collection("t", "c", chosen_settings)
    document = prepared("d", text, chosen_settings, metadata=metadata)
    writer.put(writer.open("t", "c"), document)
    try:
        assert rows(postgres_dsn) == expected(database, document)
    finally:
        writer.delete_collection("t", "c")


def test_documents_with_the_same_id_in_two_collections_have_separate_chunks(
    database: PostgresDatabase, postgres_dsn: str
) -> None:
    long, short = prepared("d", sentences(3000)), prepared("d", sentences(3))
    store(database, long, name="long")
    store(database, short, name="short")
    store(database, prepared("other", sentences(2)), tenant="u")
    assert rows(postgres_dsn, "collection = 'long'") == expected(database, long, name="long")
    assert rows(postgres_dsn, "collection = 'short'") == expected(database, short, name="short")
    assert {row.tenant_id for row in rows(postgres_dsn, "tenant_id = 'u'")} == {"u"}


def test_the_view_has_the_columns_and_types_of_a_table_of_chunks(postgres_dsn: str) -> None:
    with psycopg.connect(postgres_dsn) as connection:
        columns = connection.execute(
            "SELECT column_name, data_type FROM information_schema.columns"
            " WHERE table_schema = 'hrag' AND table_name = 'chunks' ORDER BY ordinal_position"
        ).fetchall()
    assert columns == [
        ("id", "text"),
        ("tenant_id", "text"),
        ("document_id", "text"),
        ("content", "text"),
        ("level", "integer"),
        ("parent_id", "text"),
        ("child_ids", "ARRAY"),
        ("token_count", "integer"),
        ("metadata", "jsonb"),
        ("collection", "text"),
    ]


def test_a_nul_character_is_shown_as_its_symbol(
    database: PostgresDatabase, postgres_dsn: str
) -> None:
    metadata = {"a\0b": "\0", "kept": "\\u0000", "after": "\\\0"}
    store(database, prepared("d", "one\0two 雪\0", metadata=metadata))
    (top,) = rows(postgres_dsn, "parent_id IS NULL")
    assert top.content == f"one{NUL_SYMBOL}two 雪{NUL_SYMBOL}"
    assert top.metadata == {
        f"a{NUL_SYMBOL}b": NUL_SYMBOL,
        "kept": "\\u0000",
        "after": f"\\{NUL_SYMBOL}",
    }


def test_summaries_are_not_chunks(database: PostgresDatabase, postgres_dsn: str) -> None:
    writer = PostgresWriter(database)
    chosen_settings = collection_settings(summaries=SummaryUnit.CHUNK)
    writer.create_collection("t", "c", chosen_settings)
    document = prepared("d", sentences(60), chosen_settings)
    summary = Summary("What it is about.", range(len(document.vectors)))
    summaries = DocumentSummaries((summary,), unit_vectors(1, 0))
    writer.put_stored(writer.open("t", "c"), StoredDocument(document, summaries))
    with psycopg.connect(postgres_dsn) as connection:
        stored = connection.execute("SELECT count(*) FROM hrag.documents").fetchone()
    assert stored == (2,)
    assert rows(postgres_dsn) == expected(database, document)


def test_one_document_is_found_by_the_index(database: PostgresDatabase, postgres_dsn: str) -> None:
    store(database, *(prepared(f"d{number}", sentences(20)) for number in range(300)))
    for condition in (
        "tenant_id = 't' AND document_id = 'd7'",
        "tenant_id = 't' AND collection = 'c' AND document_id = 'd7' AND level = 0",
    ):
        plan = plan_of(postgres_dsn, condition)
        assert "documents_tenant_id_collection_id_document_id_key" in plan
        assert "Seq Scan on documents" not in plan


def test_columns_that_a_query_does_not_read_are_not_computed(
    database: PostgresDatabase, postgres_dsn: str
) -> None:
    store(database, prepared("d", sentences(20)))
    with psycopg.connect(postgres_dsn) as connection:
        # These bytes are not UTF-8, so a query that reads the text of a document now fails.
        connection.execute("UPDATE hrag.documents SET body = '\\xff'")
        counted = connection.execute("SELECT count(*), sum(token_count) FROM hrag.chunks")
        assert counted.fetchone() is not None
        with pytest.raises(psycopg.errors.CharacterNotInRepertoire):
            connection.execute("SELECT content FROM hrag.chunks WHERE level = 0 LIMIT 1")
    plan = plan_of(postgres_dsn, "level = 1", "id")
    # The outer side of the join drops the other levels before their chunks are read.
    assert plan.index("tree_levels") < plan.index("Filter: (level = 1)")
    assert plan.index("Filter: (level = 1)") < plan.index("level_chunks")


ANCESTORS = """
WITH RECURSIVE up AS (
    SELECT * FROM hrag.chunks WHERE tenant_id = 't' AND collection = 'c'
        AND document_id = 'd' AND level = 0 AND id = %s
    UNION ALL
    SELECT parent.* FROM up JOIN hrag.chunks AS parent
        ON parent.id = up.parent_id AND parent.level = up.level + 1
    WHERE parent.tenant_id = 't' AND parent.collection = 'c' AND parent.document_id = 'd'
) SELECT id FROM up ORDER BY level
"""
DESCENDANTS = """
WITH RECURSIVE down AS (
    SELECT id, child_ids, level FROM hrag.chunks WHERE tenant_id = 't' AND collection = 'c'
        AND document_id = 'd' AND id = %s
    UNION ALL
    SELECT child.id, child.child_ids, child.level FROM down JOIN hrag.chunks AS child
        ON child.parent_id = down.id AND child.level = down.level - 1
    WHERE child.tenant_id = 't' AND child.collection = 'c' AND child.document_id = 'd'
) SELECT id FROM down ORDER BY level DESC, id
"""


def test_recursive_queries_return_ancestors_and_descendants(
    database: PostgresDatabase, postgres_dsn: str
) -> None:
    document = prepared("d", sentences(2000), collection_settings(MANY_LEVELS))
    store(database, document, tree=MANY_LEVELS)
    leaf = document.tree.counts[0] - 1
    with psycopg.connect(postgres_dsn) as connection:
        ancestors = [row[0] for row in connection.execute(ANCESTORS, (f"d#0.{leaf}",))]
        descendants = [row[0] for row in connection.execute(DESCENDANTS, (ancestors[-1],))]
    with PostgresReader(database).snapshot("t", "c") as snapshot:
        above = snapshot.hierarchy(ChunkId("d", 0, leaf), 0, content=False).ancestors
        top = ChunkId("d", document.tree.top_level, document.tree.counts[-1] - 1)
        below = snapshot.hierarchy(top, 7, content=False).descendants
    assert ancestors == [f"d#0.{leaf}", *(node.chunk.chunk_id for node in above)]
    assert set(descendants) == {str(top), *(node.chunk.chunk_id for node in below)}


def test_the_view_is_read_only(database: PostgresDatabase, postgres_dsn: str) -> None:
    store(database, prepared("d", sentences(2)))
    with (
        psycopg.connect(postgres_dsn) as connection,
        pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState),
    ):
        connection.execute("DELETE FROM hrag.chunks")
