"""Commands run in the process of the tests, so their settings are undone afterwards."""

from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from hrag.cli import startup


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    """Restores the settings of structlog after each test.

    A command sets the level and the format of all logs. During a test, no logger caches these
    settings.
    """
    before, configure = structlog.get_config(), structlog.configure

    def uncached(**options: Any) -> None:
        configure(**{**options, "cache_logger_on_first_use": False})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structlog, "configure", uncached)
        yield
    configure(**before)


@pytest.fixture(autouse=True)
def _no_wait_for_services(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets commands fail at once if no service listens; a test of waiting sets its own time."""
    monkeypatch.setattr(startup, "WAIT_S", 0.0)
