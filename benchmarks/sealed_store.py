"""A temporary store whose leaves are all in one segment, for measurements of searches."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import corpus
from hrag.models.embedding import Vectors


@contextmanager
def sealed_store(
    leaf_count: int,
    leaves_each: int,
    dimension: int,
    seed: int,
    query_count: int,
    *,
    grouped: bool = False,
) -> Iterator[tuple[Path, Vectors]]:
    """Yields the folder of a store and query vectors. One segment contains all leaves of the store.

    The parameters are those of `corpus.fill` and `corpus.queries_near`. In the end the folder is
    removed.
    """
    with TemporaryDirectory() as name:
        folder = Path(name)
        vectors = corpus.fill(
            folder, leaf_count, leaves_each, dimension, seed, sealed=True, grouped=grouped
        )
        yield folder, corpus.queries_near(vectors, query_count, seed + 1)
