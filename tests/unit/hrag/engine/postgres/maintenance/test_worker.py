"""When the maintenance worker tries again what has failed."""

from collections.abc import Callable
from typing import Any

import pytest

from hrag.engine.postgres.maintenance import worker as module
from hrag.engine.postgres.maintenance.worker import MaintenanceWorker
from hrag.engine.postgres.write.writer import PostgresWriter
from hrag.errors import StoreUnavailable
from hrag.values.deadline import Deadline
from tests.support.documents.fakes import collection_settings, prepared, sentences
from tests.support.until import until

pytestmark = pytest.mark.postgres


def _failing_once(work: Callable[..., int]) -> Callable[..., int]:
    failures = [StoreUnavailable("the connection was lost")]

    def flaky(*args: Any, **options: Any) -> int:
        if failures:
            raise failures.pop()
        return work(*args, **options)

    return flaky


def test_writers_do_not_wait_for_the_next_survey_after_a_failure(database, monkeypatch):
    monkeypatch.setattr(module, "_MAX_BACKLOG", 100)
    monkeypatch.setattr(module, "_PAUSE_S", 0.01)
    monkeypatch.setattr(module, "_RETRY_S", 0.1)
    monkeypatch.setattr(module, "move_collection", _failing_once(module.move_collection))
    worker = MaintenanceWorker(database, home_leaves=50)
    writer = PostgresWriter(database, worker)
    writer.create_collection("t", "c", collection_settings())
    collection = writer.open("t", "c")
    worker.start()
    try:
        writer.put(collection, prepared("d", sentences(500)))
        until(lambda: worker._backlogs.get(collection.collection_id, 0) > 100)
        writer.wait_for_capacity(collection, Deadline.after(20))
    finally:
        assert worker.close()
