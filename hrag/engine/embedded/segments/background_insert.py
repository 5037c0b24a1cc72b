"""Inserts vectors into an index in a second thread, so that a build can prepare the next vectors.

Inserting takes most of the time of a build, and hnswlib does not hold the GIL meanwhile. So the
build reads the leaves of the next block, and analyses their texts, while the vectors of the last
block are inserted.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

from hrag.engine.embedded.segments.vector_part import Insert, Items
from hrag.models.embedding import Vectors


class BackgroundInsert:
    """An `Insert` that calls another `Insert` in a second thread, and returns meanwhile.

    At most one call runs at any time, so blocks are inserted in their order, and memory contains
    only one block that waits. The caller must not change the vectors of a call, and must call
    `wait` before it reads the index. The end of the `with` block waits for the running call.
    """

    def __init__(self, insert: Insert) -> None:
        self._insert = insert
        self._thread = ThreadPoolExecutor(1, "insert")
        self._running: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()

    def __call__(self, index: Any, vectors: Vectors, items: Items) -> None:
        """Waits for the running call, and begins the next one. Raises the error of the former."""
        self.wait()
        self._running = self._thread.submit(self._insert, index, vectors, items)

    def wait(self) -> None:
        """Waits until all vectors are inserted. Raises the error of the last call."""
        if self._running is not None:
            self._running.result()
