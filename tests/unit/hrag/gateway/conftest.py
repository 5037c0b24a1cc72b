"""Fixtures with a gateway to fake services, which all tests of this folder share."""

from collections.abc import Iterator

import pytest

from tests.support.servers.fake_services import Fake, addresses_of
from tests.support.servers.gateways import Gateway, gateway_to


@pytest.fixture(scope="session")
def fake() -> Fake:
    """The fake of both services, which counts their calls and fails on demand."""
    return Fake()


@pytest.fixture(scope="session")
def gateway(fake: Fake) -> Iterator[Gateway]:
    """A running gateway to `fake`."""
    with addresses_of(fake) as addresses, gateway_to(*addresses) as running:
        yield running
