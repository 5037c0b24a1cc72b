"""Addresses for services, and the refusal of those in use."""

import socket
from pathlib import Path
from subprocess import Popen
from types import SimpleNamespace

import pytest

from hrag.cli.processes import ServiceFailed, Services, free_addresses, with_free_port


def test_free_addresses_differ_and_can_be_bound():
    addresses = free_addresses(5)
    assert len(set(addresses)) == 5
    for address in addresses:
        host, _, port = address.rpartition(":")
        with socket.socket() as listener:
            listener.bind((host, int(port)))


def test_port_0_becomes_a_free_port():
    host, _, port = with_free_port("0.0.0.0:0").rpartition(":")
    assert host == "0.0.0.0"
    assert int(port) > 0
    assert with_free_port("127.0.0.1:50051") == "127.0.0.1:50051"


def test_address_in_use_is_refused_before_anything_starts(tmp_path: Path):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        taken = f"127.0.0.1:{listener.getsockname()[1]}"
        services = Services(tmp_path / "data", free_addresses(1)[0], taken)
        with pytest.raises(ServiceFailed, match=f"HRAG_RETRIEVER_ADDRESS is {taken}"), services:
            pass
    assert not (tmp_path / "data").exists()


def test_a_service_that_was_killed_and_not_waited_for_is_named(tmp_path: Path):
    """As after a third Ctrl-C, which ends the wait for what the second one killed."""
    services = Services(tmp_path / "data", *free_addresses(2))
    with Popen(["sleep", "100"]) as process:
        child = SimpleNamespace(service=SimpleNamespace(name="indexer"), process=process)
        services._children.append(child)
        process.kill()
        with pytest.raises(ServiceFailed, match="the indexer was ended by SIGKILL"):
            services.check_stopped_cleanly()
