"""The maintenance worker retries failed work long before its next survey of all collections."""

from collections.abc import Callable
from typing import Any

import pytest

from hrag.engine.postgres.maintenance import worker as module
from hrag.engine.postgres.maintenance.worker import MaintenanceLimits, MaintenanceWorker
from hrag.engine.postgres.write.writer import PostgresWriter
from hrag.errors import StoreUnavailable
from hrag.values.deadline import Deadline
from tests.support.documents.fakes import collection_settings, prepared, sentences
from tests.support.until import until

pytestmark = pytest.mark.postgres


def _failing_once(work: Callable[..., int]) -> Callable[..., int]:
    """Returns a function that fails at its first call and does the work at all others."""
    failures = [StoreUnavailable("the connection was lost")]

    def flaky(*args: Any, **options: Any) -> int:
        if failures:
            raise failures.pop()
        return work(*args, **options)

    return flaky


def test_writers_do_not_wait_for_the_next_survey_after_a_failure(database, monkeypatch):
    """The retry comes soon after the failure. The next survey would come a minute later."""
    monkeypatch.setattr(module, "move_collection", _failing_once(module.move_collection))
    limits = MaintenanceLimits(max_backlog=100, pause_s=0.01, retry_s=0.1)
    worker = MaintenanceWorker(database, home_leaves=50, limits=limits)
    writer = PostgresWriter(database, worker)
    writer.create_collection("t", "c", collection_settings())
    collection = writer.open("t", "c")
    worker.start()
    try:
        writer.put(collection, prepared("d", sentences(500)))
        until(lambda: worker.backlog(collection.collection_id) > 100)
        writer.wait_for_capacity(collection, Deadline.after(20))
    finally:
        assert worker.close()
