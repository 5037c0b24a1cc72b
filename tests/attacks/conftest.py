"""Starts the services that the tests of a module attack."""

from collections.abc import Iterator

import pytest

from tests.attacks.world import Guarded, guarded_services


@pytest.fixture(scope="module")
def guarded(
    tmp_path_factory: pytest.TempPathFactory, _no_settings_from_outside: None
) -> Iterator[Guarded]:
    with guarded_services(tmp_path_factory.mktemp("attacks")) as services:
        yield services
