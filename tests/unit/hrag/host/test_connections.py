"""A connection of this process is found by the address of its peer, and ended."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from hrag.host.connections import end_connection


@pytest.fixture(params=["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def connection(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    """The client's and the server's socket of a connection to the address of the parameter.

    With the last address, the server sees an IPv4 client on an IPv6 socket, as gRPC does.
    """
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    if request.param == "::1" and not _has_ipv6():
        pytest.skip("this machine has no IPv6 loopback address")
    with ExitStack() as closing:
        listener = closing.enter_context(socket.socket(family))
        listener.bind((request.param, 0))
        listener.listen()
        host = request.param.removeprefix("::ffff:")
        client = socket.create_connection((host, listener.getsockname()[1]), 5)
        closing.enter_context(client)
        server, _ = listener.accept()
        closing.enter_context(server)
        yield client, server


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def _peer(client: socket.socket) -> str:
    """Returns the name that gRPC gives to a client."""
    host, port = client.getsockname()[:2]
    return f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"


def test_a_connection_is_ended_and_its_unread_bytes_are_discarded(
    connection: tuple[socket.socket, socket.socket],
) -> None:
    client, server = connection
    client.sendall(bytes(100_000))
    assert end_connection(_peer(client))
    assert server.recv(1) == b""
    assert client.recv(1) == b""


def test_other_connections_stay_open(connection: tuple[socket.socket, socket.socket]) -> None:
    client, server = connection
    host, _, port = _peer(client).rpartition(":")
    assert not end_connection(f"{host}:{(int(port) + 1) % 65_536}")
    client.sendall(b"x")
    assert server.recv(1) == b"x"


@pytest.mark.parametrize("peer", ["unix:", "unix:/run/hrag", "ipv4:127.0.0.1", "ipv4:x:1", ""])
def test_a_peer_without_a_tcp_connection_is_ignored(peer: str) -> None:
    assert not end_connection(peer)
