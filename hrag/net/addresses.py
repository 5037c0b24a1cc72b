"""Where an address leads, as gRPC reads it."""

import re

MAX_PORT = 65_535

# Only spellings that nobody can make lead elsewhere; any other counts as the network.
_LOOPBACK = re.compile(
    r"(localhost|127\.\d{1,3}\.\d{1,3}\.\d{1,3}|\[::1\])(:\d+)?|unix(-abstract)?:.*", re.DOTALL
)
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "": "127.0.0.1"}


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches it: by the loopback interface or a Unix socket."""
    return _LOOPBACK.fullmatch(address) is not None


def dialled(address: str) -> str:
    """The address to reach a service at that listens at `address`."""
    host, colon, port = address.rpartition(":")
    return f"{_EVERYWHERE.get(host, host)}:{port}" if colon else address
