"""The interface of a peer in the comparison by size, and the list of peers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from benchmarks.peers.peer import FoundPassage, Query
from benchmarks.peers.registry import LANGCHAIN, LLAMA_INDEX, PGVECTOR, Entry
from benchmarks.peers.scale.corpus import SeededCorpus

CANDIDATES = 50
LIMIT = 5  # The default of hrag.
EFS = (50, 100, 200, 400, 800)
"""The values of `ef` from which a peer's value is chosen. pgvector allows at most 1,000."""

# The parameters by which libraries build their HNSW graphs.
M = 16
EF_CONSTRUCTION = 200

Search = Callable[[Query, int, int], list[FoundPassage]]
"""Returns passages. The arguments are the query, the candidates and the maximum of passages."""


class ScalePeer(Protocol):
    """A peer. It is empty when it is created."""

    efs: Sequence[int]
    """The values of `ef` to choose from, ascending; empty if the peer chooses `ef` itself."""

    def index_leaves(self, corpus: SeededCorpus) -> float:
        """Stores and indexes the documents; returns the seconds it took. It is called once."""

    def save(self) -> None:
        """Writes everything to disk that is only in memory."""

    def stored_bytes(self) -> int:
        """Returns the size of the peer on disk in bytes. It is called after `save`."""

    def set_ef(self, ef: int) -> None:
        """Sets the `ef` of every later search to one of `efs`."""

    def nearest(self, query: Query) -> list[int]:
        """Returns the row numbers of the ten best leaves of a search with CANDIDATES candidates."""

    def callers(self, count: int) -> AbstractContextManager[list[Search]]:
        """Yields the search of each caller.

        If the peer has connections, each caller has a separate connection.
        """

    def processes(self) -> list[int]:
        """Returns the ids of the processes whose memory counts."""

    def close(self) -> None:
        """Stops all processes that the peer has started."""


class Library:
    """A mixin for libraries: callers in threads of one process search the same index."""

    search: Search

    @contextmanager
    def callers(self, count: int) -> Iterator[list[Search]]:
        yield [self.search] * count


class AutomaticEf:
    """A mixin for peers that choose `ef` by the size of the index."""

    efs: Sequence[int] = ()

    def set_ef(self, ef: int) -> None:
        raise TypeError(f"ef = {ef} cannot be set: this peer chooses ef itself")


SCALE_PEERS = {
    "hrag": Entry("hrag, in process", "scale.hrag_itself:InProcessLeaves"),
    "hrag-grpc": Entry("hrag, services over gRPC", "scale.hrag_itself:OverGrpcLeaves"),
    "pgvector": Entry("PostgreSQL + pgvector", "scale.pgvector:PgVectorLeaves", PGVECTOR),
    "langchain": Entry("LangChain + FAISS HNSW", "scale.langchain:LangChainLeaves", LANGCHAIN),
    "llama-index": Entry(
        "LlamaIndex + FAISS HNSW", "scale.llama_index:LlamaIndexLeaves", LLAMA_INDEX
    ),
    "faiss": Entry("FAISS HNSW", "scale.faiss_itself:FaissLeaves", ("faiss-cpu",)),
    # hrag requires hnswlib, so it is installed with hrag.
    "hnswlib": Entry("hnswlib", "scale.hnswlib_itself:HnswlibLeaves"),
}
