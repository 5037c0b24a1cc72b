"""Strangers at the HTTP port: slow, silent, vanishing, oversized, ambiguous."""

import gzip
import json
import select
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPResponse
from pathlib import Path

import pytest

from tests.support.servers.fake_services import Fake, addresses_of
from tests.support.servers.gateways import ANSWER, INGEST, INGEST_MANY, SEARCH, Gateway, gateway_to
from tests.support.servers.pki import Authority
from tests.support.until import until

pytestmark = pytest.mark.attacks

_LIMIT_S = 1.0  # For headers and bodies to arrive, and for replies to be read.
_PATIENCE_S = 30  # The machine may be busy.
_CONNECTIONS = 16
_REQUEST = b"POST %b HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
_LIMITS = {
    "HRAG_ARRIVAL_TIMEOUT_S": _LIMIT_S,
    "HRAG_SEND_TIMEOUT_S": _LIMIT_S,
    "HRAG_STREAM_IDLE_TIMEOUT_S": _LIMIT_S,
    "HRAG_MAX_CONNECTIONS": _CONNECTIONS,
    "HRAG_HTTP_MAX_BUFFERED_BYTES": 16 << 20,
}


@pytest.fixture(scope="module")
def fake() -> Fake:
    return Fake()


@pytest.fixture(scope="module")
def gateway(fake: Fake) -> Iterator[Gateway]:
    with addresses_of(fake) as addresses, gateway_to(*addresses, **_LIMITS) as running:
        yield running


@pytest.fixture(scope="module")
def patient(fake: Fake) -> Iterator[Gateway]:
    """A gateway with so much time for its clients that it frees nothing while a test runs."""
    times = {name: 10 * _PATIENCE_S for name in _LIMITS if name.endswith("_S")}
    with addresses_of(fake) as addresses, gateway_to(*addresses, **_LIMITS | times) as running:
        yield running


def _connect(gateway: Gateway) -> socket.socket:
    return socket.create_connection(("127.0.0.1", gateway.port), timeout=_PATIENCE_S)


def _head(path: str, *headers: bytes) -> bytes:
    return _REQUEST % path.encode() + b"".join(b"%b\r\n" % each for each in headers) + b"\r\n"


def _sent(gateway: Gateway, raw: bytes) -> bytes:
    """What comes back until the gateway closes the connection."""
    with _connect(gateway) as connection:
        connection.sendall(raw)
        return _rest(connection)


def _rest(connection: socket.socket) -> bytes:
    received = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(65_536):
            received += part
    return received


def _serves(gateway: Gateway) -> None:
    assert gateway.post(SEARCH, {}).status == 200


# Slow clients


@pytest.fixture(scope="module")
def begins(gateway: Gateway) -> list[bytes]:
    """What comes back for each of the requests that only begin, until the gateway hangs up.

    All at once: each takes as long as is allowed.
    """
    lines = _head(INGEST_MANY, b"transfer-encoding: chunked")
    begun = [
        *(b"", b"POST ", b"\x16\x03\x01\x02"),
        *(_head(path, b"content-length: 100") + b"{" for path in (SEARCH, INGEST, ANSWER)),
        lines.replace(b"application/json", b"application/x-ndjson") + b"1\r\n{\r\n",
        _head(SEARCH, b"content-length: 2") + b"{}POST ",
    ]
    with ExitStack() as stack:
        connections = [stack.enter_context(_connect(gateway)) for _ in begun]
        for connection, raw in zip(connections, begun, strict=True):
            connection.sendall(raw)
        return [_rest(each) for each in connections]


def test_headers_have_to_arrive_in_time(begins: list[bytes]) -> None:
    assert all(b"HTTP/1.1 200" not in each for each in begins[:3])


def test_one_byte_at_a_time_gives_no_more_time(gateway: Gateway) -> None:
    with _connect(gateway) as connection:
        connection.sendall(_REQUEST % SEARCH.encode())
        with pytest.raises(ConnectionError):
            _repeat(connection, b"x")


def test_a_body_has_to_arrive_in_time(begins: list[bytes]) -> None:
    for each in begins[3:6]:
        assert each.startswith(b"HTTP/1.1 504")
        assert b"HRAG_ARRIVAL_TIMEOUT_S" in each


def test_a_line_has_to_arrive_in_time(begins: list[bytes]) -> None:
    assert begins[6].startswith(b"HTTP/1.1 504")
    assert b"HRAG_STREAM_IDLE_TIMEOUT_S" in begins[6]


def test_a_second_request_has_to_arrive_in_time_too(begins: list[bytes]) -> None:
    assert begins[7].startswith(b"HTTP/1.1 200")
    assert begins[7].count(b"HTTP/1.1") == 1


def test_who_does_not_read_is_cut_off(gateway: Gateway) -> None:
    """Replies that nobody reads fill the connection's buffers and are dropped in time."""
    request = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with _connect(gateway) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with pytest.raises(ConnectionError):
            _repeat(connection, request * 50)


def _repeat(connection: socket.socket, raw: bytes) -> None:
    until_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until_s:
        connection.sendall(raw)
        time.sleep(_LIMIT_S / 10)


# Too many, too large


def test_idle_connections_lock_nobody_out(gateway: Gateway) -> None:
    with ExitStack() as stack:
        for _ in range(3 * _CONNECTIONS):
            stack.enter_context(_connect(gateway))
        _serves(gateway)


@pytest.mark.parametrize("path", [SEARCH, INGEST])
def test_requests_that_do_not_arrive_lock_nobody_out(patient: Gateway, path: str) -> None:
    with ExitStack() as stack:
        for _ in range(3 * _CONNECTIONS):
            connection = stack.enter_context(_connect(patient))
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(_head(path, b"content-length: 9"))
        time.sleep(0.5)  # Until their headers were read.
        _serves(patient)


def test_replies_that_strangers_do_not_read_lock_nobody_out(patient: Gateway) -> None:
    request = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with ExitStack() as stack:
        for _ in range(4):
            for _ in range(_CONNECTIONS):
                connection = stack.enter_context(socket.socket())
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection.connect(("127.0.0.1", patient.port))
                with suppress(ConnectionError):
                    connection.sendall(request * 50)
            time.sleep(0.5)  # Until what they are sent fills the buffers.
            _serves(patient)


def test_half_made_handshakes_lock_nobody_out(fake: Fake, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    pair = authority.issue()
    tls = {"HRAG_TLS_CERT_FILE": pair.cert_file, "HRAG_TLS_KEY_FILE": pair.key_file}
    with (
        addresses_of(fake) as addresses,
        gateway_to(*addresses, ca_file=authority.ca_file, **_LIMITS, **tls) as gateway,
        ExitStack() as stack,
    ):
        for _ in range(3 * _CONNECTIONS):
            stack.enter_context(_connect(gateway)).sendall(b"\x16\x03\x01")
        _serves(gateway)
        plain = stack.enter_context(_connect(gateway))
        plain.sendall(_head(SEARCH, b"content-length: 2") + b"{}")
        assert b"HTTP/1.1 200" not in _rest(plain)


def test_headers_are_bounded(gateway: Gateway) -> None:
    head = _REQUEST % SEARCH.encode() + b"x-large: " + b"a" * 20_000
    assert not _sent(gateway, head).startswith(b"HTTP/1.1 200")


def test_all_bodies_together_are_bounded(gateway: Gateway, fake: Fake) -> None:
    large = json.dumps({"document": {"text": "a" * (9 << 20)}}).encode()
    with _connect(gateway) as first:
        first.sendall(_head(INGEST, b"content-length: %d" % len(large)) + large[:-1])
        until_s = time.monotonic() + _PATIENCE_S
        while (reply := gateway.post(INGEST, large)).status == 200:
            assert time.monotonic() < until_s
    assert (reply.status, reply.reason) == (429, "TOO_BUSY")
    assert "HRAG_HTTP_MAX_BUFFERED_BYTES" in reply.json["message"]


def test_one_credential_holds_half_however_it_is_spelt(patient: Gateway) -> None:
    """Of three bodies that do not end, each of nearly half, one is held."""
    part = b" " * (7 << 20)
    with ExitStack() as stack:
        connections = []
        for spelling in (b"Bearer key", b"bearer key", b"BEARER  key"):
            headers = b"authorization: " + spelling, b"content-length: %d" % (len(part) + 1)
            connections.append(stack.enter_context(_connect(patient)))
            connections[-1].sendall(_head(INGEST, *headers) + part)
        until(lambda: len(_answered(connections)) == 2)
        for each in _answered(connections):
            assert b"requests and replies of this caller" in _read(each)[1]
        large = json.dumps({"document": {"text": "a" * (4 << 20)}}).encode()
        assert patient.post(INGEST, large, {"authorization": "Bearer other"}).status == 200


def test_what_stands_behind_a_gzip_is_refused_at_once(gateway: Gateway) -> None:
    """Not after the time that a body may take, during which all of it would be kept."""
    head = _head(SEARCH, b"content-encoding: gzip", b"transfer-encoding: chunked")
    parts = (gzip.compress(b"{}"), b"x" * 1000)
    with _connect(gateway) as connection:
        connection.sendall(head + b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in parts))
        status, body = _read(connection)
        assert (status, b"data after its gzip" in body) == (400, True)


def _answered(connections: list[socket.socket]) -> list[socket.socket]:
    return select.select(connections, (), (), 0)[0]


def _read(connection: socket.socket) -> tuple[int, bytes]:
    """The status and the body of the next reply."""
    with HTTPResponse(connection) as response:
        response.begin()
        return response.status, response.read()


# Clients that go away


@pytest.mark.parametrize("path", [SEARCH, INGEST, ANSWER, INGEST_MANY])
def test_who_goes_away_holds_nothing(gateway: Gateway, path: str) -> None:
    for length in (b"100", b"2"):
        with ExitStack() as stack:
            for _ in range(_CONNECTIONS):
                connection = stack.enter_context(_connect(gateway))
                connection.sendall(_head(path, b"content-length: " + length) + b"{}")
    _serves(gateway)


# Ambiguous requests


@pytest.mark.parametrize(
    "headers",
    [
        (b"content-length: 2", b"content-length: 3"),
        (b"content-length: +2",),
        (b"content-length: 2, 3",),
        (b"content-length: 0x2",),
        (b"content-length: 2", b"transfer-encoding: chunked"),
        (b"transfer-encoding: xchunked",),
        (b"transfer-encoding: chunked", b"transfer-encoding: chunked"),
        (b"transfer-encoding: gzip, chunked",),
        (b"content-length : 2",),
        (b" content-length: 2",),
        (b"host: evil.org", b"content-length: 2"),
    ],
    ids=ascii,
)
def test_where_a_request_ends_is_not_a_matter_of_opinion(
    gateway: Gateway, fake: Fake, headers: tuple[bytes, ...]
) -> None:
    """No second request hides in the body of the first; see RFC 9112, section 11.2."""
    before = fake.calls["IngestDocument"]
    hidden = _head(INGEST, b"content-length: 2") + b"{}"
    answer = _sent(gateway, _head(SEARCH, *headers) + b"0\r\n\r\n" + hidden)
    assert fake.calls["IngestDocument"] == before
    assert not answer.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "raw",
    [
        b"POST / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/0.9\r\n\r\n",
        b"GET http://evil.org/ HTTP/1.1\r\nhost: evil.org\r\nconnection: close\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x00" * 100 + b"\r\n\r\n",
        b"GET /\x01 HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\nhost: localhost\nx: \x00\n\n",
    ],
    ids=ascii,
)
def test_nonsense_is_refused(gateway: Gateway, raw: bytes) -> None:
    assert b"HTTP/1.1 200" not in _sent(gateway, raw)
    _serves(gateway)
