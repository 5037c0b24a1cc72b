"""A proxy with the configuration of `deploy` keeps attacks away that gRPC cannot refuse."""

import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import count
from os import environ
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hrag.cli.processes import free_addresses
from hrag.client import Client
from hrag.types import Document
from tests.attacks.http2 import Connection, ReferenceSender
from tests.attacks.observed import MAX_S, memory_bytes, repeated, seconds, typical_s
from tests.attacks.world import SEARCH, VICTIM, Guarded
from tests.support.servers.pki import Authority
from tests.support.until import until

_HAPROXY = shutil.which("haproxy", path=f"{environ.get('PATH', '')}:/usr/sbin")

pytestmark = [
    pytest.mark.attacks,
    pytest.mark.skipif(_HAPROXY is None, reason="haproxy is not installed"),
]

_CONFIGURATION = Path(__file__).parents[2] / "deploy" / "haproxy.cfg"
_CONNECTIONS_OF_ADDRESS = 100
_ATTACK_S = 4.0
_PAUSE_S = 0.2  # The proxy limits the connections per second, also those of health checks.
# Without the proxy, this attack makes a retriever larger by hundreds of megabytes.
_MAX_GROWTH_BYTES = 50 << 20


@dataclass(frozen=True)
class Proxied:
    """HAProxy in front of both services, and a client that uses it."""

    guarded: Guarded
    process: subprocess.Popen[bytes]
    retriever: str
    ca_file: Path
    client: Client

    def search(self) -> object:
        return self.client.search(VICTIM, "which ship passed", limit=3, timeout_s=30)

    def health_s(self) -> float:
        """Returns the seconds that a health check over a new connection takes."""
        with self.channel() as channel:
            check = health_pb2_grpc.HealthStub(channel).Check
            return seconds(lambda: check(health_pb2.HealthCheckRequest(), timeout=60))

    def channel(self) -> grpc.Channel:
        credentials = grpc.ssl_channel_credentials(self.ca_file.read_bytes())
        return grpc.secure_channel(self.retriever, credentials)

    def attack(self, source: str = "127.0.0.2") -> Connection:
        """Opens a connection of a stranger that never acknowledges the proxy's SETTINGS."""
        context = ssl.create_default_context(cafile=self.ca_file)
        context.set_alpn_protocols(["h2"])
        return Connection(self.retriever, source=source, acknowledges=False, tls=context)


@pytest.fixture(scope="module")
def proxied(guarded: Guarded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    folder = tmp_path_factory.mktemp("proxy")
    authority = Authority(folder, "ours")
    pair = authority.issue()
    both = folder / "both.pem"
    both.write_bytes(pair.cert_file.read_bytes() + pair.key_file.read_bytes())
    indexer, retriever = free_addresses(2)
    environment = {
        **environ,
        "HRAG_PROXY_PEM": str(both),
        "HRAG_PROXY_INDEXER": indexer,
        "HRAG_PROXY_RETRIEVER": retriever,
        "HRAG_INDEXER_ADDRESS": guarded.services.indexer.address,
        "HRAG_RETRIEVER_ADDRESS": guarded.services.retriever.address,
    }
    process = subprocess.Popen([str(_HAPROXY), "-db", "-f", _CONFIGURATION], env=environment)
    try:
        with Client(
            indexer, retriever, token=guarded.victim_key, ca_file=authority.ca_file
        ) as client:
            proxy = Proxied(guarded, process, retriever, authority.ca_file, client)
            until(lambda: _answers(proxy))
            yield proxy
    finally:
        process.terminate()
        process.wait(60)


def _answers(proxy: Proxied) -> bool:
    assert proxy.process.poll() is None, "haproxy has ended"
    try:
        return proxy.health_s() > 0
    except grpc.RpcError:
        return False


def test_documents_and_searches_pass_the_proxy(proxied: Proxied) -> None:
    documents = [
        Document(f"The proxy forwards document {number}.", f"p{number}") for number in (1, 2)
    ]
    outcomes = proxied.client.ingest_many(VICTIM, documents)
    assert [outcome.document_id for outcome in outcomes] == ["p1", "p2"]
    large = Document("A long text passes the proxy. " * 100_000, "large")
    assert proxied.client.ingest(VICTIM, large).document_id == "large"
    proxied.client.delete_document(VICTIM, "large")
    assert proxied.search()


@pytest.mark.parametrize(("bytes_per_s", "threads"), [(1.2e6, 1), (3e6, 1), (10e6, 4)])
def test_references_to_one_header_do_not_reach_a_service(
    proxied: Proxied, bytes_per_s: float, threads: int
) -> None:
    """The proxy ends the connection of each such call, and then locks its address out.

    So each connection comes from another address.
    """
    retriever = proxied.guarded.services.retriever
    proxied.search()
    before = memory_bytes(retriever)
    until_s = time.monotonic() + _ATTACK_S
    sources = (f"127.0.{2 + at // 250}.{1 + at % 250}" for at in count())
    with ExitStack() as attack:
        senders = []
        for _ in range(threads):
            sender = ReferenceSender(
                lambda: proxied.attack(next(sources)), SEARCH, bytes_per_s=bytes_per_s / threads
            )
            senders.append(attack.enter_context(closing(sender)))
            attack.enter_context(repeated(sender, 1))
        while time.monotonic() < until_s:
            assert typical_s(proxied.health_s, 3) < MAX_S
            assert typical_s(proxied.search, 3) < MAX_S
            time.sleep(_PAUSE_S)
    assert all(sender.connections for sender in senders)
    assert memory_bytes(retriever) - before < _MAX_GROWTH_BYTES
    assert "connection_ended" not in retriever.log


def test_connections_of_one_address_are_limited(proxied: Proxied) -> None:
    connections: list[Connection] = []
    try:
        while _opens(proxied, connections):
            assert len(connections) <= _CONNECTIONS_OF_ADDRESS
        assert len(connections) == _CONNECTIONS_OF_ADDRESS
        proxied.search()
    finally:
        for connection in connections:
            connection.close()


def _opens(proxied: Proxied, connections: list[Connection]) -> bool:
    """Opens a connection of another stranger; returns False if the proxy refuses it."""
    try:
        connections.append(proxied.attack("127.0.0.3"))
    except OSError:
        return False
    return True


def test_watches_end_at_the_proxy_and_clients_call_without_them(proxied: Proxied) -> None:
    with proxied.channel() as channel, pytest.raises(grpc.RpcError) as caught:
        next(health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=60))
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
