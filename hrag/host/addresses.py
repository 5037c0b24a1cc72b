"""Addresses as gRPC reads them: `host:port` and Unix sockets."""

import re

from hrag.values.errors import ServiceUnavailable

MAX_PORT = 65_535

# Only spellings that can resolve to nothing but this machine; all others count as the network.
_LOOPBACK = re.compile(
    r"(localhost|127\.\d{1,3}\.\d{1,3}\.\d{1,3}|\[::1\])(:\d+)?|unix(-abstract)?:.*", re.DOTALL
)
_LOOPBACK_OF_WILDCARD = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "": "127.0.0.1"}


def is_loopback(address: str) -> bool:
    """True if only this machine reaches `address`: loopback interface or Unix socket."""
    return _LOOPBACK.fullmatch(address) is not None


def dial_address(address: str) -> str:
    """Returns the address to dial for a service that listens at `address`.

    A wildcard host becomes loopback; any other address is returned unchanged.
    """
    host, colon, port = address.rpartition(":")
    return f"{_LOOPBACK_OF_WILDCARD.get(host, host)}:{port}" if colon else address


def cannot_listen(address: str, purpose: str = "") -> ServiceUnavailable:
    """Returns the error for an address that the operating system does not let us bind."""
    target = f"{address} for {purpose}" if purpose else address
    return ServiceUnavailable(
        f"cannot listen on {target}: it is in use or not an address of this machine"
    )
