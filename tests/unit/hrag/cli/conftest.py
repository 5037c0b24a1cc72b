"""Commands run in the process of the tests, so their logging settings are undone afterwards."""

from collections.abc import Iterator
from typing import Any

import pytest
import structlog


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
