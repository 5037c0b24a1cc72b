"""Addresses in the form that gRPC uses: `host:port` and Unix sockets."""

import re
from urllib.parse import unquote

from hrag.values.errors import ServiceUnavailable

MAX_PORT = 65_535

# Matches only addresses that always mean this machine. An address that does not match is treated as
# an address that other machines can reach.
_LOOPBACK = re.compile(
    r"(localhost|127\.\d{1,3}\.\d{1,3}\.\d{1,3}|\[::1\])(:\d+)?|unix(-abstract)?:.*", re.DOTALL
)
# Addresses that gRPC resolves without a port at the end, or in a way of its own.
_RESOLVED_BY_GRPC = re.compile(
    r"(unix|unix-abstract|vsock|dns|ipv4|ipv6|xds|passthrough):.+", re.DOTALL
)
_HOST_AND_PORT = re.compile(r"([^:/\s]*|\[[0-9A-Fa-f:.%]+\]):(\d{1,5})")
ADDRESS_RULE = f"must be host:port, with a port from 0 to {MAX_PORT}"
_LOOPBACK_OF_WILDCARD = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "": "127.0.0.1"}


def is_loopback(address: str) -> bool:
    """Returns True if only this machine can reach `address`.

    This is so for addresses of the loopback interface and for Unix sockets.
    """
    return _LOOPBACK.fullmatch(address) is not None


def is_address(address: str) -> bool:
    """Returns True if `address` has the form of an address of a service (see `ADDRESS_RULE`).

    The names of sockets and resolvers of gRPC, such as `unix:/run/hrag.sock`, have it too.
    """
    if _RESOLVED_BY_GRPC.fullmatch(address):
        return True
    parts = _HOST_AND_PORT.fullmatch(address)
    return parts is not None and int(parts[2]) <= MAX_PORT


def peer_address(peer: str) -> str:
    """Returns the address, with its port, that gRPC's name of a peer contains.

    For `ipv4:192.0.2.1:50000`, this is `192.0.2.1:50000`. The name of a Unix socket is returned
    unchanged.
    """
    family, _, address = unquote(peer).partition(":")
    return address if family in ("ipv4", "ipv6") else peer


def dial_address(address: str) -> str:
    """Returns the address with which this machine connects to a service that listens at `address`.

    A wildcard host (`0.0.0.0`, `[::]` or empty) is replaced by the loopback host; any
    other address is returned unchanged.
    """
    host, colon, port = address.rpartition(":")
    return f"{_LOOPBACK_OF_WILDCARD.get(host, host)}:{port}" if colon else address


def cannot_listen(address: str, purpose: str = "") -> ServiceUnavailable:
    """Returns the error for an address that the operating system refuses to bind.

    The message says for which `purpose` the address was to be used, if `purpose` is not empty.
    """
    target = f"{address} for {purpose}" if purpose else address
    return ServiceUnavailable(
        f"cannot listen on {target}: it is in use or not an address of this machine"
    )
