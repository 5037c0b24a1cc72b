"""What engines that have a disk promise about documents that they cannot read."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

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
def _damaged_store(engine: Any, collection: int, what: str) -> Iterator[None]:
    database = {"document": "documents", "collection": "collections"}.get(what, "texts")
    key = collection.to_bytes(4) if what == "collection" else b""
    flip(engine._store, database, key)
    yield
    flip(engine._store, database, key)


@contextmanager
def _damaged_database(engine: Any, collection: int, what: str) -> Iterator[None]:
    table, column, value = _IN_POSTGRES[what]
    which = f"WHERE tenant_id = 't' AND collection_id = {collection}"

    def change(statement: str) -> None:
        with engine._primary_database().write() as connection:
            connection.run_script(statement.encode())

    change(f"CREATE TABLE hrag.saved AS SELECT * FROM hrag.{table} {which} LIMIT 1")
    first = "" if table == "collections" else "AND ordinal = (SELECT ordinal FROM hrag.saved)"
    change(f"UPDATE hrag.{table} SET {column} = {value} {which} {first}")
    yield
    change(f"UPDATE hrag.{table} SET {column} = (SELECT {column} FROM hrag.saved) {which} {first}")
    change("DROP TABLE hrag.saved")


DAMAGED: dict[str, Callable[[Any, int, str], AbstractContextManager[None]]] = {
    "embedded": _damaged_store,
    "postgres": _damaged_database,
}
ENGINES = ["embedded", pytest.param("postgres", marks=pytest.mark.postgres)]


@pytest.mark.parametrize("catalog", ENGINES, indirect=True)
@pytest.mark.parametrize("what", ["document", "text", "tree", "collection"])
def test_what_is_damaged_is_skipped_by_its_version(catalog: Case, what: str) -> None:
    """Of the tenant `t`, whose document came first, everything else waits on."""
    writer = catalog.writer
    for tenant_id in ("t", "other"):
        writer.create_collection(tenant_id, "c", SUMMARISED)
        collection = writer.open(tenant_id, "c")
        for number in range(2):
            writer.put(collection, prepared(f"{tenant_id}{number}", sentences(9), SUMMARISED))
    number = writer.open("t", "c").collection_id
    found, excluded = [], []
    with DAMAGED[catalog.engine.name](catalog.engine, number, what):
        with pytest.raises(UnreadableVersion, match="damaged") as caught:
            writer.next_unsummarised(EMBEDDER)
        excluded.append(caught.value.version)
        while document := writer.next_unsummarised(EMBEDDER, None, excluded):
            found.append(document.document_id)
            excluded.append(document.version)
    assert found == [*([] if what == "collection" else ["t1"]), "other0", "other1"]
    assert len(set(excluded)) == len(excluded)
