"""Both services as fake servicers, and the clients that call them."""

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from hrag import errors
from hrag.client import AsyncClient, Client
from hrag.types import (
    Document,
    IngestOutcome,
    IngestResult,
)
from hrag.v1 import indexer_pb2 as ipb
from hrag.v1 import retriever_pb2 as rpb
from hrag.v1 import types_pb2 as tpb
from hrag.wire import indexer as wire
from tests.support.servers.servers import INDEXER, RETRIEVER, serving

Call = Callable[[Any], Any]

_COLLECTION = tpb.Collection(settings=tpb.CollectionSettings(level_sizes=[256]))
REPLIES: dict[str, Any] = {
    "CreateCollection": ipb.CreateCollectionResponse(collection=_COLLECTION),
    "GetCollection": ipb.GetCollectionResponse(collection=_COLLECTION),
    "ListTenants": ipb.ListTenantsResponse(),
    "ListCollections": ipb.ListCollectionsResponse(),
    "DeleteCollection": ipb.DeleteCollectionResponse(sequence=7),
    "ReembedCollection": ipb.ReembedCollectionResponse(collection=_COLLECTION, is_finished=True),
    "SetAlias": ipb.SetAliasResponse(previous_collection="c1", sequence=7),
    "DeleteAlias": ipb.DeleteAliasResponse(sequence=7),
    "ListAliases": ipb.ListAliasesResponse(),
    "IngestDocument": ipb.IngestDocumentResponse(outcome=ipb.INGEST_OUTCOME_CREATED),
    "UpdateMetadata": ipb.UpdateMetadataResponse(outcome=ipb.INGEST_OUTCOME_UPDATED),
    "DeleteDocument": ipb.DeleteDocumentResponse(sequence=7),
    "DeleteDocuments": ipb.DeleteDocumentsResponse(deleted_count=3, sequence=7),
    "GetPageImage": ipb.GetPageImageResponse(),
    "ListDocuments": ipb.ListDocumentsResponse(),
    "CountDocuments": ipb.CountDocumentsResponse(),
    "GetIndexStatus": ipb.GetIndexStatusResponse(),
    "Search": rpb.SearchResponse(sequence=7),
    "BatchSearch": rpb.BatchSearchResponse(),
    "GetChunk": rpb.GetChunkResponse(),
    "GetHierarchy": rpb.GetHierarchyResponse(),
    "GetOriginal": rpb.GetOriginalResponse(),
    "GetDocument": rpb.RetrieverServiceGetDocumentResponse(text="text"),
    "GetServerInfo": rpb.GetServerInfoResponse(),
}


class Fake:
    """Implements every call of both services.

    Each call raises the next error of `failures`; once none is left, calls answer. While
    `may_answer` is not set, a call waits up to a minute. `hung_up` is set when a stream has ended,
    for example because its client has left.
    """

    def __init__(self, *failures: Exception) -> None:
        self.calls: Counter[str] = Counter()
        self.failures = deque(failures)
        self.remaining_s = 0.0
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.hung_up = threading.Event()

    def __getattr__(self, method: str) -> Any:
        if method not in REPLIES:
            raise AttributeError(method)
        return partial(self._answer, method)

    def _answer(self, method: str, request: Any, context: Any) -> Any:
        self.calls[method] += 1
        self.remaining_s = context.time_remaining()
        self.may_answer.wait(60)
        if self.failures:
            raise self.failures.popleft()
        return REPLIES[method]

    def IngestDocuments(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        """Yields one outcome per document: an error for the document `bad`, success for others."""
        self.calls["IngestDocuments"] += 1
        context.add_callback(self.hung_up.set)
        for request in requests:
            if self.failures:
                raise self.failures.popleft()
            document_id = request.document.document_id
            if document_id == "bad":
                blank = errors.BlankDocument("blank", field="text")
                outcome = wire.error_outcome("bad", blank)
            else:
                outcome = wire.result_outcome(stored(document_id))
            yield ipb.IngestDocumentsResponse(outcomes=[outcome])

    def Answer(self, request: Any, context: Any) -> Iterator[Any]:
        """Yields passages, reasoning if the request asks for it, text and end.

        If `failures` has errors, it raises the first one before the passages. An error that is
        there after the text is raised then.
        """
        self.calls["Answer"] += 1
        self.remaining_s = context.time_remaining()
        context.add_callback(self.hung_up.set)
        if self.failures:
            raise self.failures.popleft()
        yield rpb.AnswerResponse(passages=rpb.SearchResponse(mode=rpb.SEARCH_MODE_STANDARD))
        self.may_answer.wait(60)
        if request.reasoning:
            yield rpb.AnswerResponse(reasoning="Hm.")
        yield rpb.AnswerResponse(text="Dogs")
        if self.failures:
            raise self.failures.popleft()
        yield rpb.AnswerResponse(end=rpb.AnswerEnd(finish_reason=rpb.FINISH_REASON_STOP))


def stored(document_id: str) -> IngestResult:
    return IngestResult(document_id, IngestOutcome.CREATED, 1, (1,), 1)


def named_documents(*ids: str) -> list[Document]:
    return [Document("text", document_id) for document_id in ids]


@contextmanager
def addresses_of(fake: Fake) -> Iterator[tuple[str, str]]:
    with serving(fake, INDEXER) as indexer, serving(fake, RETRIEVER) as retriever:
        yield indexer, retriever


@contextmanager
def client_of(fake: Fake, timeout_s: float = 60) -> Iterator[Client]:
    with addresses_of(fake) as addresses, Client(*addresses, timeout_s=timeout_s) as client:
        yield client


def run_sync(fake: Fake, call: Call, timeout_s: float = 60) -> Any:
    with client_of(fake, timeout_s) as client:
        return call(client)


def run_async(fake: Fake, call: Call, timeout_s: float = 60) -> Any:
    async def run(addresses: tuple[str, str]) -> Any:
        async with AsyncClient(*addresses, timeout_s=timeout_s) as client:
            return await call(client)

    with addresses_of(fake) as addresses:
        return asyncio.run(run(addresses))
