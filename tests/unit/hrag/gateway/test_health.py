"""The gateway reports that it is alive, and whether the services behind it are ready."""

from pathlib import Path

import pytest

from hrag.gateway.services import channels
from tests.support.methods import servicer_of
from tests.support.servers.gateways import SEARCH, Gateway, gateway_to
from tests.support.servers.pki import Authority
from tests.support.servers.processes import free_addresses
from tests.support.servers.servers import RETRIEVER, serving


def test_the_gateway_is_ready_if_both_services_are(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "_HEALTH_S", 60.0)  # A busy machine is slow.
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


def test_without_the_authority_of_a_service_with_tls_the_error_names_the_setting(
    tmp_path: Path,
) -> None:
    pair = Authority(tmp_path, "ours").issue()
    files = {"HRAG_TLS_CERT_FILE": pair.cert_file, "HRAG_TLS_KEY_FILE": pair.key_file}
    with (
        serving(servicer_of(RETRIEVER), RETRIEVER, **files) as address,
        gateway_to(address, address) as gateway,
    ):
        reply = gateway.post(SEARCH, {})
    assert (reply.status, reply.json["code"]) == (503, "unavailable")
    assert "if it serves with TLS, set HRAG_CA_FILE for the gateway" in reply.json["message"]
