"""`inner_products` scores vectors that are in no index, with the same bits as `Graph.scores`."""

import hnswlib
import numpy as np
import pytest

from hrag_fast import Graph, inner_products


@pytest.mark.parametrize("dimension", [1, 2, 16, 33, 384])
@pytest.mark.parametrize("count", [1, 300])
def test_vectors_have_the_same_scores_inside_and_outside_of_an_index(tmp_path, count, dimension):
    random = np.random.default_rng(dimension)
    vectors = random.standard_normal((count, dimension)).astype(np.float32)
    query = random.standard_normal(dimension).astype(np.float32)
    index = hnswlib.Index(space="ip", dim=dimension)
    index.init_index(max_elements=count)
    index.add_items(vectors, np.arange(count))
    index.save_index(str(tmp_path / "index"))
    graph = Graph((tmp_path / "index").read_bytes())
    indexed = graph.scores(query, np.arange(count, dtype=np.uint32))
    assert inner_products(query, vectors).tobytes() == indexed.tobytes()
    assert np.allclose(indexed, vectors @ query, atol=1e-4)


def test_no_vectors_have_no_scores():
    scores = inner_products(np.ones(3, np.float32), np.empty((0, 3), np.float32))
    assert (scores.dtype, scores.shape) == (np.float32, (0,))


def test_vectors_of_another_dimension_are_refused():
    with pytest.raises(ValueError, match="vectors have 2 dimensions, the query has 3"):
        inner_products(np.ones(3, np.float32), np.ones((4, 2), np.float32))
