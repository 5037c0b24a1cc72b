"""Commands run in this process: what they configure must not reach the tests after them."""

from collections.abc import Iterator
from typing import Any

import pytest
import structlog


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """A command sets the level and the format of all logs; here, no logger keeps them."""
    before, configure = structlog.get_config(), structlog.configure

    def uncached(**options: Any) -> None:
        configure(**{**options, "cache_logger_on_first_use": False})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structlog, "configure", uncached)
        yield
    configure(**before)
