"""Requests that the gateway refuses itself are counted by reason, and it serves its metrics."""

import socket
from collections.abc import Callable
from urllib.request import urlopen

import pytest

from hrag.cli.processes import free_addresses
from hrag.errors import DeadlineExceeded, InvalidArgument, ServiceUnavailable, TooBusy
from hrag.observe import metrics
from hrag.observe.metrics import INSTRUMENTS
from hrag.values.limits import MAX_JSON_DEPTH, MAX_JSON_VALUES
from tests.support.servers.fake_services import Fake, addresses_of
from tests.support.servers.gateways import INGEST_MANY, JSON, SEARCH, Gateway, gateway_to
from tests.support.until import until

_PATIENCE_S = 20
_HEAD = f"POST {SEARCH} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n".encode()
_REQUESTS: dict[str, list[Callable[[Gateway], object]]] = {
    "json_values": [lambda g: g.post(SEARCH, b"[" + b"1," * MAX_JSON_VALUES + b"1]")],
    "json_depth": [lambda g: g.post(SEARCH, b"[" * (MAX_JSON_DEPTH + 1))],
    "invalid": [
        lambda g: g.post(SEARCH, b"{"),
        lambda g: g.post(SEARCH, {"bogus": 1}),
        lambda g: g.post("/retrieval", {"bogus": 1}),
        lambda g: g.send("POST", INGEST_MANY, b"{\n", {"content-type": "application/x-ndjson"}),
    ],
    "route": [
        lambda g: g.send("GET", "/nothing"),
        lambda g: g.send("GET", SEARCH),
        lambda g: g.send("POST", SEARCH, b"{}", {"content-type": "text/plain"}),
    ],
    "host": [lambda g: g.send("GET", "/", headers={"host": "evil.example"})],
    "size": [lambda g: g.send("POST", SEARCH, b"", JSON | {"content-length": str(1 << 40)})],
    "encoding": [lambda g: g.post(SEARCH, {}, {"content-encoding": "br"})],
    "form": [
        lambda g: _sent(g, b"POST / HTTP/2.0\r\nhost: localhost\r\n\r\n"),
        lambda g: _sent(g, b"\x16\x03\x01 not HTTP\r\n\r\n"),
    ],
    "head_size": [lambda g: _sent(g, b"GET / HTTP/1.1\r\na: " + b"x" * 20_000 + b"\r\n\r\n")],
}


def _connect(gateway: Gateway) -> socket.socket:
    return socket.create_connection(("127.0.0.1", gateway.port), timeout=_PATIENCE_S)


def _sent(gateway: Gateway, raw: bytes) -> bytes:
    with _connect(gateway) as connection:
        connection.sendall(raw)
        return connection.recv(65_536)


def _counts() -> dict[str, float]:
    (family,) = (family for family in INSTRUMENTS.collect() if family.name == "hrag_http_refusals")
    return {sample.labels["reason"]: sample.value for sample in family.samples}


def _counted(before: dict[str, float]) -> dict[str, float]:
    return {
        reason: count - before[reason]
        for reason, count in _counts().items()
        if count > before[reason]
    }


@pytest.mark.parametrize("reason", _REQUESTS)
def test_a_refused_request_is_counted_by_its_reason(gateway: Gateway, reason: str) -> None:
    for request in _REQUESTS[reason]:
        before = _counts()
        request(gateway)
        assert _counted(before) == {reason: 1}


def test_an_accepted_request_and_an_error_of_a_service_are_not_counted(
    gateway: Gateway, fake: Fake
) -> None:
    before = _counts()
    assert gateway.post(SEARCH, {"tenantId": "t"}).status == 200
    assert gateway.send("GET", "/healthz/live").status == 200
    metrics.http_request_refused(ServiceUnavailable("no"))
    assert _counted(before) == {}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TooBusy("no"), "busy"),
        (DeadlineExceeded("no"), "time"),
        (InvalidArgument("no", field="x"), "invalid"),
    ],
)
def test_an_error_of_the_gateway_is_counted_by_its_class(error: Exception, reason: str) -> None:
    before = _counts()
    metrics.http_request_refused(error)
    assert _counted(before) == {reason: 1}


def test_late_requests_and_surplus_connections_are_counted(fake: Fake) -> None:
    settings = {"HRAG_ARRIVAL_TIMEOUT_S": 0.2, "HRAG_MAX_CONNECTIONS": 2}
    with addresses_of(fake) as addresses, gateway_to(*addresses, **settings) as gateway:
        before = _counts()
        with _connect(gateway) as first, _connect(gateway) as second:
            first.sendall(b"GET / HTTP/1.1\r\n")
            second.sendall(_HEAD + b"content-length: 9\r\n\r\n{")
            until(lambda: _counted(before).get("time", 0) >= 2, _PATIENCE_S)
        before = _counts()
        with _connect(gateway), _connect(gateway), _connect(gateway):
            until(lambda: _counted(before).get("connections", 0) >= 1, _PATIENCE_S)


def test_the_gateway_serves_its_metrics_at_an_address_of_their_own(fake: Fake) -> None:
    (address,) = free_addresses(1)
    settings = {"HRAG_HTTP_METRICS_ADDRESS": address}
    with (
        addresses_of(fake) as addresses,
        gateway_to(*addresses, **settings),
        urlopen(f"http://{address}/metrics") as reply,
    ):
        page = reply.read().decode()
    assert "hrag_build_info{" in page
    assert 'hrag_http_refusals_total{reason="json_depth"}' in page
