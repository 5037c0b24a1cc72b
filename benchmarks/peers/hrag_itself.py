"""hrag as a peer: in process, and as both services over gRPC.

Documents are ingested by the indexer's bulk load, in durable commits of up to 64. The services
then open that store, because over gRPC they would embed the documents themselves.
"""

import os
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.corpus import COLLECTION, TENANT, engine, reading, search_over
from benchmarks.peers import trees
from benchmarks.peers.memory import descendants
from benchmarks.peers.peer import Found, Indexed, Query, Text
from benchmarks.peers.timing import folder_bytes, timed
from benchmarks.peers.vectors import DIMENSION, Vectors
from hrag.cli.processes import Services, free_addresses
from hrag.client import Client
from hrag.models import embedding
from hrag.models.embedding.hashing import HashEmbedder
from hrag.types import Document, SearchMode, SearchQuery, SearchResult, SettingsRequest
from hrag.values.deadline import NEVER, Deadline
from indexer_svc.bulk import BulkLoad, IngestRequest
from indexer_svc.ingest_pipeline import Defaults, Pipeline

_MAX_DOCUMENT_BYTES = 1 << 28  # More than any document has.
_SERVING_S = 60.0
FILLED = "filled"
# The store's embedder, for the services: vectors are given, so it only needs the dimension.
_EMBEDDER = HashEmbedder(DIMENSION)
_SERVICE_SETTINGS = {"HRAG_EMBEDDER": f"hash:{DIMENSION}"}


class _StoredVectors:
    """An embedder that looks vectors up by text."""

    name = _EMBEDDER.name
    dimension = _EMBEDDER.dimension
    max_tokens = _EMBEDDER.max_tokens
    lowest_cosine = _EMBEDDER.lowest_cosine

    def __init__(self, vectors: Vectors) -> None:
        self._vectors = vectors

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> embedding.Vectors:
        deadline.check("embedding")
        return self._vectors.of(texts)


class InProcess:
    """The retriever's search without its service."""

    def __init__(self, folder: Path, mode: SearchMode = SearchMode.SMALL_TO_BIG) -> None:
        """Creates the store in `folder`."""
        self._folder = folder
        self._mode = mode
        self._open = ExitStack()

    def leaf_texts(self, documents: Sequence[Text]) -> list[str]:
        return trees.leaf_texts(documents)

    def index(self, documents: Sequence[Text], vectors: Vectors) -> Indexed:
        indexed = _fill(self._folder, documents, vectors)
        reader = self._open.enter_context(reading(self._folder))
        self._search = search_over(reader, DIMENSION)
        return indexed

    def save(self) -> None:
        """Does nothing: commits are durable."""

    def stored_bytes(self) -> int:
        return folder_bytes(self._folder)

    def search(self, query: Query, candidates: int, limit: int) -> list[Found]:
        search = SearchQuery(
            TENANT, query.vector, COLLECTION, self._mode, limit=limit, candidates=candidates
        )
        return _found(self._search(search, NEVER))

    def processes(self) -> list[int]:
        return [os.getpid()]

    def close(self) -> None:
        self._open.close()


class OverGrpc:
    """Both services in processes of their own, and a client."""

    def __init__(self, folder: Path) -> None:
        """Starts the services on an empty store: their memory without documents is the base."""
        self._folder = folder
        self._open = ExitStack()
        self._serve("empty")

    def leaf_texts(self, documents: Sequence[Text]) -> list[str]:
        return trees.leaf_texts(documents)

    def index(self, documents: Sequence[Text], vectors: Vectors) -> Indexed:
        self._open.close()
        indexed = _fill(self._folder / FILLED, documents, vectors)
        self._serve(FILLED)
        return indexed

    def save(self) -> None:
        """Does nothing: commits are durable."""

    def stored_bytes(self) -> int:
        return folder_bytes(self._folder / FILLED)

    def search(self, query: Query, candidates: int, limit: int) -> list[Found]:
        return self.search_by(self._client, query, candidates, limit)

    @staticmethod
    def search_by(client: Client, query: Query, candidates: int, limit: int) -> list[Found]:
        """Searches by a client of the caller's own."""
        result = client.search(
            TENANT, query.numbers, collection=COLLECTION, candidates=candidates, limit=limit
        )
        return _found(result)

    def processes(self) -> list[int]:
        return descendants(os.getpid())

    def close(self) -> None:
        self._open.close()

    def _serve(self, store: str) -> None:
        self._addresses = free_addresses(2)
        services = Services(
            self._folder / store, *self._addresses, logs=self._folder, settings=_SERVICE_SETTINGS
        )
        self._open.enter_context(services).wait_until_serving(_SERVING_S)
        self._client = self._open.enter_context(Client(*self._addresses))


def auto_merge(folder: Path) -> InProcess:
    """Returns the peer of AUTO_MERGE: climbs where enough of a parent's children matched."""
    return InProcess(folder, SearchMode.AUTO_MERGE)


def standard(folder: Path) -> InProcess:
    """Returns the peer of STANDARD: returns the leaves."""
    return InProcess(folder, SearchMode.STANDARD)


class Hybrid(InProcess):
    """Searches by the question's words and its vector, which is the default for a text."""

    def search(self, query: Query, candidates: int, limit: int) -> list[Found]:
        return self._hybrid(query, candidates=candidates, limit=limit)

    def _hybrid(self, query: Query, **bounds: int) -> list[Found]:
        search = SearchQuery(
            TENANT, query.text, COLLECTION, self._mode, vector=query.vector, **bounds
        )
        return _found(self._search(search, NEVER))


class Context(Hybrid):
    """CONTEXT: leaves that fill a number of tokens, joined where they touch."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, SearchMode.CONTEXT)

    def filled(self, query: Query, candidates: int, budget: int) -> list[Found]:
        return self._hybrid(query, candidates=candidates, token_budget=budget)


def hybrid_standard(folder: Path) -> Hybrid:
    """Returns the peer of STANDARD in hybrid search: returns the leaves, as other peers' do."""
    return Hybrid(folder, SearchMode.STANDARD)


def _fill(folder: Path, documents: Sequence[Text], vectors: Vectors) -> Indexed:
    """Creates the store with all documents."""
    with engine(folder) as opened:
        defaults = Defaults(trees.TREE, _MAX_DOCUMENT_BYTES)
        pipeline = Pipeline(opened.writer(), _StoredVectors(vectors), defaults)
        pipeline.create_collection(TENANT, COLLECTION, SettingsRequest())
        seconds, leaves = timed(lambda: _ingest(pipeline, documents))
    return Indexed(leaves, seconds)


def _ingest(pipeline: Pipeline, documents: Sequence[Text]) -> int:
    """Ingests the documents; returns the number of their leaves."""
    requests = [
        IngestRequest(
            TENANT, COLLECTION, each.document_id, partial(Document, each.text, each.document_id)
        )
        for each in documents
    ]
    leaves = 0
    for answers in BulkLoad(pipeline, requests, NEVER, threading.Event()).run():
        for answer in answers:
            if isinstance(answer.outcome, Exception):
                raise answer.outcome
            leaves += answer.outcome.chunks_per_level[trees.TREE.embedding_level]
    return leaves


def _found(result: SearchResult) -> list[Found]:
    return [
        Found(chunk.document_id, chunk.content, chunk.span.char_start)
        for chunk in (passage.chunk for passage in result.passages)
    ]
