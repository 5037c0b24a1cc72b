"""Running services, shared by a whole session because tenants keep tests apart."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.running import Running, running

_numbers = count(1)


@pytest.fixture(scope="session")
def services(
    tmp_path_factory: pytest.TempPathFactory, _no_settings_from_outside: None
) -> Iterator[Running]:
    """Both services with pseudo-embeddings: fast, and scores that mean nothing."""
    with running(tmp_path_factory.mktemp("hash") / "store") as both:
        yield both


@pytest.fixture(scope="session")
def builtin_services(
    tmp_path_factory: pytest.TempPathFactory, _no_settings_from_outside: None
) -> Iterator[Running]:
    """Both services with the embedder that knows what words mean."""
    with running(tmp_path_factory.mktemp("builtin") / "store", {}) as both:
        yield both


@pytest.fixture
def tenant() -> str:
    """A tenant that no other test has."""
    return f"tenant-{next(_numbers)}"


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Where a store may come to be."""
    return tmp_path / "store"
