"""Commands run in this process: what they configure must not reach the tests after them."""

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """A command sets the level and the format of all logs."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)
