"""Whether the gateway lives, and whether it is ready."""

from tests.support.servers.gateways import SEARCH, Gateway, gateway_to
from tests.support.servers.processes import free_addresses


def test_health_is_that_of_both_services(gateway: Gateway) -> None:
    assert gateway.send("GET", "/healthz/live").status == 200
    ready = gateway.send("GET", "/healthz/ready")
    assert (ready.status, ready.json) == (200, {"indexer": True, "retriever": True})


def test_without_services_the_gateway_lives_and_is_not_ready() -> None:
    with gateway_to(*free_addresses(2)) as alone:
        assert alone.send("GET", "/healthz/live").status == 200
        ready = alone.send("GET", "/healthz/ready")
        assert (ready.status, ready.json) == (503, {"indexer": False, "retriever": False})
        reply = alone.post(SEARCH, {}, {"connect-timeout-ms": "200"})
        assert reply.json["code"] in ("unavailable", "deadline_exceeded")
