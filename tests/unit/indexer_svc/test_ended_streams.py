"""After a stream has ended, nothing refers to its documents, for every kind of end.

A reference cycle would keep a stream and its documents in memory until the garbage collector
runs. The collector counts objects and not their bytes, so it may run late.
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NoReturn

import pytest

from hrag import errors
from hrag.types import Document, IngestResult
from indexer_svc.bulk import BulkLoad, IngestRequest
from indexer_svc.ingest_pipeline import IngestDraft, Ready
from indexer_svc.prefetch_queue import PrefetchQueue
from tests.conftest import Engine
from tests.support.engines.streams import Service, ingest_request, numbered, service_of, stages
from tests.support.until import until


@pytest.fixture
def service(engine: Engine) -> Iterator[Service]:
    """A service whose collection exists, so that its creation is not part of any stream."""
    with service_of(engine) as service:
        service.run([Document("Text.", "first")])
        yield service


Stream = Iterator[IngestRequest]


def _documents(_: Service) -> Stream:
    return map(ingest_request, numbered(3))


def _blank_last(_: Service) -> Stream:
    yield from map(ingest_request, [*numbered(2), Document(" ", "blank")])


def _malformed_last(_: Service) -> Stream:
    yield ingest_request(Document("Text.", "d"))
    yield ingest_request(Document("Lone surrogate: \ud800", "malformed"))


def _fault_in_cutting(service: Service) -> Stream:
    service.pipeline.cut = _raising(ValueError("a fault of ours"))  # type: ignore[method-assign]
    return _documents(service)


def _full_in_admission(service: Service) -> Stream:
    service.pipeline.admit = _raising(errors.StorageFull("full"))  # type: ignore[method-assign]
    return _documents(service)


def _embedding_fails(error: Exception) -> Callable[[Service], Stream]:
    def stream(service: Service) -> Stream:
        service.embedder.fail = _raising(error)
        return _documents(service)

    return stream


def _commit_fails(error: Exception) -> Callable[[Service], Stream]:
    def stream(service: Service) -> Stream:
        service.writer.fail = _raising(error)
        return _documents(service)

    return stream


def _rejected_by_the_commit(service: Service) -> Stream:
    """The commit keeps each error in a local variable of a stack frame of this error.

    So the error refers to itself, by its traceback.
    """

    def commit(ready: Sequence[Ready]) -> list[IngestResult | errors.HragError]:
        rejections: list[IngestResult | errors.HragError] = []
        for _ in ready:
            try:
                raise errors.StorageQuotaExceeded("full", tenant_id="t", field="bytes")
            except errors.HragError as error:
                rejections.append(error)
        return rejections

    service.pipeline.commit = commit  # type: ignore[method-assign]
    return _documents(service)


def _cyclic_error_of_the_commit(service: Service) -> Stream:
    """The commit raises an error that refers to itself, by the local variable `full`."""

    def commit(ready: Sequence[Ready]) -> NoReturn:
        full = errors.StorageFull("full")
        raise full

    service.pipeline.commit = commit  # type: ignore[method-assign]
    return _documents(service)


def _broken_source(_: Service) -> Stream:
    yield ingest_request(Document("Text.", "d"))
    raise errors.InvalidArgument("the request cannot be read", field="request")


def _cancelled(service: Service) -> Stream:
    load = service.loads[-1]

    def read() -> Document:
        load.cancel()
        return Document("Text.", "last")

    yield from map(ingest_request, numbered(2))
    yield IngestRequest("t", "default", "last", read)


def _cancelled_after_a_rejection(service: Service) -> Stream:
    yield ingest_request(Document(" ", "blank"))
    service.loads[-1].cancel()


def _stopped(service: Service) -> Stream:
    yield ingest_request(Document("Text.", "d0"))
    service.stopping.set()
    yield ingest_request(Document("Text.", "d1"))


STREAMS: dict[str, Callable[[Service], Stream]] = {
    "stored": _documents,
    "the last is blank": _blank_last,
    "the last is malformed": _malformed_last,
    "a fault in cutting": _fault_in_cutting,
    "no disk space in the admission": _full_in_admission,
    "the embedder is down": _embedding_fails(errors.EmbedderUnavailable("down")),
    "the embedder rejects": _embedding_fails(errors.EmbedderRejected("no")),
    "a fault in the embedder": _embedding_fails(ValueError("a fault of ours")),
    "a deadline in the embedder": _embedding_fails(errors.DeadlineExceeded("late")),
    "no disk space in the commit": _commit_fails(errors.StorageFull("full")),
    "a fault in the commit": _commit_fails(ValueError("a fault of ours")),
    "rejected by the commit": _rejected_by_the_commit,
    "a cyclic error of the commit": _cyclic_error_of_the_commit,
    "a broken source": _broken_source,
    "cancelled": _cancelled,
    "cancelled after a rejection": _cancelled_after_a_rejection,
    "stopped": _stopped,
}


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("ending", STREAMS)
def test_a_stream_that_has_ended_refers_to_no_document(service: Service, ending: str) -> None:
    """This is also true while something refers to the stream itself."""
    before = _alive(Document, IngestDraft, Ready)
    with suppress(errors.HragError):
        _run(service, STREAMS[ending])
    until(lambda: _alive(Document, IngestDraft, Ready) <= before)


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("ending", STREAMS)
def test_a_stream_that_has_ended_is_freed_immediately(service: Service, ending: str) -> None:
    service.loads.clear()
    before = _alive(BulkLoad, PrefetchQueue)
    with suppress(errors.HragError):
        _run(service, STREAMS[ending])
    service.loads.clear()
    until(lambda: not stages() and _alive(BulkLoad, PrefetchQueue) <= before)


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("answers", [0, 1])
def test_a_stream_that_is_dropped_is_freed_immediately(service: Service, answers: int) -> None:
    service.loads.clear()
    before = _alive(Document, BulkLoad, PrefetchQueue)
    dropped = service.answers(numbered(100))
    for _ in range(answers):
        next(dropped)
    del dropped
    service.loads.clear()
    until(lambda: not stages() and _alive(Document, BulkLoad, PrefetchQueue) <= before)


@pytest.mark.usefixtures("no_collector")
def test_a_stream_that_never_runs_is_freed_immediately(service: Service) -> None:
    service.loads.clear()
    before = _alive(Document, BulkLoad, PrefetchQueue)
    service.load(map(ingest_request, numbered(3))).cancel()
    service.loads.clear()
    assert _alive(Document, BulkLoad, PrefetchQueue) <= before


def test_an_unexpected_error_keeps_its_stack_as_a_note(service: Service) -> None:
    """The log shows the note, because the error has no traceback any more."""
    (answer, *_), *_ = service.load(_fault_in_cutting(service)).run()
    assert isinstance(answer.outcome, ValueError)
    assert answer.outcome.__traceback__ is None
    (stack,) = answer.outcome.__notes__
    assert "in _cut\n" in stack


def _run(service: Service, stream: Callable[[Service], Stream]) -> None:
    for _ in service.load(stream(service)).run():
        pass


def _raising(error: Exception) -> Callable[..., Any]:
    """Returns a function that raises a new error of the same class each time.

    No local variable refers to the error.
    """
    kind, arguments = type(error), error.args

    def fail(*_: object, **__: object) -> NoReturn:
        raise kind(*arguments)

    return fail


def _alive(*kinds: type) -> set[int]:
    """Returns the ids of all objects of these classes."""
    return {id(instance) for instance in gc.get_objects() if isinstance(instance, kinds)}
