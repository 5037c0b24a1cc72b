"""A stream ends at an error of all documents, when the service stops, or when it is cancelled.

An error of one document does not end the stream.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

import pytest

from hrag import errors
from hrag.errors import HragError
from hrag.types import Document
from hrag.values.deadline import Deadline
from tests.conftest import Engine
from tests.support.engines.streams import (
    CREATED,
    SOON_S,
    UNCHANGED,
    Service,
    created,
    endless,
    failing_on,
    followed_by,
    ingest_request,
    numbered,
    service_of,
    stages,
)
from tests.support.until import until


@pytest.fixture
def service(engine: Engine) -> Iterator[Service]:
    with service_of(engine) as service:
        yield service


# The following tests cover embedders that fail.


def test_an_embedder_that_is_down_is_called_once_for_a_group(service: Service) -> None:
    down = errors.EmbedderUnavailable("the endpoint is down")
    service.embedder.fail = lambda _: down
    service.embedder.gate.clear()
    answers = service.run(followed_by(numbered(30), service.embedder.gate.set))
    assert answers == [(f"d{number}", errors.EmbedderUnavailable) for number in range(30)]
    assert len(service.embedder.calls) <= 2
    assert service.writer.commit_groups == []
    service.embedder.fail = lambda _: None
    assert service.run(numbered(30)) == created(numbered(30))


@pytest.mark.parametrize("error", [errors.EmbedderRejected("no"), ValueError("a fault of ours")])
def test_a_document_that_the_embedder_rejects_fails_alone(
    service: Service, error: Exception
) -> None:
    documents = numbered(10)
    documents[4] = Document("Poison.", "d4")
    service.embedder.fail = failing_on("Poison", error)
    service.embedder.gate.clear()
    answers = service.run(followed_by(documents, service.embedder.gate.set))
    assert answers.pop(4) == ("d4", type(error))
    assert answers == created(documents[:4] + documents[5:])


def test_once_the_embedder_is_down_the_rest_of_a_group_is_not_tried(service: Service) -> None:
    def fail(texts: Sequence[str]) -> Exception | None:
        if len(texts) > 1 or "Text 0." in texts:
            return errors.EmbedderRejected("no")
        return errors.EmbedderUnavailable("down")

    service.embedder.fail = fail
    service.run([Document("  ", "x")])
    service.embedder.gate.clear()
    answers = service.run(followed_by(numbered(10), service.embedder.gate.set))
    assert answers[0] == ("d0", errors.EmbedderRejected)
    assert [outcome for _, outcome in answers[1:]] == [errors.EmbedderUnavailable] * 9
    assert len(service.embedder.calls) <= 5


# The following tests cover commits that fail.


def test_a_document_that_makes_the_commit_fail_fails_alone(service: Service) -> None:
    documents = numbered(10)
    service.writer.fail = lambda names: ValueError("a fault of ours") if "d4" in names else None
    service.writer.gate.clear()
    answers = service.run(followed_by(documents, service.writer.gate.set))
    assert answers.pop(4) == ("d4", ValueError)
    assert answers == created(documents[:4] + documents[5:])


ERRORS_OF_ALL_DOCUMENTS = [errors.StorageFull("full"), errors.StoreUnavailable("damaged")]


@pytest.mark.parametrize("error", ERRORS_OF_ALL_DOCUMENTS, ids=str)
def test_an_error_of_all_documents_ends_the_stream_after_the_answers_to_stored_documents(
    service: Service, error: HragError
) -> None:
    service.writer.fail = lambda names: error if "d2" in names else None
    answered, ended = service.failure(_one_by_one(service, numbered(5)))
    assert ended is error
    assert answered == created(numbered(2))
    assert service.writer.commit_groups == [["d0"], ["d1"], ["d2"]]


def test_documents_that_need_no_commit_are_answered_before_a_commit_fails(service: Service) -> None:
    service.run([Document("Known.", "known")])
    service.writer.fail = lambda names: errors.StorageFull("full") if "d1" in names else None
    service.embedder.calls.clear()
    service.embedder.gate.clear()

    def first_alone_then_all() -> Iterator[Document]:
        first, second = numbered(2)
        yield first
        until(lambda: service.embedder.calls != [])
        yield from [Document("Known.", "known"), Document(" ", "blank"), second]
        service.embedder.gate.set()

    answered, ended = service.failure(first_alone_then_all())
    assert isinstance(ended, errors.StorageFull)
    uncommitted = [("known", UNCHANGED), ("blank", errors.BlankDocument)]
    assert answered == [("d0", CREATED), *uncommitted]


def test_a_full_disk_while_documents_are_committed_alone_ends_the_stream(
    service: Service,
) -> None:
    def fail(names: list[str]) -> Exception | None:
        if len(names) > 1:
            return ValueError("a fault of ours")
        return errors.StorageFull("full") if names == ["d4"] else None

    service.writer.fail = fail
    service.writer.gate.clear()
    answered, ended = service.failure(followed_by(numbered(10), service.writer.gate.set))
    assert isinstance(ended, errors.StorageFull)
    assert answered == created(numbered(4))


def test_a_full_disk_while_a_document_is_admitted_ends_the_stream(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> Any:
        raise errors.StorageFull("full")

    monkeypatch.setattr(service.writer, "create_collection", full)
    with pytest.raises(errors.StorageFull):
        service.run(numbered(3))


def test_an_error_of_the_source_ends_the_stream_after_the_answers_to_earlier_documents(
    service: Service,
) -> None:
    def fail() -> None:
        raise errors.InvalidArgument("the request cannot be read", field="request")

    answered, ended = service.failure(followed_by(numbered(5), fail))
    assert isinstance(ended, errors.InvalidArgument)
    assert answered == created(numbered(5))


def _one_by_one(service: Service, documents: Sequence[Document]) -> Iterator[Document]:
    """Yields each document once all documents before it are stored, or the stream is over."""
    for index, document in enumerate(documents):
        until(partial(_may_send, service, index))
        yield document


def _may_send(service: Service, index: int) -> bool:
    """Returns True if the document before this one is stored, or if the stream is over."""
    stored = index == 0 or service.is_stored(f"d{index - 1}")
    return stored or service.loads[-1].is_cancelled


# The following tests cover waits for capacity of the index.


def test_a_commit_waits_for_capacity_once_for_each_collection(service: Service) -> None:
    service.run([Document("Known.", "known")])
    service.writer.waited.clear()
    service.writer.gate.clear()
    documents = [Document("Known.", "known"), *numbered(30)]
    service.run(followed_by(documents, service.writer.gate.set))
    # `commit_groups` has the commit of the first run too, but `waited` was cleared after it.
    assert len(service.writer.waited) == len(service.writer.commit_groups) - 1


def test_unchanged_documents_wait_for_no_capacity(service: Service) -> None:
    service.run(numbered(3))
    service.writer.capacity.clear()
    assert [outcome for _, outcome in service.run(numbered(3))] == [UNCHANGED] * 3


def test_a_stream_continues_when_there_is_capacity_again(service: Service) -> None:
    def documents() -> Iterator[Document]:
        yield from numbered(3)
        until(lambda: len(service.writer.waited) > 2)
        service.writer.capacity.set()

    service.writer.capacity.clear()
    assert service.run(documents()) == created(numbered(3))


def test_a_deadline_that_passes_during_a_wait_for_capacity_ends_the_stream(
    service: Service,
) -> None:
    class LateOnceItWaits(Deadline):
        """A deadline that passes when the load waits for capacity."""

        def check(self, stage: str) -> None:
            if service.writer.waited:
                raise errors.DeadlineExceeded(f"the deadline passed while {stage}")

    service.writer.capacity.clear()
    load = service.load(map(ingest_request, numbered(3)), LateOnceItWaits())
    with pytest.raises(errors.DeadlineExceeded, match="catch up"):
        list(load.run())
    assert service.writer.commit_groups == []


def test_a_caller_that_leaves_while_documents_are_embedded_ends_the_stream(
    service: Service,
) -> None:
    """The documents are not embedded one by one, because nobody would get the answers."""
    service.embedder.fail = lambda _: errors.Cancelled("the caller went away while embedding")
    load = service.load(map(ingest_request, numbered(5)))
    with pytest.raises(errors.Cancelled):
        list(load.run())
    assert len(service.embedder.calls) == 1
    assert service.writer.commit_groups == []


def test_a_deadline_that_has_passed_ends_the_stream_before_its_first_document(
    service: Service,
) -> None:
    load = service.load(map(ingest_request, numbered(3)), Deadline.after(-1))
    with pytest.raises(errors.DeadlineExceeded, match="extracting"):
        list(load.run())


# The following tests cover stops and cancellations.


def test_a_stop_ends_a_stream_after_the_current_group(service: Service) -> None:
    def documents() -> Iterator[Document]:
        yield from numbered(100)
        service.stopping.set()
        yield from endless()

    answered, ended = service.failure(documents())
    assert isinstance(ended, errors.ServiceUnavailable)
    assert "stopping; documents that were answered are stored" in ended.message
    assert answered == created(numbered(len(answered)))
    committed = list(chain(*service.writer.commit_groups))
    assert committed == [document_id for document_id, _ in answered]


def test_a_stop_after_the_last_answer_causes_no_error(service: Service) -> None:
    answers = service.answers(numbered(1))
    assert next(answers) == ("d0", CREATED)
    until(lambda: not stages())
    service.stopping.set()
    assert list(answers) == []


def _silence(service: Service, is_silent: threading.Event) -> Iterator[Document]:
    """Yields one document, sets the event, then waits until the stream is over."""
    yield Document("Text.", "d")
    is_silent.set()
    until(lambda: service.loads[-1].is_cancelled)


@pytest.mark.parametrize("end", ["stop", "cancel"])
@pytest.mark.parametrize("waiting_for", ["a document", "the embedder", "capacity"])
def test_a_stream_that_waits_ends_immediately(service: Service, end: str, waiting_for: str) -> None:
    if waiting_for == "the embedder":
        service.embedder.gate.clear()
    if waiting_for == "capacity":
        service.writer.capacity.clear()
    is_silent = threading.Event()
    answers = service.answers(_silence(service, is_silent))
    if waiting_for == "a document":
        assert next(answers) == ("d", CREATED)
    waits = {
        "a document": is_silent.is_set,
        "the embedder": lambda: service.embedder.calls,
        "capacity": lambda: service.writer.waited,
    }

    def end_while_waiting() -> None:
        until(waits[waiting_for])
        _end(service, end)

    ending = threading.Thread(target=end_while_waiting)
    ending.start()
    began = time.monotonic()
    with pytest.raises(errors.ServiceUnavailable if end == "stop" else errors.Cancelled):
        next(answers)
    assert time.monotonic() - began < SOON_S / 2
    ending.join()
    stored = waiting_for == "a document"
    assert service.writer.commit_groups == ([["d"]] if stored else [])


def _end(service: Service, how: str) -> None:
    if how == "stop":
        service.stopping.set()
    else:
        service.loads[-1].cancel()


def test_the_threads_of_a_stream_end_when_the_caller_drops_the_answers(service: Service) -> None:
    answers = service.answers(numbered(1000))
    assert next(answers) == ("d0", CREATED)
    del answers
    until(lambda: not stages())
    assert service.loads[-1].is_cancelled


def test_a_stream_that_has_ended_no_longer_reads_the_store(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `run` has ended, the store may be closed. A read would then end the process.

    The first admission runs until the stream has noticed the stop and has cancelled its stages.
    """
    has_left: list[bool] = []
    admit = service.pipeline.admit

    def admit_slowly(*args: Any, **options: Any) -> Any:
        service.stopping.set()
        has_left.append(False)
        until(lambda: service.loads[-1].is_cancelled)
        has_left[-1] = True
        return admit(*args, **options)

    monkeypatch.setattr(service.pipeline, "admit", admit_slowly)
    answered, ended = service.failure(numbered(10))
    assert answered == []
    assert isinstance(ended, errors.ServiceUnavailable)
    assert has_left == [True]


def test_a_stream_cancelled_before_it_runs_does_nothing(service: Service) -> None:
    load = service.load(map(ingest_request, numbered(3)))
    load.cancel()
    with pytest.raises(errors.Cancelled):
        list(load.run())
    assert service.writer.commit_groups == []
