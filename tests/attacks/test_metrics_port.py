"""Strangers at the metrics port read nothing, occupy no resource and lock nobody out."""

import json
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError

import pytest

from hrag.cli.processes import INDEXER, free_addresses
from hrag.server.serving.metrics_server import (
    CONNECTION_S,
    MAX_CONNECTIONS,
    MAX_REQUEST_BYTES,
    REQUEST_S,
)
from hrag.types import Document
from tests.attacks.uptime_clock import uptime_s
from tests.support.servers.metrics_page import Scrape
from tests.support.servers.pki import Authority
from tests.support.servers.processes import FAST, START_S, Process, running, started
from tests.support.until import until

pytestmark = pytest.mark.attacks

_IDLE = 1000
# The most seconds that a test waits. The machine may be busy.
_PATIENCE_S = REQUEST_S + 40
_TOKEN = "a token of the tests".replace(" ", "-")
_MIB = 1 << 20


@dataclass(frozen=True)
class Port:
    """An indexer and the address of its metrics port."""

    process: Process
    address: str

    @property
    def threads(self) -> int:
        first = json.loads(self.process.log.splitlines()[0])
        return len(list(Path(f"/proc/{first['pid']}/task").iterdir()))

    def connect(self) -> socket.socket:
        host, _, port = self.address.rpartition(":")
        return socket.create_connection((host, int(port)), timeout=_PATIENCE_S)


@contextmanager
def _port(data_dir: Path, **settings: str) -> Iterator[Port]:
    (address,) = free_addresses(1)
    port_settings = {"HRAG_INDEXER_METRICS_ADDRESS": address, "HRAG_LOG_FORMAT": "json"}
    with started(INDEXER, data_dir, {**FAST, **port_settings, **settings}) as process:
        process.wait_until_serving()
        yield Port(process, address)


@pytest.fixture
def port(tmp_path: Path) -> Iterator[Port]:
    with _port(tmp_path / "store") as port:
        yield port


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "authority")


def _is_scraped(address: str, token: str = "") -> bool:
    """Returns True if the metrics can be read.

    The service may close the connection of a scrape while it serves many other connections.
    """
    try:
        return bool(Scrape(address, token))
    except (OSError, HTTPException):
        return False


def _closed_s(connection: socket.socket) -> float:
    """Waits until the server has closed the connection; returns the seconds that this took."""
    started = uptime_s()
    with suppress(ConnectionError):
        while connection.recv(4096):
            pass
    return uptime_s() - started


def test_idle_connections_occupy_neither_threads_nor_memory(port: Port) -> None:
    quiet, before = port.threads, Scrape(port.address).value("process_resident_memory_bytes")
    with ExitStack() as open_ones:
        for number in range(_IDLE):
            open_ones.enter_context(port.connect())
            if number % 100 == 0:
                # A new connection is still served.
                assert Scrape(port.address)
                assert port.threads <= quiet + 2 * MAX_CONNECTIONS + 2
        grown = Scrape(port.address).value("process_resident_memory_bytes") - before
        assert grown < 50 * _MIB
    until(lambda: port.threads <= quiet, _PATIENCE_S)
    assert Scrape(port.address)


def test_a_request_that_arrives_byte_by_byte_is_ended(port: Port) -> None:
    with port.connect() as connection:
        began = uptime_s()
        with suppress(OSError):
            while uptime_s() < began + 2 * _PATIENCE_S:
                connection.sendall(b"G")
                time.sleep(0.2)
        assert uptime_s() - began < _PATIENCE_S


def test_a_reply_that_nobody_reads_is_ended(port: Port) -> None:
    quiet = port.threads
    with ExitStack() as open_ones:
        for _ in range(4 * MAX_CONNECTIONS):
            connection = open_ones.enter_context(port.connect())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            with suppress(OSError):
                connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        until(lambda: _is_scraped(port.address), CONNECTION_S + _PATIENCE_S)
        assert port.threads <= quiet + 2 * MAX_CONNECTIONS + 2


def test_headers_beyond_the_limit_are_not_parsed(port: Port) -> None:
    with port.connect() as connection:
        with suppress(OSError):
            connection.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * (4 * MAX_REQUEST_BYTES))
        assert _closed_s(connection) < _PATIENCE_S
    assert Scrape(port.address)


def test_the_token_is_required_and_may_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f"{_TOKEN}\n")
    with _port(tmp_path / "store", HRAG_METRICS_TOKEN_FILE=str(path)) as port:
        assert Scrape(port.address, _TOKEN).ours
        for wrong in ("", _TOKEN[:-1], f"{_TOKEN}x", "ÿ" * 16):
            with pytest.raises(HTTPError, match="401"):
                Scrape(port.address, wrong)
        replaced = f"{_TOKEN}-again"
        path.write_text(replaced)
        # The service checks the file once a second.
        until(lambda: _is_scraped(port.address, replaced))
        assert Scrape(port.address, replaced).ours
        with pytest.raises(HTTPError, match="401"):
            Scrape(port.address, _TOKEN)
        lines = map(json.loads, port.process.log.splitlines())
        refused = [line for line in lines if line["event"] == "audit"]
        assert {line["method"] for line in refused} == {"metrics"}
        assert _TOKEN not in port.process.log


def test_unfinished_tls_handshakes_do_not_block_scrapes(
    tmp_path: Path, authority: Authority
) -> None:
    pair = authority.issue()
    settings = {
        "HRAG_METRICS_TLS": "true",
        "HRAG_TLS_CERT_FILE": str(pair.cert_file),
        "HRAG_TLS_KEY_FILE": str(pair.key_file),
    }
    trusting = ssl.create_default_context(cafile=authority.ca_file)
    (address,) = free_addresses(1)
    all_settings = {**FAST, **settings, "HRAG_INDEXER_METRICS_ADDRESS": address}
    with started(INDEXER, tmp_path / "store", all_settings) as process, ExitStack() as open_ones:
        port = Port(process, address)
        until(lambda: _is_open(port), START_S)
        for _ in range(3 * MAX_CONNECTIONS):
            open_ones.enter_context(port.connect())
        assert Scrape(address, tls=trusting).ours
        with pytest.raises((OSError, HTTPException)):
            # This request is in plaintext.
            Scrape(address)


def _is_open(port: Port) -> bool:
    assert port.process.is_running, port.process.log
    try:
        port.connect().close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("setting", ["HRAG_INDEXER_METRICS_ADDRESS", "HRAG_METRICS_TLS"])
def test_a_service_with_unsafe_or_incomplete_metrics_settings_does_not_start(
    tmp_path: Path, setting: str
) -> None:
    value = {"HRAG_INDEXER_METRICS_ADDRESS": "0.0.0.0:0", "HRAG_METRICS_TLS": "true"}[setting]
    process = Process(INDEXER, tmp_path / "store", {**FAST, setting: value})
    assert process.wait() == 2
    named = {
        "HRAG_INDEXER_METRICS_ADDRESS": "HRAG_INSECURE_METRICS",
        "HRAG_METRICS_TLS": "HRAG_TLS_CERT_FILE",
    }
    assert named[setting] in process.log


def test_the_metrics_of_workers_need_the_same_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(_TOKEN)
    (address,) = free_addresses(1)
    settings = {
        **FAST,
        "HRAG_WORKERS": "2",
        "HRAG_METRICS_TOKEN_FILE": str(path),
        "HRAG_RETRIEVER_METRICS_ADDRESS": address,
    }
    with running(tmp_path / "store", settings) as services:
        services.client.ingest("acme", Document("Cats sleep.", "a"))
        services.client.search("acme", "cats")
        until(lambda: Scrape(address, _TOKEN).value("hrag_workers_serving") == 2, START_S)
        until(lambda: _searches(address) == 1)
        with pytest.raises(HTTPError, match="401"):
            Scrape(address)


def _searches(address: str) -> float:
    """Returns the count of searches. A scrape lacks a worker that answers it too late."""
    try:
        return Scrape(address, _TOKEN).value("hrag_calls_total", method="Search", code="OK")
    except KeyError:
        return 0
