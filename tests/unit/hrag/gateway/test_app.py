"""Only pages of allowed origins can read replies. Only requests for allowed hosts are answered."""

from collections.abc import Iterator

import pytest

from tests.support.servers.fake_services import Fake, addresses_of
from tests.support.servers.gateways import SEARCH, Gateway, gateway_to

ORIGIN = "https://app.example.org"
HOST = "hrag.example.org"


def test_pages_of_other_origins_cannot_read_replies(gateway: Gateway) -> None:
    reply = gateway.post(SEARCH, {}, {"origin": ORIGIN})
    assert "access-control-allow-origin" not in reply.headers
    preflight_headers = {"origin": ORIGIN, "access-control-request-method": "POST"}
    assert gateway.send("OPTIONS", SEARCH, headers=preflight_headers).status == 405


@pytest.fixture(scope="module")
def open_gateway(fake: Fake) -> Iterator[Gateway]:
    """A gateway that allows pages of ORIGIN and requests for HOST."""
    with (
        addresses_of(fake) as addresses,
        gateway_to(*addresses, HRAG_HTTP_ORIGINS=ORIGIN, HRAG_HTTP_HOSTS=HOST) as running,
    ):
        yield running


@pytest.mark.parametrize(("origin", "allowed"), [(ORIGIN, True), ("https://evil.org", False)])
def test_pages_of_allowed_origins_read_replies(
    open_gateway: Gateway, origin: str, allowed: bool
) -> None:
    preflight_headers = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
    }
    preflight = open_gateway.send("OPTIONS", SEARCH, headers=preflight_headers)
    assert (preflight.status == 200) == allowed
    reply = open_gateway.post(SEARCH, {}, {"origin": origin})
    assert (reply.headers.get("access-control-allow-origin") == origin) == allowed
    exposed = reply.headers.get("access-control-expose-headers", "").lower().split(", ")
    needed = {"retry-after", "x-request-id", "content-disposition", "etag", "content-range"}
    assert not allowed or needed <= set(exposed)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("127.0.0.1", 200),
        ("[::1]:8080", 200),
        ("hrag.example.org", 200),
        ("evil.example.org", 403),
        ("127.0.0.1.evil.org", 403),
        ("localhost.", 403),
        ("localhost@evil.org", 403),
        ("localhost:80:80", 403),
        ("", 403),
    ],
)
def test_only_requests_for_allowed_hosts_are_answered(
    open_gateway: Gateway, host: str, status: int
) -> None:
    assert open_gateway.post(SEARCH, {}, {"host": host}).status == status
