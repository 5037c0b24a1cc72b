"""Services get free addresses, and their failures are reported by name."""

import os
import signal
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from hrag.cli.processes import (
    ServiceFailed,
    ServiceProcesses,
    _ports,
    checked_settings,
    free_addresses,
    with_free_port,
)
from hrag.cli.terminal import Failure
from tests.support.servers.processes import children_of


def test_free_addresses_differ_and_can_be_bound():
    addresses = free_addresses(5)
    assert len(set(addresses)) == 5
    for address in addresses:
        host, _, port = address.rpartition(":")
        with socket.socket() as listener:
            listener.bind((host, int(port)))


def test_no_program_gets_a_free_address_by_chance():
    """The kernel chooses ephemeral ports for connections, and for programs that take any port."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = [int(free_addresses(1)[0].rpartition(":")[2]) for _ in range(50)]
    assert len(set(ports)) == 50
    assert all(1024 <= port < first for port in ports)


def test_a_machine_whose_ephemeral_ports_begin_early_has_free_addresses(monkeypatch, tmp_path):
    """A common setting: programs may connect from all ports from 1024 on."""
    ports = tmp_path / "ip_local_port_range"
    ports.write_text("1024\t65535\n")
    monkeypatch.setattr("hrag.cli.processes._EPHEMERAL_PORTS", ports)
    monkeypatch.setattr("hrag.cli.processes._ports", _ports.__wrapped__)
    (address,) = free_addresses(1)
    assert int(address.rpartition(":")[2]) >= 1024


def test_a_port_in_use_is_no_free_address():
    (address,) = free_addresses(1)
    following = int(address.rpartition(":")[2]) + 1
    with suppress(OSError), socket.create_server(("127.0.0.1", following)):
        assert free_addresses(1) != [f"127.0.0.1:{following}"]


def test_a_gateway_beside_services_with_tls_needs_the_certificates_of_their_authority():
    tls = {"HRAG_TLS_CERT_FILE": "service.pem", "HRAG_TLS_KEY_FILE": "service.key"}
    with pytest.raises(Failure, match=r"HRAG_TLS_CERT_FILE is 'service.pem', .*needs HRAG_CA_FILE"):
        checked_settings(tls, with_gateway=True)
    assert len(checked_settings(tls)) == 2
    assert len(checked_settings({**tls, "HRAG_CA_FILE": "ca.pem"}, with_gateway=True)) == 3


def test_port_0_becomes_a_free_port():
    host, _, port = with_free_port("0.0.0.0:0").rpartition(":")
    assert host == "0.0.0.0"
    assert int(port) > 0
    assert with_free_port("127.0.0.1:50051") == "127.0.0.1:50051"


def test_an_address_in_use_is_refused_before_anything_starts(tmp_path: Path):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        used = f"127.0.0.1:{listener.getsockname()[1]}"
        services = ServiceProcesses(tmp_path / "data", free_addresses(1)[0], used)
        with pytest.raises(ServiceFailed, match=f"HRAG_RETRIEVER_ADDRESS is {used}"), services:
            pass
    assert not (tmp_path / "data").exists()


def test_the_error_names_a_service_that_was_killed_and_not_waited_for(tmp_path: Path):
    """This happens if a user presses Ctrl-C three times.

    The second Ctrl-C kills both services, and the third one ends the wait for them. Here the test
    kills the indexer, and nothing waits for its end before the check.
    """
    with ServiceProcesses(tmp_path / "data", *free_addresses(2), logs=tmp_path) as services:
        (indexer,) = (
            pid for pid in children_of(os.getpid()) if command_of(pid)[-2:] == ["-m", "indexer_svc"]
        )
        os.kill(indexer, signal.SIGKILL)
        with pytest.raises(ServiceFailed, match="the indexer was ended by SIGKILL"):
            services.check_stopped_cleanly()


def command_of(pid: int) -> list[str]:
    """Returns the arguments of a process, beginning with its program."""
    return Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")
