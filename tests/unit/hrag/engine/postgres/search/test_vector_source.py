"""Which index PostgreSQL takes for the nearest leaves of a home, and when its answer is taken."""

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
from hrag.engine.postgres.store.opened_collection import OpenedCollection, open_by_number
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
    """A collection of 60 documents, all in the index of a home."""
    writer.put_many([(collection, wordy(f"d{n}", n, sentences=20)) for n in range(60)])
    worker = MaintenanceWorker(database)
    worker.maintain("t", collection.collection_id, every_leaf=True)
    with database.read() as connection:
        found = open_by_number(connection, "t", collection.collection_id)
    assert found is not None
    assert found.home is not None
    return found


def plan(database, home: OpenedCollection, eligible: EligibleLeaves, *, graph: bool) -> str:
    with database.read() as connection:
        source = VectorSource(connection, home, query_vector(1))
        statement = nearest_leaves(home.home, eligible.condition, COUNT, graph=graph)
        explained = sql.SQL("EXPLAIN {}").format(statement)
        return "\n".join(line for (line,) in source.run(explained, eligible, COUNT, graph=graph))


def test_the_index_of_vectors_serves_searches_that_need_not_be_exact(database, home):
    assert "embedding_idx" in plan(database, home, EligibleLeaves.all_of(home), graph=True)


@pytest.mark.parametrize("filtered", [False, True])
def test_an_exact_search_never_reads_the_index_of_vectors(database, home, filtered):
    eligible = EligibleLeaves.all_of(home)
    if filtered:
        eligible = EligibleLeaves(40, ordinals=np.array([2, 4, 6], np.uint64))
    assert "embedding_idx" not in plan(database, home, eligible, graph=False)


_QUERY = np.eye(1, 16, dtype=np.float32)[0]


def _around(cosine: float, count: int) -> Any:
    """Vectors whose cosines with the query are about `cosine`."""
    draw = np.random.default_rng(7)
    vectors = draw.normal(size=(count, 16))
    vectors[:, 0] = 0
    cosines = draw.uniform(cosine - 0.05, cosine + 0.05, count)
    vectors *= (np.sqrt(1 - cosines**2) / np.linalg.norm(vectors, axis=1))[:, None]
    vectors[:, 0] = cosines
    return as_half_precision(vectors)


def _of_language(language: str, number: int, cosine: float) -> Any:
    count = len(prepared("d", sentences(500)).vectors)
    return prepared(
        f"{language}{number}",
        sentences(500),
        vectors=_around(cosine, count),
        metadata={"language": language},
    )


@pytest.mark.parametrize("by_steps", [False, True])
@pytest.mark.parametrize("retrieval", [Retrieval.DENSE, Retrieval.HYBRID])
def test_leaves_of_the_tail_do_not_stand_in_for_those_that_the_index_missed(
    database, writer, collection, postgres_dsn, opened, monkeypatch, retrieval, by_steps
):
    """What is nearest to the query does not pass the filter, and the index gives up early."""
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
    impatient = psycopg.conninfo.make_conninfo(postgres_dsn, options="-c hnsw.max_scan_tuples=1")
    with PostgresReader(opened(impatient)).snapshot("t", "c") as reader:
        found = reader.find(request, VALUES)
    documents = {document for document, _ in matched_leaves(found.passages)}
    assert len(found.passages) == 10
    assert documents <= {f"de{n}" for n in range(8)}
    assert found.exact
