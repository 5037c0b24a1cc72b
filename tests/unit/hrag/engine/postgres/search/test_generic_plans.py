"""Plans look up leaves and documents by their keys, even in a store of many tenants.

PostgreSQL caches a generic plan for a frequent statement and uses the plan with any parameters.
In a store of many tenants, PostgreSQL estimates that a collection has only a few leaves.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hrag.engine import Snapshot
from hrag.engine.find import VALUES, FindRequest
from hrag.engine.postgres.search.reader import PostgresReader
from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.postgres.write.writer import PostgresWriter
from hrag.filters import Exists, Match
from hrag.types import Retrieval, SearchMode
from hrag.values.ids import parse_chunk_id
from tests.support.documents.fakes import collection_settings, query_vector
from tests.support.documents.vocabulary import wordy
from tests.support.engines.postgres_plans import nodes, plans

pytestmark = pytest.mark.postgres

SMALL_COLLECTIONS = 100
LARGE_DOCUMENTS = 400
REQUEST = FindRequest(
    query_vector(1),
    SearchMode.SMALL_TO_BIG,
    1,
    limit=5,
    candidates=50,
    text="water pump steam valve",
    retrieval=Retrieval.HYBRID,
)


def _find(**options: Any) -> Callable[[Snapshot], Any]:
    return lambda snapshot: snapshot.find(replace(REQUEST, **options), VALUES)


@pytest.fixture
def reader(database: PostgresDatabase, writer: PostgresWriter) -> PostgresReader:
    """A reader of a store with many small collections, a larger one, and current statistics."""
    for number in range(SMALL_COLLECTIONS):
        tenant_id = f"small{number}"
        writer.create_collection(tenant_id, "c", collection_settings())
        writer.put(writer.open(tenant_id, "c"), wordy("d", number))
    writer.create_collection("t", "c", collection_settings())
    large = writer.open("t", "c")
    writer.put_many(
        [
            (large, wordy(f"d{n}", n, sentences=12, metadata={"n": n}))
            for n in range(LARGE_DOCUMENTS)
        ]
    )
    with database.autocommit() as connection:
        connection.execute("ANALYZE")
    return PostgresReader(database)


@pytest.mark.parametrize(
    "read",
    [
        _find(),
        _find(retrieval=Retrieval.LEXICAL),
        _find(retrieval=Retrieval.DENSE),
        _find(mode=SearchMode.AUTO_MERGE),
        _find(filter=Exists("document_id")),
        lambda snapshot: snapshot.chunk(parse_chunk_id("d5#0.0")),
    ],
    ids=["hybrid", "lexical", "dense", "auto-merge", "filtered", "chunk"],
)
def test_a_generic_plan_looks_up_leaves_and_documents_by_their_keys(
    database: PostgresDatabase, reader: PostgresReader, read: Callable[[Snapshot], Any]
) -> None:
    with (
        plans(database, "force_generic_plan") as statement_plans,
        reader.snapshot("t", "c") as snapshot,
    ):
        read(snapshot)
    all_nodes = [node for plan in statement_plans for node in nodes(plan["Plan"])]
    compared = [below for node in all_nodes if "Join Filter" in node for below in nodes(node)]
    assert [node for node in compared if node.get("Relation Name") in ("documents", "leaves")] == []
    looked_up = [
        node
        for node in all_nodes
        if node.get("Relation Name") == "documents"
        and node["Node Type"] == "Index Scan"
        and "document_id = " not in node["Index Cond"]
    ]
    assert looked_up != []
    assert [node for node in looked_up if "(ordinal " not in node.get("Index Cond", "")] == []


@pytest.mark.usefixtures("reader")
def test_a_listing_with_a_filter_reads_only_documents_that_pass(
    database: PostgresDatabase,
) -> None:
    """Reading all documents in the order of their ids would need no sort, but would take long."""
    handle = PostgresWriter(database).open("t", "c")
    with plans(database, "auto") as statement_plans:
        listed = PostgresWriter(database).documents(
            handle, 10, "", filter=Match("metadata.n", (5.0,))
        )
    assert [info.document_id for info in listed.items] == ["d5"]
    read = [
        node
        for plan in statement_plans
        for node in nodes(plan["Plan"])
        if node.get("Relation Name") == "documents"
    ]
    assert read != []
    assert [node for node in read if "(ordinal " not in node.get("Index Cond", "")] == []
