"""Both clients against fake servicers."""

import asyncio
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from hrag import errors
from hrag.answers.values import AnswerEvent, FinishReason
from hrag.cli.processes import free_addresses
from hrag.client import AsyncClient, Client
from hrag.client.calls import channel_options
from hrag.errors import HragError
from hrag.types import (
    Document,
    IngestOutcome,
    IngestResult,
    SearchQuery,
    SearchResult,
)
from hrag.v1 import indexer_pb2 as ipb
from hrag.v1 import retriever_pb2 as rpb
from hrag.v1 import types_pb2 as tpb
from hrag.wire import indexer as wire
from tests.servers import INDEXER, RETRIEVER, serving

_COLLECTION = tpb.Collection(settings=tpb.CollectionSettings(level_sizes=[256]))
_ANSWERS: dict[str, Any] = {
    "CreateCollection": ipb.CreateCollectionResponse(collection=_COLLECTION),
    "GetCollection": ipb.GetCollectionResponse(collection=_COLLECTION),
    "ListCollections": ipb.ListCollectionsResponse(),
    "DeleteCollection": ipb.DeleteCollectionResponse(sequence=7),
    "IngestDocument": ipb.IngestDocumentResponse(outcome=ipb.INGEST_OUTCOME_CREATED),
    "DeleteDocument": ipb.DeleteDocumentResponse(sequence=7),
    "GetDocument": ipb.GetDocumentResponse(text="text"),
    "ListDocuments": ipb.ListDocumentsResponse(),
    "GetIndexStatus": ipb.GetIndexStatusResponse(),
    "Search": rpb.SearchResponse(sequence=7),
    "BatchSearch": rpb.BatchSearchResponse(),
    "GetChunk": rpb.GetChunkResponse(),
    "GetHierarchy": rpb.GetHierarchyResponse(),
    "GetServerInfo": rpb.GetServerInfoResponse(),
}

Call = Callable[[Any], Any]
_SAFE: list[tuple[str, Call]] = [
    ("GetCollection", lambda client: client.get_collection("t", "c")),
    ("ListCollections", lambda client: client.list_collections("t")),
    ("IngestDocument", lambda client: client.ingest("t", Document("text"))),
    ("GetDocument", lambda client: client.get_document("t", "d")),
    ("GetDocument", lambda client: client.get_text("t", "d")),
    ("ListDocuments", lambda client: client.list_documents("t")),
    ("GetIndexStatus", lambda client: client.index_status("t")),
    ("Search", lambda client: client.search("t", "text")),
    ("BatchSearch", lambda client: client.batch_search([SearchQuery("t", "text")])),
    ("GetChunk", lambda client: client.get_chunk("t", "d#0.0")),
    ("GetHierarchy", lambda client: client.get_hierarchy("t", "d#0.0")),
    ("GetServerInfo", lambda client: client.server_info()),
]
_UNSAFE: list[tuple[str, Call]] = [
    ("CreateCollection", lambda client: client.create_collection("t", "c")),
    ("DeleteCollection", lambda client: client.delete_collection("t", "c")),
    ("DeleteDocument", lambda client: client.delete_document("t", "d")),
]


class Fake:
    """Every call of both services: fails while it has failures left, then answers."""

    def __init__(self, *failures: Exception) -> None:
        self.calls: Counter[str] = Counter()
        self.failures = deque(failures)
        self.remaining_s = 0.0
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.hung_up = threading.Event()

    def __getattr__(self, method: str) -> Any:
        if method not in _ANSWERS:
            raise AttributeError(method)
        return partial(self._answer, method)

    def _answer(self, method: str, request: Any, context: Any) -> Any:
        self.calls[method] += 1
        self.remaining_s = context.time_remaining()
        self.may_answer.wait(5)
        if self.failures:
            raise self.failures.popleft()
        return _ANSWERS[method]

    def IngestDocuments(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        """Answers a document named `bad` with an error of its own; fails as other calls do."""
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
                outcome = wire.result_outcome(_stored(document_id))
            yield ipb.IngestDocumentsResponse(outcomes=[outcome])

    def Answer(self, request: Any, context: Any) -> Iterator[Any]:
        """Fails before its first event, then between two others."""
        self.calls["Answer"] += 1
        self.remaining_s = context.time_remaining()
        context.add_callback(self.hung_up.set)
        if self.failures:
            raise self.failures.popleft()
        yield rpb.AnswerResponse(passages=rpb.SearchResponse(mode=rpb.SEARCH_MODE_STANDARD))
        self.may_answer.wait(5)
        yield rpb.AnswerResponse(text="Dogs")
        if self.failures:
            raise self.failures.popleft()
        yield rpb.AnswerResponse(end=rpb.AnswerEnd(finish_reason=rpb.FINISH_REASON_STOP))


def _stored(document_id: str) -> IngestResult:
    return IngestResult(document_id, IngestOutcome.CREATED, 1, (1,), 1)


def _documents(*ids: str) -> list[Document]:
    return [Document("text", document_id) for document_id in ids]


@contextmanager
def _addresses(fake: Fake) -> Iterator[tuple[str, str]]:
    with serving(fake, INDEXER) as indexer, serving(fake, RETRIEVER) as retriever:
        yield indexer, retriever


@contextmanager
def _client(fake: Fake, timeout_s: float = 10) -> Iterator[Client]:
    with _addresses(fake) as addresses, Client(*addresses, timeout_s=timeout_s) as client:
        yield client


def _sync(fake: Fake, call: Call, timeout_s: float = 10) -> Any:
    with _client(fake, timeout_s) as client:
        return call(client)


def _async(fake: Fake, call: Call, timeout_s: float = 10) -> Any:
    async def run(addresses: tuple[str, str]) -> Any:
        async with AsyncClient(*addresses, timeout_s=timeout_s) as client:
            return await call(client)

    with _addresses(fake) as addresses:
        return asyncio.run(run(addresses))


BOTH = pytest.mark.parametrize("run", [_sync, _async], ids=["sync", "async"])
DOWN = errors.ServiceUnavailable("starting")


# Retries


@BOTH
@pytest.mark.parametrize(("method", "call"), _SAFE)
def test_a_call_that_may_run_twice_is_tried_again(run: Any, method: str, call: Call) -> None:
    fake = Fake(DOWN)
    run(fake, call)
    assert fake.calls == {method: 2}


@BOTH
@pytest.mark.parametrize(("method", "call"), _UNSAFE)
def test_a_call_that_must_not_run_twice_is_not(run: Any, method: str, call: Call) -> None:
    fake = Fake(DOWN)
    with pytest.raises(errors.ServiceUnavailable, match="starting"):
        run(fake, call)
    assert fake.calls == {method: 1}


def test_every_call_is_one_or_the_other() -> None:
    methods = {method for method, _ in _SAFE + _UNSAFE}
    assert methods == set(_ANSWERS)


@BOTH
@pytest.mark.parametrize(
    "error",
    [
        errors.InvalidArgument("no", field="limit"),
        errors.CollectionNotFound("no"),
        errors.EmbedderUnavailable("the service tried five times already"),
        errors.TooBusy("no"),
        errors.InternalError("no"),
    ],
)
def test_only_a_service_that_is_not_there_is_tried_again(run: Any, error: HragError) -> None:
    fake = Fake(error)
    with pytest.raises(type(error)) as caught:
        run(fake, lambda client: client.search("t", "text"))
    assert (caught.value.message, caught.value.field) == (error.message, error.field)
    assert fake.calls == {"Search": 1}


def test_retries_end_after_four_attempts() -> None:
    fake = Fake(*[DOWN] * 9)
    with pytest.raises(errors.ServiceUnavailable):
        _sync(fake, lambda client: client.search("t", "text"))
    assert fake.calls == {"Search": 4}


def test_nobody_at_the_address_is_unavailable() -> None:
    (nowhere,) = free_addresses(1)
    with Client(nowhere, nowhere) as client, pytest.raises(errors.ServiceUnavailable):
        client.server_info(timeout_s=5)


async def test_nobody_at_the_address_is_unavailable_asynchronously() -> None:
    (nowhere,) = free_addresses(1)
    async with AsyncClient(nowhere, nowhere) as client:
        with pytest.raises(errors.ServiceUnavailable):
            await client.server_info(timeout_s=5)


def test_a_closed_client_says_so() -> None:
    client = Client()
    client.close()
    client.close()
    for call in (client.server_info, lambda: list(client.ingest_many("t", []))):
        with pytest.raises(errors.ServiceUnavailable, match="closed"):
            call()


async def test_a_closed_asynchronous_client_says_so() -> None:
    client = AsyncClient()
    await client.close()
    await client.close()
    with pytest.raises(errors.ServiceUnavailable, match="closed"):
        await client.server_info()
    with pytest.raises(errors.ServiceUnavailable, match="closed"):
        await anext(client.ingest_many("t", []))


@pytest.mark.parametrize(
    ("address", "proxied"),
    [
        ("127.0.0.1:50051", False),
        ("localhost:50051", False),
        ("[::1]:50051", False),
        ("localhost.example.org:50051", True),
        ("hrag.example.org:50051", True),
    ],
)
def test_no_proxy_stands_between_a_machine_and_itself(address: str, proxied: bool) -> None:
    assert dict(channel_options(address))["grpc.enable_http_proxy"] == int(proxied)


# Answers


def _events(client: Any) -> Any:
    """All events of an answer, with await or without."""
    answer = client.answer(SearchQuery("t", "text"))
    if isinstance(client, Client):
        return list(answer)
    return _gathered(answer)


async def _gathered(answer: AsyncIterator[AnswerEvent]) -> list[AnswerEvent]:
    return [event async for event in answer]


@BOTH
def test_an_answer_is_begun_again_until_something_of_it_has_come(run: Any) -> None:
    fake = Fake(DOWN)
    passages, text, end = run(fake, _events)
    assert (type(passages), text, end.finish_reason) == (SearchResult, "Dogs", FinishReason.STOP)
    assert fake.calls == {"Answer": 2}


def test_an_answer_that_has_begun_is_not_begun_again() -> None:
    fake = Fake()
    with _client(fake) as client:
        answer = client.answer(SearchQuery("t", "text"))
        fake.may_answer.clear()
        next(answer)
        fake.failures.append(DOWN)
        fake.may_answer.set()
        with pytest.raises(errors.ServiceUnavailable):
            list(answer)
    assert fake.calls == {"Answer": 1}


@BOTH
def test_an_answer_has_a_deadline_of_its_own(run: Any) -> None:
    fake = Fake()
    run(fake, _events, timeout_s=1)
    assert 100 < fake.remaining_s < 122


# Deadlines


@BOTH
def test_a_call_ends_at_its_deadline(run: Any) -> None:
    fake = Fake()
    fake.may_answer.clear()
    try:
        with pytest.raises(errors.DeadlineExceeded):
            run(fake, lambda client: client.search("t", "text"), timeout_s=0.1)
    finally:
        fake.may_answer.set()


@BOTH
def test_the_deadline_reaches_the_service(run: Any) -> None:
    fake = Fake()
    run(fake, lambda client: client.search("t", "text"), timeout_s=77)
    assert 70 < fake.remaining_s < 77.5
    run(fake, lambda client: client.search("t", "text", timeout_s=5), timeout_s=77)
    assert 4 < fake.remaining_s < 5.5


@BOTH
def test_no_time_at_all_is_a_deadline_too(run: Any) -> None:
    with pytest.raises(errors.DeadlineExceeded):
        run(Fake(), lambda client: client.search("t", "text", timeout_s=0))


# Streams


def _sync_many(fake: Fake, documents: Any) -> list[Any]:
    with _client(fake) as client:
        return list(client.ingest_many("t", documents))


def _async_many(fake: Fake, documents: Any) -> list[Any]:
    async def run(client: AsyncClient) -> list[Any]:
        return [result async for result in client.ingest_many("t", documents)]

    return _async(fake, run)


MANY = pytest.mark.parametrize("run", [_sync_many, _async_many], ids=["sync", "async"])


@MANY
def test_each_document_of_a_stream_gets_its_result_or_its_own_error(run: Any) -> None:
    first, second, third = run(Fake(), _documents("a", "bad", "c"))
    assert (first, third) == (_stored("a"), _stored("c"))
    assert isinstance(second, errors.BlankDocument)
    assert (second.message, second.field) == ("blank", "text")


@MANY
def test_a_stream_of_nothing_answers_nothing(run: Any) -> None:
    assert run(Fake(), []) == []


def test_documents_may_come_asynchronously() -> None:
    async def documents() -> AsyncIterator[Document]:
        for document in _documents("a", "b"):
            await asyncio.sleep(0)
            yield document

    assert _async_many(Fake(), documents()) == [_stored("a"), _stored("b")]


@MANY
def test_a_streams_failure_is_raised_and_not_tried_again(run: Any) -> None:
    fake = Fake(errors.StorageFull("the disk is full"))
    with pytest.raises(errors.StorageFull, match="the disk is full"):
        run(fake, _documents("a", "b"))
    assert fake.calls == {"IngestDocuments": 1}


class _FileIsGone(Exception):
    """Raised by the source of a stream's documents."""


def _failing() -> Iterator[Document]:
    yield Document("text", "a")
    raise _FileIsGone("b.txt")


async def _failing_later() -> AsyncIterator[Document]:
    yield Document("text", "a")
    raise _FileIsGone("b.txt")


@pytest.mark.parametrize(
    ("run", "documents"),
    [(_sync_many, _failing), (_async_many, _failing), (_async_many, _failing_later)],
)
def test_what_the_source_of_documents_raises_reaches_the_caller(run: Any, documents: Any) -> None:
    with pytest.raises(_FileIsGone, match=r"b\.txt"):
        run(Fake(), documents())


def test_what_was_stored_before_the_source_failed_is_yielded_first() -> None:
    results = []
    with _client(Fake()) as client, pytest.raises(_FileIsGone):
        results.extend(client.ingest_many("t", _failing()))
    assert results == [_stored("a")]


@pytest.mark.parametrize("documents", [_failing, _failing_later])
def test_what_was_stored_before_is_yielded_first_by_the_asyncio_client(documents: Any) -> None:
    results = []

    async def run(client: AsyncClient) -> None:
        async for result in client.ingest_many("t", documents()):
            results.append(result)

    with pytest.raises(_FileIsGone):
        _async(Fake(), run)
    assert results == [_stored("a")]


@MANY
def test_a_document_that_cannot_be_sent_is_named(run: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match="surrogate") as caught:
        run(Fake(), [Document("\ud800", "a")])
    assert caught.value.field == "text"


def test_leaving_a_stream_ends_the_call() -> None:
    fake = Fake()
    with _client(fake) as client:
        results = client.ingest_many("t", _documents(*map(str, range(1000))))
        assert next(results) == _stored("0")
        results.close()
        assert fake.hung_up.wait(5)


async def test_leaving_an_asynchronous_stream_ends_the_call() -> None:
    fake = Fake()
    with _addresses(fake) as addresses:
        async with AsyncClient(*addresses) as client:
            results = client.ingest_many("t", _documents(*map(str, range(1000))))
            assert await anext(results) == _stored("0")
            await results.aclose()
            assert await asyncio.to_thread(fake.hung_up.wait, 5)


def test_documents_are_taken_as_the_service_asks_for_them() -> None:
    """A corpus that does not fit into memory can be streamed."""
    taken = 0

    def documents() -> Iterator[Document]:
        nonlocal taken
        for number in range(1000):
            taken += 1
            yield Document("x" * 100_000, str(number))

    with _client(Fake()) as client:
        results = client.ingest_many("t", documents())
        next(results)
        assert taken < 200
        results.close()
