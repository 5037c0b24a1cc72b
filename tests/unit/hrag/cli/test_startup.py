"""A command waits for services of this machine that are just starting, and for no others."""

import socket
import threading

import pytest
from typer.testing import CliRunner

from hrag.cli import startup
from hrag.cli.app import app
from hrag.cli.processes import free_addresses

LONG_S = 30.0


def test_a_service_that_starts_late_is_waited_for(monkeypatch):
    monkeypatch.setattr(startup, "WAIT_S", LONG_S)
    (address,) = free_addresses(1)
    host, _, port = address.rpartition(":")
    refused = threading.Event()
    is_refused = startup._is_refused

    def observed(asked):
        is_closed = is_refused(asked)
        if is_closed:
            refused.set()
        return is_closed

    monkeypatch.setattr(startup, "_is_refused", observed)
    waiting = threading.Thread(target=startup.wait_for_start, args=({"indexer": address},))
    waiting.start()
    assert refused.wait(LONG_S)
    with socket.create_server((host, int(port))):
        waiting.join(LONG_S)
    assert not waiting.is_alive()


def test_a_service_that_does_not_start_is_waited_for_until_the_limit(monkeypatch):
    monkeypatch.setattr(startup, "WAIT_S", 0.2)
    (address,) = free_addresses(1)
    startup.wait_for_start({"indexer": address})


@pytest.mark.parametrize(
    "address", ["192.0.2.1:1", "nowhere", "no.such.host:1", "127.0.0.1:99999", "", "unix:/nowhere"]
)
def test_services_elsewhere_and_impossible_addresses_are_not_waited_for(address, monkeypatch):
    monkeypatch.setattr(startup, "WAIT_S", LONG_S)
    monkeypatch.setattr(startup.time, "sleep", lambda _: pytest.fail("it waits"))
    startup.wait_for_start({"indexer": address})


def test_a_terminal_shows_what_is_waited_for(monkeypatch, capsys):
    monkeypatch.setattr(startup, "WAIT_S", 0.01)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    (address,) = free_addresses(1)
    startup.wait_for_start({"retriever": address})
    assert "waiting up to 0 s for the retriever at" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--cert", "half.pem"], "cert_file: it is 'half.pem' and needs key_file"),
        (["--key", "half.key"], "key_file: it is 'half.key' and needs cert_file"),
        (["--ca", "missing.pem"], "ca_file: [Errno 2] No such file or directory: 'missing.pem'"),
        (["--token", "a b"], "token has a space"),
    ],
)
def test_wrong_credentials_are_refused_before_a_service_is_waited_for(
    options, problem, monkeypatch
):
    monkeypatch.setattr(startup, "WAIT_S", LONG_S)
    monkeypatch.setattr(startup.time, "sleep", lambda _: pytest.fail("it waits"))
    indexer, retriever = free_addresses(2)
    addresses = {"HRAG_INDEXER_ADDRESS": indexer, "HRAG_RETRIEVER_ADDRESS": retriever}
    result = CliRunner().invoke(app, ["documents", *options], env=addresses)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {problem}")
    assert result.stderr.count("\n") == 1
