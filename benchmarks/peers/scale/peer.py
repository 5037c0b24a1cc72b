"""The interface of a peer in the comparison by size, and which peers there are."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from benchmarks.peers.peer import Found, Query
from benchmarks.peers.registry import LANGCHAIN, LLAMA_INDEX, PGVECTOR, Entry
from benchmarks.peers.scale.corpus import SeededCorpus

CANDIDATES = 50
LIMIT = 5  # hrag's default.
EFS = (50, 100, 200, 400, 800)
"""What an index by HNSW may look at; pgvector takes at most 1,000."""

Search = Callable[[Query, int, int], list[Found]]
"""Takes a query, the number of candidates and the most passages."""


class ScalePeer(Protocol):
    """One peer, empty when created."""

    efs: Sequence[int]
    """The values of `ef` to choose from, ascending; empty if it chooses its own."""

    def index_leaves(self, corpus: SeededCorpus) -> float:
        """Stores and indexes the documents; returns the seconds. Called once."""

    def save(self) -> None:
        """Writes to disk what is only in memory."""

    def stored_bytes(self) -> int:
        """Returns its size on disk after `save`."""

    def set_ef(self, ef: int) -> None:
        """Takes one of `efs` for every later search."""

    def nearest(self, query: Query) -> list[int]:
        """Returns the rows of the best ten of CANDIDATES leaves."""

    def callers(self, count: int) -> AbstractContextManager[list[Search]]:
        """Returns the search of each caller, each with a connection of its own if there are any."""

    def processes(self) -> list[int]:
        """Returns the ids of the processes whose memory counts."""

    def close(self) -> None:
        """Stops what it has started."""


class Library:
    """Callers in threads of one process search the same index."""

    search: Search

    @contextmanager
    def callers(self, count: int) -> Iterator[list[Search]]:
        yield [self.search] * count


class OwnEf:
    """Chooses `ef` by the size of the index."""

    efs: Sequence[int] = ()

    def set_ef(self, ef: int) -> None:
        raise TypeError(f"it chooses its own ef, not {ef}")


SCALE_PEERS = {
    "hrag": Entry("hrag, in process", "scale.hrag_itself:InProcessLeaves"),
    "hrag-grpc": Entry("hrag, services over gRPC", "scale.hrag_itself:OverGrpcLeaves"),
    "pgvector": Entry("PostgreSQL + pgvector", "scale.pgvector:PgVectorLeaves", PGVECTOR),
    "langchain": Entry("LangChain + FAISS HNSW", "scale.langchain:LangChainLeaves", LANGCHAIN),
    "llama-index": Entry(
        "LlamaIndex + FAISS HNSW", "scale.llama_index:LlamaIndexLeaves", LLAMA_INDEX
    ),
}
