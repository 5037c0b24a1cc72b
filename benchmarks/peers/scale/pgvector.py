"""pgvector with many leaves, which are already cut, and a connection for each caller.

The server's buffers have the size that PostgreSQL's manual recommends for a machine of 12 GB. The
index is built in memory that is large enough for its graph, as pgvector's manual recommends.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import psycopg
from pgvector.psycopg import register_vector

from benchmarks.peers import trees
from benchmarks.peers.peer import FoundPassage, Query
from benchmarks.peers.pgvector import PgVector, Rows, connected
from benchmarks.peers.scale.corpus import SeededCorpus
from benchmarks.peers.scale.peer import CANDIDATES, EFS, Search
from benchmarks.peers.timing import timed

# A leaf takes the bytes of its vector, and less than this for its neighbours.
_LINK_BYTES_PER_LEAF = 1024
# PostgreSQL's default.
_MIN_MEMORY_KB = 64 * 1024
_NEAREST = """
SELECT id FROM (
    SELECT id, embedding <#> %s AS distance FROM leaves ORDER BY distance LIMIT %s
) AS nearest ORDER BY distance LIMIT 10
"""


class PgVectorLeaves(PgVector):
    """The peer of pgvector: one server. Rows are copied as they are read from the corpus."""

    settings: ClassVar = {"shared_buffers": "3GB", "max_wal_size": "4GB"}
    efs = EFS

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._ef = EFS[0]

    def index_leaves(self, corpus: SeededCorpus) -> float:
        graph_kb = len(corpus) * (4 * corpus.dimension + _LINK_BYTES_PER_LEAF) // 1024
        memory_kb = max(_MIN_MEMORY_KB, graph_kb)
        self._connection.execute(f"SET maintenance_work_mem = '{memory_kb}kB'")
        seconds, _ = timed(lambda: self._fill(_parents(corpus), _leaves(corpus)))
        return seconds

    def set_ef(self, ef: int) -> None:
        self._ef = ef
        self._prepare(self._connection)

    def _prepare(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute(f"SET hnsw.ef_search = {self._ef}")

    def nearest(self, query: Query) -> list[int]:
        values = (query.vector, CANDIDATES)
        rows = self._connection.execute(_NEAREST, values, prepare=True, binary=True)
        return [row for (row,) in rows]

    def search(self, query: Query, candidates: int, limit: int) -> list[FoundPassage]:
        return self.search_by(self._connection, query, candidates, limit)

    @contextmanager
    def callers(self, count: int) -> Iterator[list[Search]]:
        with ExitStack() as stack:
            connections = [stack.enter_context(connected(self._home)) for _ in range(count)]
            for connection in connections:
                register_vector(connection)
                self._prepare(connection)
            yield [partial(self.search_by, connection) for connection in connections]


def _parents(corpus: SeededCorpus) -> Rows:
    number = 0
    for document in corpus:
        for piece in trees.pieces(document.tree, trees.PARENT_LEVEL):
            content = document.text[piece.start : piece.end]
            yield number, document.document_id, piece.start, content
            number += 1


def _leaves(corpus: SeededCorpus) -> Rows:
    base = 0
    for document in corpus:
        leaves = trees.pieces(document.tree, trees.TREE.embedding_level)
        for index, (piece, row) in enumerate(zip(leaves, document.vectors, strict=True)):
            number = document.first_row + index
            yield number, base + piece.parent, piece.start, piece.end, row
        base += document.tree.counts[trees.PARENT_LEVEL]
