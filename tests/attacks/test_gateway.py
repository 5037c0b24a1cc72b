"""Strangers at the HTTP port cannot block others by slow, huge, unread or ambiguous requests."""

import gzip
import json
import re
import select
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from hrag.v1 import retriever_pb2 as rpb
from tests.support.servers.fake_services import Fake, addresses_of
from tests.support.servers.gateways import ANSWER, INGEST, INGEST_MANY, SEARCH, Gateway, gateway_to
from tests.support.servers.pki import Authority
from tests.support.until import until

pytestmark = pytest.mark.attacks

# This is the time limit for headers and bodies to arrive, and for replies to be read.
_LIMIT_S = 1.0
# The most seconds that a test waits, because the machine may be busy.
_PATIENCE_S = 30
_CONNECTIONS = 16
# The most seconds of processor time of four requests, for their client and for the gateway.
_MAX_PROCESSOR_S = 2.0
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
    """A gateway whose time limits are longer than any test."""
    times = {name: 10 * _PATIENCE_S for name in _LIMITS if name.endswith("_S")}
    with addresses_of(fake) as addresses, gateway_to(*addresses, **_LIMITS | times) as running:
        yield running


def _connect(gateway: Gateway) -> socket.socket:
    return socket.create_connection(("127.0.0.1", gateway.port), timeout=_PATIENCE_S)


def _head(path: str, *headers: bytes) -> bytes:
    return _REQUEST % path.encode() + b"".join(b"%b\r\n" % header for header in headers) + b"\r\n"


def _sent(gateway: Gateway, raw: bytes) -> bytes:
    """Sends bytes; returns all that the gateway sends until it closes the connection."""
    with _connect(gateway) as connection:
        connection.sendall(raw)
        return _read_to_end(connection)


def _read_to_end(connection: socket.socket) -> bytes:
    received = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(65_536):
            received += part
    return received


def _serves(gateway: Gateway) -> None:
    assert gateway.post(SEARCH, {}).status == 200


# These documents have very many values.


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ({f"k{number}": number for number in range(400_000)}, b"at most 100,000 are allowed"),
        ({f"k{number}": number for number in range(90_000)}, b"at most 1,024 are allowed"),
        ([[[0] * 100] * 100] * 40, b"at most 100,000 are allowed"),
    ],
    ids=["values", "metadata", "lists"],
)
def test_very_many_values_are_refused_before_they_are_built(
    patient: Gateway, metadata: object, says: bytes
) -> None:
    """Each request took over a second of processor time when the values were built first."""
    document = {"text": "x", "metadata": {"m": metadata}}
    raw = json.dumps({"tenantId": "t", "document": document}).encode()
    began = time.process_time()
    for _ in range(4):
        reply = patient.post(INGEST, raw)
        assert (reply.status, says in reply.body) == (400, True)
    assert time.process_time() - began < _MAX_PROCESSOR_S


# These clients send or read slowly.


@pytest.fixture(scope="module")
def replies_to_unfinished(gateway: Gateway) -> list[bytes]:
    """The replies to eight requests that never end, each up to the end of its connection.

    The requests are sent at the same time, because the gateway closes each connection only at the
    time limit.
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
        return [_read_to_end(connection) for connection in connections]


def test_headers_have_to_arrive_in_time(replies_to_unfinished: list[bytes]) -> None:
    assert all(b"HTTP/1.1 200" not in reply for reply in replies_to_unfinished[:3])


def test_sending_single_bytes_does_not_extend_the_time_limit(gateway: Gateway) -> None:
    with _connect(gateway) as connection:
        connection.sendall(_REQUEST % SEARCH.encode())
        with pytest.raises(ConnectionError):
            _repeat(connection, b"x")


def test_a_body_has_to_arrive_in_time(replies_to_unfinished: list[bytes]) -> None:
    for reply in replies_to_unfinished[3:6]:
        assert reply.startswith(b"HTTP/1.1 504")
        assert b"HRAG_ARRIVAL_TIMEOUT_S" in reply


def test_a_line_of_a_stream_has_to_arrive_in_time(replies_to_unfinished: list[bytes]) -> None:
    assert replies_to_unfinished[6].startswith(b"HTTP/1.1 504")
    assert b"HRAG_STREAM_IDLE_TIMEOUT_S" in replies_to_unfinished[6]


def test_a_second_request_has_to_arrive_in_time_too(replies_to_unfinished: list[bytes]) -> None:
    assert replies_to_unfinished[7].startswith(b"HTTP/1.1 200")
    assert replies_to_unfinished[7].count(b"HTTP/1.1") == 1


def test_a_client_that_does_not_read_is_disconnected(gateway: Gateway) -> None:
    """Unread replies fill the connection's buffers. The gateway drops them at the time limit."""
    request = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with _connect(gateway) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with pytest.raises(ConnectionError):
            _repeat(connection, request * 50)


def _repeat(connection: socket.socket, raw: bytes) -> None:
    """Sends the bytes again every tenth of the time limit, until an error or for `_PATIENCE_S`."""
    until_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until_s:
        connection.sendall(raw)
        time.sleep(_LIMIT_S / 10)


class Talkative(Fake):
    """Answers with a text that never ends, in pieces of 64 KiB."""

    pieces = 0

    def Answer(self, _request: Any, context: Any) -> Iterator[rpb.AnswerResponse]:
        context.add_callback(self.hung_up.set)
        while context.is_active():
            self.pieces += 1
            yield rpb.AnswerResponse(text="x" * 65_536)


@pytest.mark.parametrize("media_type", [b"application/json", b"application/connect+json"])
def test_events_that_nobody_reads_end_the_call(media_type: bytes) -> None:
    """The gateway stops reading from the service, and at the time limit it cancels the call."""
    fake = Talkative()
    body = b"{}" if media_type == b"application/json" else b"\0\0\0\0\2{}"
    head = _head(ANSWER, b"content-length: %d" % len(body))
    with (
        addresses_of(fake) as addresses,
        gateway_to(*addresses, **_LIMITS) as gateway,
        socket.socket() as connection,
    ):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", gateway.port))
        connection.sendall(head.replace(b"application/json", media_type) + body)
        assert fake.hung_up.wait(_PATIENCE_S)
    # The buffers of gRPC and of the kernel have some megabytes.
    assert fake.pieces < 1000


# These clients send too many or too large requests.


def test_idle_connections_lock_nobody_out(gateway: Gateway) -> None:
    with ExitStack() as stack:
        for _ in range(3 * _CONNECTIONS):
            stack.enter_context(_connect(gateway))
        _serves(gateway)


@pytest.mark.parametrize("path", [SEARCH, INGEST])
def test_requests_that_do_not_arrive_lock_nobody_out(patient: Gateway, path: str) -> None:
    """The gateway answers each head with `100 Continue` or closes its connection."""
    head = _head(path, b"content-length: 9", b"expect: 100-continue")
    with ExitStack() as stack:
        connections = [stack.enter_context(_connect(patient)) for _ in range(3 * _CONNECTIONS)]
        for connection in connections:
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(head)
        until(lambda: len(_answered(connections)) == len(connections))
        _serves(patient)


def test_unread_replies_of_strangers_lock_nobody_out(patient: Gateway) -> None:
    request = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with ExitStack() as stack:
        for _ in range(4):
            connections = []
            for _ in range(_CONNECTIONS):
                connection = stack.enter_context(socket.socket())
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection.connect(("127.0.0.1", patient.port))
                connections.append(connection)
                with suppress(ConnectionError):
                    connection.sendall(request * 50)
            # The reply to the first request of a connection fills the buffer.
            until(lambda waiting=connections: len(_answered(waiting)) == _CONNECTIONS)
            _serves(patient)


def test_unfinished_handshakes_lock_nobody_out(fake: Fake, tmp_path: Path) -> None:
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
        assert b"HTTP/1.1 200" not in _read_to_end(plain)


def test_headers_are_bounded(gateway: Gateway) -> None:
    head = _REQUEST % SEARCH.encode() + b"x-large: " + b"a" * 20_000
    assert not _sent(gateway, head).startswith(b"HTTP/1.1 200")


def test_all_bodies_together_are_bounded(patient: Gateway) -> None:
    large = json.dumps({"document": {"text": "a" * (9 << 20)}}).encode()
    with _connect(patient) as first:
        first.sendall(_head(INGEST, b"content-length: %d" % len(large)) + large[:-1])
        until_s = time.monotonic() + _PATIENCE_S
        while (reply := patient.post(INGEST, large)).status == 200:
            assert time.monotonic() < until_s
    assert (reply.status, reply.reason) == (429, "TOO_BUSY")
    assert "HRAG_HTTP_MAX_BUFFERED_BYTES" in reply.json["message"]


def test_one_credential_gets_half_of_the_buffer_in_every_spelling(patient: Gateway) -> None:
    """Each of three unfinished bodies needs nearly half of the buffer; only one is accepted."""
    part = b" " * (7 << 20)
    with ExitStack() as stack:
        connections = []
        for spelling in (b"Bearer key", b"bearer key", b"BEARER  key"):
            headers = b"authorization: " + spelling, b"content-length: %d" % (len(part) + 1)
            connections.append(stack.enter_context(_connect(patient)))
            connections[-1].sendall(_head(INGEST, *headers) + part)
        until(lambda: len(_answered(connections)) == 2)
        for connection in _answered(connections):
            assert b"requests and replies of this caller" in _read(connection)[1]
        large = json.dumps({"document": {"text": "a" * (4 << 20)}}).encode()
        assert patient.post(INGEST, large, {"authorization": "Bearer other"}).status == 200


def test_data_after_a_gzip_is_refused_at_once(patient: Gateway) -> None:
    """Without this refusal, the gateway would buffer the whole body until the time limit."""
    head = _head(SEARCH, b"content-encoding: gzip", b"transfer-encoding: chunked")
    parts = (gzip.compress(b"{}"), b"x" * 1000)
    with _connect(patient) as connection:
        connection.sendall(head + b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts))
        status, body = _read(connection)
        assert (status, b"data after the end of its gzip" in body) == (400, True)


def _answered(connections: list[socket.socket]) -> list[socket.socket]:
    """Returns the connections on which the gateway has sent bytes or which it has closed."""
    return select.select(connections, (), (), 0)[0]


def _read(connection: socket.socket) -> tuple[int, bytes]:
    """Returns the status and the body of the next reply."""
    with HTTPResponse(connection) as response:
        response.begin()
        return response.status, response.read()


# These clients disconnect.


@pytest.mark.parametrize("path", [SEARCH, INGEST, ANSWER, INGEST_MANY])
def test_clients_that_disconnect_occupy_no_connection(gateway: Gateway, path: str) -> None:
    for length in (b"100", b"2"):
        with ExitStack() as stack:
            for _ in range(_CONNECTIONS):
                connection = stack.enter_context(_connect(gateway))
                connection.sendall(_head(path, b"content-length: " + length) + b"{}")
    _serves(gateway)


# These requests are ambiguous or not HTTP.


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
def test_a_request_with_an_ambiguous_end_is_refused(
    gateway: Gateway, fake: Fake, headers: tuple[bytes, ...]
) -> None:
    """The body of a request cannot smuggle a second request; see RFC 9112, section 11.2."""
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
        b"\r\nGET / HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET  / HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET / http/1.1\r\nhost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nx: \x7f\x0b\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nx y: 1\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nx\xff: 1\r\n\r\n",
    ],
    ids=ascii,
)
def test_bytes_that_are_no_valid_request_are_refused(gateway: Gateway, raw: bytes) -> None:
    assert b"HTTP/1.1 200" not in _sent(gateway, raw)
    _serves(gateway)


_GET = b"GET / HTTP/1.1\r\nhost: localhost\r\n"
_CHUNKED = _head(SEARCH, b"transfer-encoding: chunked")


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        *((_GET.replace(b"1.1", version) + b"\r\n", 505) for version in (b"1.9", b"1.2", b"2.0")),
        *((_GET.replace(b"1.1", version) + b"\r\n", 505) for version in (b"0.9", b"3.0", b"9.9")),
        (b"GET / HTTP/1.1\nhost: localhost\n\n", 400),
        (b"GET / HTTP/1.1\nhost: localhost\r\n\r\n", 400),
        (_GET + b"x: 1\ny: 2\r\n\r\n", 400),
        (_GET + b"\n", 400),
        (_GET + b"x: 1\r\r\n\r\n", 400),
        (_GET + b"x: 1\r\n 2\r\n\r\n", 400),
        (_GET + b"x: 1\r\n\tcontent-length: 2\r\n\r\n", 400),
        (_GET + b"x: " + b"a" * 60_000 + b"\r\n\r\n", 431),
        (_CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0") + b"2\r\n{}\r\n0\r\n\r\n", 400),
        (_CHUNKED + b"2\r\n{}\r\n0\r\nx: 1\r\n\r\n", 400),
        (_CHUNKED + b"2\r\n{}\r\n0\r\nx: 1\n\n", 400),
        (_CHUNKED + b"2\r\n{}\r\n0\r\nx: 1\n\r\n", 400),
        (_CHUNKED + b"2\r\n{}\r\n0\r\n\n", 400),
        (_CHUNKED + b"2\n{}\n0\n\n\r\n", 400),
        (_CHUNKED + b"2;a=\n1\r\n{}\r\n0\r\n\r\n", 400),
        (_CHUNKED + b"2{}\r\n0\r\n\r\n", 400),
        (_CHUNKED + b"-2\r\n{}\r\n0\r\n\r\n", 400),
        (_CHUNKED + b"f" * 21 + b"\r\n{}", 400),
        (_CHUNKED + b"2;" + b"a" * 300_000, 400),
    ],
    ids=lambda value: ascii(value)[:60],
)
def test_a_request_in_a_lenient_form_is_refused_and_ends_its_connection(
    gateway: Gateway, fake: Fake, raw: bytes, status: int
) -> None:
    """A proxy could read such a request differently. A second request could hide in it."""
    before = fake.calls["IngestDocument"], fake.calls["Search"]
    hidden = _head(INGEST, b"content-length: 2", b"connection: close") + b"{}"
    answer = _sent(gateway, raw + hidden)
    assert answer.startswith(b"HTTP/1.1 %d" % status)
    assert len(re.findall(rb"HTTP/1\.1 \d", answer)) == 1
    assert (fake.calls["IngestDocument"], fake.calls["Search"]) == before


def test_a_lenient_form_is_refused_when_it_arrives_in_pieces_and_after_a_request(
    patient: Gateway,
) -> None:
    with _connect(patient) as connection:
        connection.sendall(_GET + b"\r\n")
        assert _read(connection)[0] == 200
        with suppress(ConnectionError):  # The gateway may have refused the request already.
            for part in (b"GET / HTTP/1.1\r\nhost: loc", b"alhost\r\nx: 1\n", b"y: 2\r", b"\n\r\n"):
                connection.sendall(part)
                time.sleep(0.02)
        assert _read_to_end(connection).startswith(b"HTTP/1.1 400")


def test_a_strict_request_in_version_1_0_and_one_with_extended_chunks_are_answered(
    patient: Gateway,
) -> None:
    old = b"GET / HTTP/1.0\r\nhost: localhost\r\n\r\n"
    assert _sent(patient, old).startswith(b"HTTP/1.1 200")
    body = b'2;a="b"\r\n{}\r\n0\r\n\r\n'
    with _connect(patient) as connection:
        connection.sendall(_CHUNKED + body)
        assert _read(connection)[0] == 200
