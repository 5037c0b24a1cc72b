"""hrag as a peer: in process, and as both services over gRPC.

In process, a search runs the code of the retriever's Search method, which ends in an encoded reply.
The caller parses the reply, as every client does, and so has what a client has of each passage: the
text, the document, the score, the leaves that matched, and the sentence to cite with its pages.

The indexer's bulk load ingests the documents in this process, in durable commits of up to 64
documents. Then the services open the store. The documents are not ingested over gRPC, because the
services would then embed them.
"""

import os
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import ClassVar

from benchmarks.corpus import COLLECTION, TENANT, engine, reading, search_over
from benchmarks.peers import trees
from benchmarks.peers.memory import descendants
from benchmarks.peers.peer import FoundPassage, Indexed, Query, Text
from benchmarks.peers.timing import folder_bytes, timed
from benchmarks.peers.vectors import DIMENSION, Vectors
from hrag.cli.processes import ServiceProcesses, free_addresses
from hrag.client import Client
from hrag.models import embedding
from hrag.models.embedding.hashing import HashEmbedder
from hrag.types import Document, SearchMode, SearchQuery, SearchResult, SettingsRequest
from hrag.v1 import retriever_pb2 as pb
from hrag.values.deadline import NEVER, Deadline
from hrag.wire.encoded_results import encoded_response
from indexer_svc.bulk import BulkLoad, IngestRequest
from indexer_svc.ingest_pipeline import Defaults, Pipeline
from retriever_svc.search_pipeline import Search

# No document is as long as this.
_MAX_DOCUMENT_BYTES = 1 << 28
_SERVING_S = 60.0
FILLED = "filled"
# The embedder that the store names. Vectors are given, so the services use only its dimension.
_EMBEDDER = HashEmbedder(DIMENSION)


class _StoredVectors:
    """An embedder that looks up vectors by text."""

    name = _EMBEDDER.name
    dimension = _EMBEDDER.dimension
    max_tokens = _EMBEDDER.max_tokens
    lowest_cosine = _EMBEDDER.lowest_cosine

    def __init__(self, vectors: Vectors) -> None:
        self._vectors = vectors

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> embedding.Vectors:
        deadline.check("embedding")
        return self._vectors.rows_of(texts)


class InProcess:
    """The retriever's search in this process, without its service."""

    def __init__(self, folder: Path, mode: SearchMode = SearchMode.SMALL_TO_BIG) -> None:
        """Creates the peer. Its store will be in `folder`."""
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

    def search(self, query: Query, candidates: int, limit: int) -> list[FoundPassage]:
        search = SearchQuery(
            TENANT, query.vector, COLLECTION, self._mode, limit=limit, candidates=candidates
        )
        return _replied(self._search, search)

    def processes(self) -> list[int]:
        return [os.getpid()]

    def close(self) -> None:
        self._open.close()


class OverGrpc:
    """Both services, each in a separate process, and a client."""

    settings: ClassVar = {"HRAG_EMBEDDER": f"hash:{DIMENSION}"}

    def __init__(self, folder: Path) -> None:
        """Starts the services on an empty store.

        The growth of memory is measured from the memory of the services without documents.
        """
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

    def search(self, query: Query, candidates: int, limit: int) -> list[FoundPassage]:
        return self.search_by(self._client, query, candidates, limit)

    @staticmethod
    def search_by(client: Client, query: Query, candidates: int, limit: int) -> list[FoundPassage]:
        """Searches with the client that the caller passes."""
        result = client.search(
            TENANT, query.numbers, collection=COLLECTION, candidates=candidates, limit=limit
        )
        return _passages(result)

    def processes(self) -> list[int]:
        return descendants(os.getpid())

    def close(self) -> None:
        self._open.close()

    def _serve(self, store: str) -> None:
        self._addresses = free_addresses(2)
        services = ServiceProcesses(
            self._folder / store, *self._addresses, logs=self._folder, settings=self.settings
        )
        self._open.enter_context(services).wait_until_serving(_SERVING_S)
        self._client = self._open.enter_context(Client(*self._addresses))


def auto_merge(folder: Path) -> InProcess:
    """Returns the peer of AUTO_MERGE: returns a parent if enough of its children matched."""
    return InProcess(folder, SearchMode.AUTO_MERGE)


def standard(folder: Path) -> InProcess:
    """Returns the peer of STANDARD, which returns the leaves."""
    return InProcess(folder, SearchMode.STANDARD)


class Hybrid(InProcess):
    """The peer of hybrid search: by the question's words and its vector.

    hrag's default for a text is hybrid search.
    """

    def search(self, query: Query, candidates: int, limit: int) -> list[FoundPassage]:
        return self._hybrid(query, candidates=candidates, limit=limit)

    def _hybrid(self, query: Query, **bounds: int) -> list[FoundPassage]:
        search = SearchQuery(
            TENANT, query.text, COLLECTION, self._mode, vector=query.vector, **bounds
        )
        return _replied(self._search, search)


class Context(Hybrid):
    """The peer of CONTEXT: returns leaves up to a number of tokens, joined where they touch."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, SearchMode.CONTEXT)

    def filled(self, query: Query, candidates: int, budget: int) -> list[FoundPassage]:
        return self._hybrid(query, candidates=candidates, token_budget=budget)


def hybrid_standard(folder: Path) -> Hybrid:
    """Returns the peer of STANDARD with hybrid search.

    It returns the leaves, as the hybrid searches of other peers do.
    """
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
            TENANT,
            COLLECTION,
            document.document_id,
            partial(Document, document.text, document.document_id),
        )
        for document in documents
    ]
    leaves = 0
    for answers in BulkLoad(pipeline, requests, NEVER, threading.Event()).run():
        for answer in answers:
            if isinstance(answer.outcome, Exception):
                raise answer.outcome
            leaves += answer.outcome.chunks_per_level[trees.TREE.embedding_level]
    return leaves


def _replied(search: Search, query: SearchQuery) -> list[FoundPassage]:
    """Searches in this process; returns the passages of the reply."""
    reply = pb.SearchResponse.FromString(encoded_response(search.encoded(query, NEVER)))
    return [
        FoundPassage(chunk.document_id, chunk.content, chunk.span.char_start)
        for chunk in (passage.chunk for passage in reply.passages)
    ]


def _passages(result: SearchResult) -> list[FoundPassage]:
    return [
        FoundPassage(chunk.document_id, chunk.content, chunk.span.char_start)
        for chunk in (passage.chunk for passage in result.passages)
    ]
