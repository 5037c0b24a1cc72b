"""Dense searches of a home use its HNSW index when they should, and miss no leaf.

A home is a table with an HNSW index for the leaves of a large collection.
"""

from typing import Any

import numpy as np
import psycopg
import pytest
from psycopg import sql

from hrag.engine.find import VALUES, FindRequest
from hrag.engine.postgres.maintenance.worker import MaintenanceWorker
from hrag.engine.postgres.search import snapshot
from hrag.engine.postgres.search.eligible_leaves import EligibleLeaves
from hrag.engine.postgres.search.reader import PostgresReader
from hrag.engine.postgres.search.sources.vector_source import VectorSource, nearest_leaves
from hrag.engine.postgres.store.opened_collection import OpenedCollection, open_by_id
from hrag.filters import Match
from hrag.types import Retrieval, SearchMode
from tests.support.documents.fakes import (
    as_half_precision,
    matched_leaves,
    prepared,
    query_vector,
    sentences,
)
from tests.support.documents.vocabulary import wordy

pytestmark = pytest.mark.postgres

COUNT = 5


@pytest.fixture
def home(database, writer, collection) -> OpenedCollection:
    """A collection of 60 documents, whose leaves are all in the HNSW index of its home."""
    writer.put_many([(collection, wordy(f"d{n}", n, sentences=20)) for n in range(60)])
    worker = MaintenanceWorker(database)
    worker.maintain("t", collection.collection_id, every_leaf=True)
    with database.read() as connection:
        opened = open_by_id(connection, "t", collection.collection_id)
    assert opened is not None
    assert opened.home is not None
    return opened


def plan(database, home: OpenedCollection, eligible: EligibleLeaves, *, graph: bool) -> str:
    """Returns the query plan of a search, which may use the HNSW index if `graph` is true."""
    with database.read() as connection:
        source = VectorSource(connection, home, query_vector(1))
        # A scan of so few short vectors is estimated to cost less than the HNSW index.
        connection.execute("SET LOCAL enable_sort = off")
        statement = nearest_leaves(home.home, eligible.condition, COUNT, graph=graph)
        explained = sql.SQL("EXPLAIN {}").format(statement)
        return "\n".join(line for (line,) in source.run(explained, eligible, COUNT, graph=graph))


def test_an_approximate_search_uses_the_hnsw_index(database, home):
    assert "embedding_idx" in plan(database, home, EligibleLeaves.all_of(home), graph=True)


@pytest.mark.parametrize("filtered", [False, True])
def test_an_exact_search_never_uses_the_hnsw_index(database, home, filtered):
    eligible = EligibleLeaves.all_of(home)
    if filtered:
        eligible = EligibleLeaves(40, ordinals=np.array([2, 4, 6], np.uint64))
    assert "embedding_idx" not in plan(database, home, eligible, graph=False)


_QUERY = np.eye(1, 16, dtype=np.float32)[0]


def _around(cosine: float, count: int) -> Any:
    """Returns vectors whose cosines with _QUERY are about `cosine`."""
    draw = np.random.default_rng(7)
    vectors = draw.normal(size=(count, 16))
    vectors[:, 0] = 0
    cosines = draw.uniform(cosine - 0.05, cosine + 0.05, count)
    vectors *= (np.sqrt(1 - cosines**2) / np.linalg.norm(vectors, axis=1))[:, None]
    vectors[:, 0] = cosines
    return as_half_precision(vectors)


def _of_language(language: str, number: int, cosine: float) -> Any:
    """Returns a document in a language; the cosines of its vectors are about `cosine`."""
    count = len(prepared("d", sentences(500)).vectors)
    return prepared(
        f"{language}{number}",
        sentences(500),
        vectors=_around(cosine, count),
        metadata={"language": language},
    )


@pytest.mark.parametrize("by_steps", [False, True])
@pytest.mark.parametrize("retrieval", [Retrieval.DENSE, Retrieval.HYBRID])
def test_leaves_of_the_tail_do_not_replace_leaves_that_the_index_missed(
    database, writer, collection, postgres_dsn, opened, monkeypatch, retrieval, by_steps
):
    """The nearest leaves do not pass the filter. hnsw.max_scan_tuples ends the scan too early."""
    writer.put_many([(collection, _of_language("en", n, 0.9)) for n in range(12)])
    writer.put_many([(collection, _of_language("de", n, 0.3)) for n in range(8)])
    MaintenanceWorker(database).maintain("t", collection.collection_id, every_leaf=True)
    writer.put(collection, _of_language("de", 9, -0.5))
    if by_steps:
        monkeypatch.setattr(snapshot, "can_find", lambda _: False)
    request = FindRequest(
        _QUERY,
        SearchMode.STANDARD,
        0,
        limit=10,
        candidates=10,
        text="nonesuch",
        retrieval=retrieval,
        filter=Match("metadata.language", ("de",)),
    )
    short_scans = psycopg.conninfo.make_conninfo(postgres_dsn, options="-c hnsw.max_scan_tuples=1")
    with PostgresReader(opened(short_scans)).snapshot("t", "c") as reader:
        result = reader.find(request, VALUES)
    documents = {document for document, _ in matched_leaves(result.passages)}
    assert len(result.passages) == 10
    assert documents <= {f"de{n}" for n in range(8)}
    assert result.exact
