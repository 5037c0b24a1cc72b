"""The gateway reports that it is alive, and whether the services behind it are ready."""

from tests.support.servers.gateways import SEARCH, Gateway, gateway_to
from tests.support.servers.processes import free_addresses


def test_the_gateway_is_ready_if_both_services_are(gateway: Gateway) -> None:
    assert gateway.send("GET", "/healthz/live").status == 200
    readiness = gateway.send("GET", "/healthz/ready")
    assert (readiness.status, readiness.json) == (200, {"indexer": True, "retriever": True})


def test_without_services_the_gateway_is_alive_and_not_ready() -> None:
    with gateway_to(*free_addresses(2)) as gateway:
        assert gateway.send("GET", "/healthz/live").status == 200
        readiness = gateway.send("GET", "/healthz/ready")
        assert (readiness.status, readiness.json) == (503, {"indexer": False, "retriever": False})
        reply = gateway.post(SEARCH, {}, {"connect-timeout-ms": "200"})
        assert reply.json["code"] in ("unavailable", "deadline_exceeded")
