"""Ends a TCP connection of this process that is known by the address of its peer.

gRPC can end a call but not the connection of a call. So this module finds the socket among the open
files of the process and shuts it down. It knows nothing of gRPC except how gRPC writes addresses.

The caller is gRPC's event thread, and other threads may be busy. Each Python function that releases
the interpreter lock may wait 5 ms to acquire it again. So the search among the open files uses only
functions that keep the lock: the constructor of a socket, `getsockopt` and `detach`.
"""

import os
import socket
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

from hrag.host.addresses import peer_address

_SO_PEERNAME = 28  # A Linux option that the module `socket` has no name for.
# The size of a socket address of each family, and where its IP address lies.
_LAYOUTS = {socket.AF_INET: (16, slice(4, 8)), socket.AF_INET6: (28, slice(8, 24))}
_DISCARD_BYTES = 1 << 20
_IPV4_IN_IPV6 = bytes(10) + b"\xff\xff"

_Endpoint = tuple[bytes, int]
"""The 4 or 16 bytes of an IP address, and a port."""


def end_connection(peer: str) -> bool:
    """Ends the TCP connection whose peer is `peer`, for example `ipv4:192.0.2.1:50000`.

    Bytes that have arrived and were not read yet are discarded. Returns False if this process has
    no such connection.
    """
    wanted = _parse(peer)
    if wanted is None:
        return False
    for number in range(_file_numbers()):
        if _remote_endpoint(number) == wanted:
            return _shut_down(number, wanted)
    return False


def _parse(peer: str) -> _Endpoint | None:
    """Returns the endpoint that gRPC's name of a peer contains; None for a Unix socket."""
    host, _, port = peer_address(peer).rpartition(":")
    try:
        return _endpoint(ip_address(host.strip("[]")).packed, int(port))
    except ValueError:
        return None


def _endpoint(address: bytes, port: int) -> _Endpoint:
    """Returns an endpoint. An IPv4 address that is written as an IPv6 address becomes IPv4."""
    return address.removeprefix(_IPV4_IN_IPV6), port


def _file_numbers() -> int:
    """Returns a number that is greater than the numbers of all open files of this process."""
    status = Path("/proc/self/status").read_text("ascii", "replace")
    return int(status.partition("\nFDSize:")[2].split(maxsplit=1)[0])


def _remote_endpoint(number: int) -> _Endpoint | None:
    """Returns the remote endpoint of an open file; None if the file is no connected TCP socket."""
    try:
        connection = socket.socket(fileno=number)
    except OSError:  # There is no open file with this number, or it is not a socket.
        return None
    try:
        return _peer_of(connection)
    finally:
        connection.detach()


def _peer_of(connection: socket.socket) -> _Endpoint | None:
    layout = _LAYOUTS.get(connection.family)
    if layout is None:
        return None
    size, address = layout
    try:
        # The size must be exact. Otherwise Linux reports an error.
        peer = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERNAME, size)
    except OSError:  # The socket is not connected.
        return None
    return _endpoint(peer[address], int.from_bytes(peer[2:4], "big"))


def _shut_down(number: int, wanted: _Endpoint) -> bool:
    """Shuts down the socket `number` if its remote endpoint is `wanted`, and discards its bytes.

    gRPC may close the file at any time, and another file may get its number. So the socket is
    duplicated and then examined again.
    """
    with suppress(OSError), socket.socket(fileno=os.dup(number)) as connection:
        if _peer_of(connection) == wanted:
            # Bytes that arrive after the shutdown reset the connection. Bytes that arrived before
            # it could still be read, so they are discarded.
            connection.shutdown(socket.SHUT_RDWR)
            while connection.recv(_DISCARD_BYTES, socket.MSG_DONTWAIT):
                pass
            return True
    return False
