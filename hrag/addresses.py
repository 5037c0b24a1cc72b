"""Where an address leads, as gRPC reads it."""

import re

MAX_PORT = 65_535

# Only spellings that nobody can make lead elsewhere; any other counts as the network.
_LOOPBACK = re.compile(
    r"(localhost|127\.\d{1,3}\.\d{1,3}\.\d{1,3}|\[::1\])(:\d+)?|unix(-abstract)?:.*", re.DOTALL
)


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches it: by the loopback interface or a Unix socket."""
    return _LOOPBACK.fullmatch(address) is not None
