"""Commands run in the process of the tests."""

import pytest

from hrag.cli import startup


@pytest.fixture(autouse=True)
def _no_wait_for_services(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets commands fail at once if no service listens; a test of waiting sets its own time."""
    monkeypatch.setattr(startup, "WAIT_S", 0.0)
