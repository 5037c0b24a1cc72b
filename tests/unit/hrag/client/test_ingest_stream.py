"""The synchronous and the asyncio client stream documents to the indexer, which is a fake."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from hrag import errors
from hrag.client import AsyncClient
from hrag.types import Document, Page
from tests.support.servers.fake_services import (
    Fake,
    addresses_of,
    client_of,
    named_documents,
    run_async,
    stored,
)


def _ingest_sync(fake: Fake, documents: Any) -> list[Any]:
    with client_of(fake) as client:
        return list(client.ingest_many("t", documents))


def _ingest_async(fake: Fake, documents: Any) -> list[Any]:
    async def run(client: AsyncClient) -> list[Any]:
        return [result async for result in client.ingest_many("t", documents)]

    return run_async(fake, run)


BOTH_CLIENTS = pytest.mark.parametrize("run", [_ingest_sync, _ingest_async], ids=["sync", "async"])


@BOTH_CLIENTS
def test_each_document_of_a_stream_gets_its_result_or_its_error(run: Any) -> None:
    first, second, third = run(Fake(), named_documents("a", "bad", "c"))
    assert (first, third) == (stored("a"), stored("c"))
    assert isinstance(second, errors.BlankDocument)
    assert (second.message, second.field) == ("blank", "text")


@BOTH_CLIENTS
@pytest.mark.parametrize(
    ("page", "field"),
    [(("x", -1), "number"), (("x", 1.5), "number"), ((5,), "pages"), (None, "pages")],
)
def test_a_page_that_cannot_be_sent_is_an_error_of_its_document(
    run: Any, page: Any, field: str
) -> None:
    wrong = Document((Page("fine"), page and Page(*page)), "wrong")
    first, second, third = run(Fake(), [*named_documents("a"), wrong, *named_documents("c")])
    assert (first, third) == (stored("a"), stored("c"))
    assert isinstance(second, errors.InvalidArgument)
    assert second.field == field


@BOTH_CLIENTS
def test_a_stream_without_documents_has_no_results(run: Any) -> None:
    assert run(Fake(), []) == []


def test_documents_may_come_from_an_asynchronous_source() -> None:
    async def documents() -> AsyncIterator[Document]:
        for document in named_documents("a", "b"):
            await asyncio.sleep(0)  # The source suspends, like a source that reads a file.
            yield document

    assert _ingest_async(Fake(), documents()) == [stored("a"), stored("b")]


@BOTH_CLIENTS
def test_a_failure_of_the_whole_stream_is_raised_and_not_retried(run: Any) -> None:
    fake = Fake(errors.StorageFull("the disk is full"))
    with pytest.raises(errors.StorageFull, match="the disk is full"):
        run(fake, named_documents("a", "b"))
    assert fake.calls == {"IngestDocuments": 1}


class _FileIsGone(Exception):
    """An error that the iterator of the documents to send raises."""


def _failing_source() -> Iterator[Document]:
    yield Document("text", "a")
    raise _FileIsGone("b.txt")


async def _failing_async_source() -> AsyncIterator[Document]:
    yield Document("text", "a")
    raise _FileIsGone("b.txt")


@pytest.mark.parametrize(
    ("run", "documents"),
    [
        (_ingest_sync, _failing_source),
        (_ingest_async, _failing_source),
        (_ingest_async, _failing_async_source),
    ],
)
def test_an_error_of_the_source_reaches_the_caller(run: Any, documents: Any) -> None:
    with pytest.raises(_FileIsGone, match=r"b\.txt"):
        run(Fake(), documents())


@BOTH_CLIENTS
@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_an_exit_of_the_source_of_documents_reaches_the_caller(
    run: Any, kind: type[BaseException]
) -> None:
    class Source:
        """Yields a document, then raises; a generator would swallow its own GeneratorExit."""

        def __init__(self) -> None:
            self._documents = iter(named_documents("a"))

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> Document:
            for document in self._documents:
                return document
            raise kind("b.txt")

    with pytest.raises(kind, match=r"b\.txt"):
        run(Fake(), Source())


def test_a_refused_stream_raises_the_refusal_and_no_error_of_the_source() -> None:
    documents = (Document("x", str(number)) for number in range(1000))
    with (
        client_of(Fake(errors.StorageFull("full"))) as client,
        pytest.raises(errors.StorageFull),
    ):
        list(client.ingest_many("t", documents))


def test_results_are_yielded_before_the_error_of_the_source_is_raised() -> None:
    results = []
    with client_of(Fake()) as client, pytest.raises(_FileIsGone):
        results.extend(client.ingest_many("t", _failing_source()))
    assert results == [stored("a")]


@pytest.mark.parametrize("documents", [_failing_source, _failing_async_source])
def test_the_asyncio_client_yields_results_before_it_raises_the_error_of_the_source(
    documents: Any,
) -> None:
    results = []

    async def run(client: AsyncClient) -> None:
        async for result in client.ingest_many("t", documents()):
            results.append(result)

    with pytest.raises(_FileIsGone):
        run_async(Fake(), run)
    assert results == [stored("a")]


@BOTH_CLIENTS
def test_a_document_that_cannot_be_sent_gets_an_error_in_its_place(run: Any) -> None:
    unsendable: Any = [Document("\ud800", "a"), "text"]
    documents = [
        *unsendable,
        Document("text", "b"),
        *unsendable,
        *named_documents("c", "d"),
        *unsendable,
    ]
    results = run(Fake(), documents)
    expected = ["text", "document"]
    assert [getattr(result, "field", result) for result in results] == [
        *expected,
        stored("b"),
        *expected,
        stored("c"),
        stored("d"),
        *expected,
    ]
    failures = (*results[:2], *results[-2:])
    assert all(isinstance(failure, errors.InvalidArgument) for failure in failures)


@BOTH_CLIENTS
def test_each_document_of_a_stream_that_cannot_be_sent_gets_an_error(run: Any) -> None:
    assert [type(error) for error in run(Fake(), [Document("\ud800")] * 2)] == (
        [errors.InvalidArgument] * 2
    )


def test_a_tenant_id_that_cannot_be_sent_is_an_error_of_the_whole_stream() -> None:
    with client_of(Fake()) as client, pytest.raises(errors.InvalidArgument, match="tenant_id"):
        client.ingest_many("\ud800", [])


def test_leaving_a_stream_ends_the_call() -> None:
    fake = Fake()
    with client_of(fake) as client:
        results = client.ingest_many("t", named_documents(*map(str, range(1000))))
        assert next(results) == stored("0")
        results.close()
        assert fake.hung_up.wait(60)


async def test_leaving_an_asynchronous_stream_ends_the_call() -> None:
    fake = Fake()
    with addresses_of(fake) as addresses:
        async with AsyncClient(*addresses) as client:
            results = client.ingest_many("t", named_documents(*map(str, range(1000))))
            assert await anext(results) == stored("0")
            await results.aclose()
            assert await asyncio.to_thread(fake.hung_up.wait, 60)


def test_documents_are_read_from_the_source_only_as_the_service_receives_them() -> None:
    """So a corpus that does not fit into memory can be streamed."""

    class ReadsOne(Fake):
        """Reads one document, and no further one before `may_answer` is set."""

        def IngestDocuments(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
            yield from super().IngestDocuments(iter([next(requests)]), context)
            self.may_answer.wait(60)

    fake, documents_read = ReadsOne(), 0
    fake.may_answer.clear()

    def documents() -> Iterator[Document]:
        nonlocal documents_read
        for number in range(1000):
            documents_read += 1
            yield Document("x" * 100_000, str(number))

    with client_of(fake) as client:
        results = client.ingest_many("t", documents())
        next(results)
        assert documents_read < 200
        results.close()
        fake.may_answer.set()
