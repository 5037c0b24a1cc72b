"""Short steps of a search keep Python's lock.

A thread that releases the lock may have to wait for the steps of several other threads until it has
the lock again. So a search releases it only for long steps.
"""

from functools import partial

import numpy as np
import pytest

from hrag.models.embedding import Vectors
from hrag.models.embedding.cache import CachedQueries
from hrag.models.embedding.hashing import HashEmbedder
from hrag_fast import DenseSearch, indexes_of
from tests.support.documents.fakes import unit_vectors
from tests.support.other_threads import can_run_during

# The built-in model has this dimension. numpy releases the lock to copy more than 500 numbers.
DIMENSION = 512
ROWS = 256


class PreparedVector(HashEmbedder):
    """Returns the same vector for every text."""

    def __init__(self) -> None:
        super().__init__(DIMENSION)
        self._vectors = unit_vectors(1, 0, DIMENSION)

    def embed(self, texts, deadline=None) -> Vectors:
        return self._vectors


def scores_of_rows() -> partial:
    tail = unit_vectors(ROWS, 1, DIMENSION)
    search = DenseSearch(tail[0].copy(), [], tail, np.ones(ROWS, np.uint8), ROWS, ROWS)
    return partial(search.scores, np.arange(ROWS, dtype=np.uint32))


def places_of_rows() -> partial:
    rows = np.arange(1000, dtype=np.uint32)
    return partial(indexes_of, rows, rows[::-1].copy())


def cached_vector() -> partial:
    return partial(CachedQueries(PreparedVector(), 0).embed_query, "tenant", "text")


@pytest.mark.parametrize("step", [scores_of_rows, places_of_rows, cached_vector])
def test_other_threads_cannot_run_during_a_short_step(step):
    assert not can_run_during(step())
