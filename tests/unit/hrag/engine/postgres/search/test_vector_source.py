"""Which index PostgreSQL takes for the nearest leaves of a home."""

import numpy as np
import pytest
from psycopg import sql

from hrag.engine.postgres.maintenance.worker import MaintenanceWorker
from hrag.engine.postgres.search.eligible_leaves import EligibleLeaves
from hrag.engine.postgres.search.sources.vector import VectorSource, nearest_leaves
from hrag.engine.postgres.store.opened_collection import OpenedCollection, open_by_number
from tests.fakes import query_vector
from tests.vocabulary import wordy

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
