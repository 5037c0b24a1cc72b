"""Every engine that stores on a disk keeps this promise about documents that it cannot read."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from psycopg import sql

from hrag.engine.engine_documents import UnreadableVersion
from hrag.types import SummaryUnit
from tests.contract.conftest import Case
from tests.support.documents.fakes import collection_settings, prepared, sentences
from tests.support.engines.summary_model import EMBEDDER
from tests.unit.hrag.engine.embedded.store.bits import flip

SUMMARISED = collection_settings(summaries=SummaryUnit.CHUNK)

_IN_POSTGRES = {
    "document": ("documents", "record", "'[]'"),
    "text": ("documents", "body", r"'\xff'"),
    "tree": ("documents", "tree", "''"),
    "collection": ("collections", "record", "record - 'name'"),
}


@contextmanager
def _damaged_store(case: Case, collection_id: int, kind: str) -> Iterator[None]:
    """Flips a bit in the first record of an LMDB database, and flips it back after the block."""
    assert case.store is not None
    database = {"document": "documents", "collection": "collections"}.get(kind, "texts")
    key = collection_id.to_bytes(4) if kind == "collection" else b""
    flip(case.store, database, key)
    yield
    flip(case.store, database, key)


@contextmanager
def _damaged_database(case: Case, collection_id: int, kind: str) -> Iterator[None]:
    """Replaces a value in the first row of a table of PostgreSQL; restores it after the block."""
    table, column, damage = _IN_POSTGRES[kind]
    assert case.connect is not None
    rows = f"WHERE tenant_id = 't' AND collection_id = {collection_id}"
    with case.connect() as connection:
        if table == "documents":
            first = connection.execute(f"SELECT min(ordinal) FROM hrag.{table} {rows}").fetchone()
            rows += f" AND ordinal = {first[0]}"
        (saved,) = connection.execute(f"SELECT {column}::text FROM hrag.{table} {rows}").fetchone()
        connection.execute(f"UPDATE hrag.{table} SET {column} = {damage} {rows}")
        yield
        restore = sql.SQL(f"UPDATE hrag.{table} SET {column} = {{}} {rows}")
        connection.execute(restore.format(sql.Literal(saved)))


DAMAGED: dict[str, Callable[[Case, int, str], AbstractContextManager[None]]] = {
    "embedded": _damaged_store,
    "postgres": _damaged_database,
}
ENGINES = ["embedded", pytest.param("postgres", marks=pytest.mark.postgres)]


@pytest.mark.parametrize("catalog", ENGINES, indirect=True)
@pytest.mark.parametrize("kind", ["document", "text", "tree", "collection"])
def test_a_damaged_document_does_not_stop_the_summaries_of_other_documents(
    catalog: Case, kind: str
) -> None:
    """The first document of the tenant `t`, or the record of its collection, is damaged.

    The error has a version. If this version is excluded, the other documents are returned to be
    summarised, except those of a damaged collection.
    """
    writer = catalog.writer
    for tenant_id in ("t", "other"):
        writer.create_collection(tenant_id, "c", SUMMARISED)
        collection = writer.open(tenant_id, "c")
        for number in range(2):
            writer.put(collection, prepared(f"{tenant_id}{number}", sentences(9), SUMMARISED))
    collection_id = writer.open("t", "c").collection_id
    document_ids, excluded = [], []
    with DAMAGED[catalog.engine.name](catalog, collection_id, kind):
        with pytest.raises(UnreadableVersion, match="damaged") as caught:
            writer.next_unsummarised(EMBEDDER)
        excluded.append(caught.value.version)
        while document := writer.next_unsummarised(EMBEDDER, None, excluded):
            document_ids.append(document.document_id)
            excluded.append(document.version)
    assert document_ids == [*([] if kind == "collection" else ["t1"]), "other0", "other1"]
    assert len(set(excluded)) == len(excluded)
