"""TLS handshakes that flood a service, stop halfway or lack ALPN do not harm other callers."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from socket import create_connection, socket

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hrag.cli.processes import INDEXER
from hrag.client import Client
from tests.attacks.http2 import Connection
from tests.attacks.observed import (
    MAX_GROWTH_BYTES,
    MAX_S,
    memory_bytes,
    repeated,
    threads_of,
    typical_s,
)
from tests.attacks.uptime_clock import uptime_s
from tests.support.servers.credentials import TENANT, new_key
from tests.support.servers.pki import Authority
from tests.support.servers.processes import FAST, Process, started
from tests.support.until import until

pytestmark = pytest.mark.attacks

_HALF_DONE = 300
_FLOODING_THREADS = 4
# The time limit of handshakes is 10 s. gRPC checks it when the time is over.
_ENDED_S = 40.0


@dataclass(frozen=True)
class Secured:
    """An indexer that requires TLS and API keys, and a client of it with an open connection."""

    indexer: Process
    ca_file: Path
    client: Client

    def health_s(self) -> float:
        """Returns the seconds that a health check over a new connection takes."""
        began = uptime_s()
        credentials = grpc.ssl_channel_credentials(self.ca_file.read_bytes())
        with grpc.secure_channel(self.indexer.address, credentials) as channel:
            check = health_pb2_grpc.HealthStub(channel).Check
            response = check(health_pb2.HealthCheckRequest(), timeout=60)
        assert response.status == health_pb2.HealthCheckResponse.SERVING
        return uptime_s() - began

    def is_healthy(self) -> bool:
        try:
            return self.health_s() > 0
        except grpc.RpcError:
            return False

    def call(self) -> object:
        """Makes a call over the open connection."""
        return self.client.list_collections(TENANT, timeout_s=60)

    def context(self, *protocols: str) -> ssl.SSLContext:
        """Returns the TLS context of a client that offers the protocols with ALPN."""
        context = ssl.create_default_context(cafile=self.ca_file)
        if protocols:
            context.set_alpn_protocols(protocols)
        return context

    def connect(self) -> socket:
        host, _, port = self.indexer.address.rpartition(":")
        return create_connection((host, int(port)), 60)


@pytest.fixture(scope="module")
def secured(
    tmp_path_factory: pytest.TempPathFactory, _no_settings_from_outside: None
) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("handshakes")
    authority = Authority(folder, "ours")
    pair, key = authority.issue(), new_key(folder / "keys.json")
    settings = {
        **FAST,
        "HRAG_TLS_CERT_FILE": str(pair.cert_file),
        "HRAG_TLS_KEY_FILE": str(pair.key_file),
        "HRAG_AUTH": "api_key",
        "HRAG_API_KEYS_FILE": str(folder / "keys.json"),
    }
    with started(INDEXER, folder / "store", settings) as indexer:
        address = indexer.address
        with Client(address, address, token=key, ca_file=authority.ca_file) as client:
            service = Secured(indexer, authority.ca_file, client)
            until(service.is_healthy, 30)
            service.call()
            yield service


@pytest.fixture
def quiet(secured: Secured) -> Iterator[Secured]:
    """The service. Fails if it has many more threads or much more memory after the test."""
    threads, memory = threads_of(secured.indexer), memory_bytes(secured.indexer)
    yield secured
    assert memory_bytes(secured.indexer) - memory < MAX_GROWTH_BYTES
    until(lambda: threads_of(secured.indexer) <= threads + 20)


def _check_service(secured: Secured) -> None:
    assert typical_s(secured.health_s) < MAX_S
    assert typical_s(secured.call) < MAX_S


def _client_hello(context: ssl.SSLContext) -> bytes:
    """Returns the first message of a handshake."""
    outgoing = ssl.MemoryBIO()
    handshake = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        handshake.do_handshake()
    return outgoing.read()


def _is_closed(connection: socket) -> bool:
    """Returns True if the server has closed the connection. Discards what the server has sent."""
    connection.setblocking(False)
    try:
        while connection.recv(65_536):
            pass
    except BlockingIOError:
        return False
    except OSError:  # The server has reset the connection.
        pass
    return True


def test_half_done_handshakes_harm_nobody_and_end(quiet: Secured) -> None:
    """A third each sends nothing, half of its first message, and all of it."""
    hello = _client_hello(quiet.context("h2"))
    with ExitStack() as closing_all:
        connections = [closing_all.enter_context(quiet.connect()) for _ in range(_HALF_DONE)]
        for number, connection in enumerate(connections):
            connection.sendall((b"", hello[: len(hello) // 2], hello)[number % 3])
        silent = closing_all.enter_context(
            closing(Connection(quiet.indexer.address, acknowledges=False, tls=quiet.context("h2")))
        )
        _check_service(quiet)
        until(lambda: all(map(_is_closed, connections)), _ENDED_S)
        # A handshake of HTTP/2 includes that the client acknowledges the server's SETTINGS.
        assert silent.wait_until_closed(_ENDED_S)


def test_a_flood_of_handshakes_harms_nobody(quiet: Secured) -> None:
    """Each connection makes the server sign its part of the handshake, and then closes."""
    hello = _client_hello(quiet.context("h2"))
    handshakes = threading.Semaphore(0)

    def begin() -> None:
        with quiet.connect() as connection:
            connection.sendall(hello)
            connection.recv(1)
        handshakes.release()

    with repeated(begin, _FLOODING_THREADS):
        for _ in range(200):
            assert handshakes.acquire(timeout=60)
        _check_service(quiet)


@pytest.mark.parametrize("protocols", [(), ("http/1.1",)])
def test_a_connection_without_h2_in_alpn_is_closed(
    quiet: Secured, protocols: tuple[str, ...]
) -> None:
    with quiet.connect() as plain, suppress(OSError):  # The server may refuse the handshake.
        context = quiet.context(*protocols)
        with context.wrap_socket(plain, server_hostname="localhost") as connection:
            assert connection.selected_alpn_protocol() is None
            until(lambda: _is_closed(connection), _ENDED_S)
    _check_service(quiet)
