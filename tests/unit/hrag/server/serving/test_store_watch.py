"""A service whose store is lost reports it to the log and to health checks."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from hrag.errors import StoreUnavailable
from hrag.server.serving import service_process
from hrag.server.serving.grpc_server import Server


def events(logs: list[Any]) -> list[str]:
    """Returns the events of the log about the store, in order."""
    return [log["event"] for log in logs if log["event"].startswith("store_")]


class Health:
    """Records each change of the health, with the events that the log had then."""

    def __init__(self, logs: list[Any]) -> None:
        self.changes: list[tuple[bool, list[str]]] = []
        self._logs = logs

    def set(self, *, serving: bool) -> None:
        self.changes.append((serving, events(self._logs)))


def checks(stopping: threading.Event, *problems: bool) -> Callable[[], None]:
    """Returns a check of the store with these results; the service stops after the last one."""
    results = list(problems)

    def require_store() -> None:
        problem = results.pop(0)
        if not results:
            stopping.set()
        if problem:
            raise StoreUnavailable("the folder is gone")

    return require_store


def test_the_log_has_the_reason_before_the_health_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_process, "_STORE_WATCH_S", 0.0)
    stopping = threading.Event()
    with capture_logs() as logs:
        health = Health(logs)
        server = cast("Server", SimpleNamespace(health=health))
        require_store = checks(stopping, False, True, True, False, False)
        service_process._watch_store(server, require_store, stopping)
    assert health.changes == [
        (False, ["store_lost"]),
        (True, ["store_lost", "store_found"]),
    ]
    assert events(logs) == ["store_lost", "store_found"]
