"""The maintenance worker retries failed work long before its next survey of all collections."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from hrag.engine.postgres.maintenance import worker as module
from hrag.engine.postgres.maintenance.worker import MaintenanceLimits, MaintenanceWorker
from hrag.engine.postgres.store.opened_collection import open_by_id
from hrag.engine.postgres.write.writer import PostgresWriter
from hrag.errors import StoreUnavailable
from hrag.values.deadline import Deadline
from tests.support.documents.fakes import collection_settings, prepared, sentences
from tests.support.documents.vocabulary import wordy
from tests.support.until import until

pytestmark = pytest.mark.postgres


def _failing_once(work: Callable[..., int], may_retry: threading.Event) -> Callable[..., int]:
    """Returns a function that fails at its first call and does the work at all others.

    The other calls wait until `may_retry` is set.
    """
    failures = [StoreUnavailable("the connection was lost")]

    def flaky(*args: Any, **options: Any) -> int:
        if failures:
            raise failures.pop()
        assert may_retry.wait(60)
        return work(*args, **options)

    return flaky


def test_writers_do_not_wait_for_the_next_survey_after_a_failure(database, monkeypatch):
    """The retry comes soon after the failure. The next survey would come a minute later."""
    may_retry = threading.Event()
    flaky = _failing_once(module.move_collection, may_retry)
    monkeypatch.setattr(module, "move_collection", flaky)
    limits = MaintenanceLimits(max_backlog=100, pause_s=0.01, retry_s=0.1)
    worker = MaintenanceWorker(database, home_leaves=50, limits=limits)
    writer = PostgresWriter(database, worker)
    writer.create_collection("t", "c", collection_settings())
    collection = writer.open("t", "c")
    worker.start()
    try:
        writer.put(collection, prepared("d", sentences(500)))
        until(lambda: worker.backlog(collection.collection_id) > 100)
        may_retry.set()
        writer.wait_for_capacity(collection, Deadline.after(40))
    finally:
        may_retry.set()
        until(worker.close)


def test_deleted_leaves_are_removed_from_the_index_when_they_are_many(database, writer, collection):
    """The counter of the graph's leaves follows, so that searches do not visit more than needed."""
    number = collection.collection_id
    worker = MaintenanceWorker(database, home_leaves=50)

    def counters() -> tuple[int, int]:
        with database.read() as connection:
            opened = open_by_id(connection, "t", number)
        assert opened is not None
        return opened.in_graph, opened.leaves

    def delete(*numbers: int) -> None:
        for n in numbers:
            writer.delete(collection, f"d{n}")
        worker.maintain("t", number)

    writer.put_many([(collection, wordy(f"d{n}", n, sentences=60)) for n in range(12)])
    worker.maintain("t", number, every_leaf=True)
    whole = counters()[1]
    assert counters() == (whole, whole)
    delete(0)
    assert counters()[0] == whole
    delete(*range(1, 9))
    assert counters()[0] == counters()[1] < whole
