"""Chroma's server: leaves as records whose document is their parent's text, searched by h2load."""

import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import chromadb

from benchmarks.peers.peer import FoundPassage, Query
from benchmarks.peers.scale.corpus import SeededCorpus
from benchmarks.peers.scale.leaves import leaves_with_parents
from benchmarks.peers.scale.peer import EFS, LIMIT
from benchmarks.peers.servers.processes import HOST, free_port, running
from benchmarks.peers.servers.senders import Sender, h2load_sender, require_h2load
from benchmarks.peers.servers.server import CALLERS_EACH
from benchmarks.peers.timing import timed

_COLLECTIONS = "api/v2/tenants/default_tenant/databases/default_database/collections"
_LEAVES_AT_ONCE = 1000
_QUIET = {"ANONYMIZED_TELEMETRY": "False"}


class Chroma:
    """The five nearest leaves, each with its parent's text: leaves of one parent repeat it."""

    graph = "max_neighbors 16, ef_construction 100"
    efs: Sequence[int] = EFS

    def __init__(self, folder: Path) -> None:
        require_h2load()
        self._port = free_port()
        program = Path(sys.executable).with_name("chroma")
        command = [program, "run", "--path", folder / "data", "--host", HOST]
        command += ["--port", str(self._port)]
        with ExitStack() as undo:
            undo.enter_context(running(command, self._port, folder / "server", _QUIET))
            self._client = chromadb.HttpClient(HOST, self._port)
            self._open = undo.pop_all()

    def index_leaves(self, corpus: SeededCorpus) -> float:
        self._collection = self._client.create_collection(
            "leaves", configuration={"hnsw": {"space": "ip"}}, embedding_function=None
        )
        seconds, _ = timed(lambda: self._fill(corpus))
        return seconds

    def _fill(self, corpus: SeededCorpus) -> None:
        leaves = leaves_with_parents(corpus)
        while group := list(islice(leaves, _LEAVES_AT_ONCE)):
            self._collection.add(
                [str(leaf.row) for leaf in group],
                embeddings=[leaf.vector for leaf in group],
                documents=[leaf.passage.text for leaf in group],
                metadatas=[{"document": leaf.passage.document_id} for leaf in group],
            )

    def set_ef(self, ef: int) -> None:
        self._collection.modify(configuration={"hnsw": {"ef_search": ef}})

    def nearest(self, query: Query) -> list[int]:
        found = self._collection.query(query_embeddings=[query.vector], n_results=10, include=[])
        return list(map(int, found["ids"][0]))

    def search(self, query: Query, candidates: int, limit: int) -> list[FoundPassage]:
        del candidates
        found = self._collection.query(
            query_embeddings=[query.vector], n_results=limit, include=["documents", "metadatas"]
        )
        pairs = zip(found["metadatas"][0], found["documents"][0], strict=True)
        return [FoundPassage(metadata["document"], text) for metadata, text in pairs]

    def sender(self, query: Query, folder: Path, seconds: int, per_second: float) -> Sender:
        del per_second
        body = {
            "query_embeddings": [query.numbers],
            "n_results": LIMIT,
            "include": ["documents", "metadatas"],
        }
        return h2load_sender(
            f"http://{HOST}:{self._port}/{_COLLECTIONS}/{self._collection.id}/query",
            ["content-type: application/json"],
            json.dumps(body).encode(),
            folder=folder,
            callers=CALLERS_EACH,
            seconds=seconds,
            reply_bytes=sum(len(passage.text) for passage in self.search(query, 0, LIMIT)),
            options=["--h1"],
        )

    def close(self) -> None:
        self._open.close()
