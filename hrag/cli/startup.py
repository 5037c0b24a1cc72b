"""Waits for services of this machine that are just starting.

So `hrag serve &` and a command that calls the services can be started one after the other. A
service opens its port when its store is open. Services of other machines are not waited for.
"""

import socket
import sys
import time
from collections.abc import Mapping

from hrag.cli.terminal import show_note
from hrag.host.addresses import MAX_PORT, is_loopback

WAIT_S = 10.0
"""How long a command waits for a port of this machine. A service needs a few seconds to start."""

_POLL_S = 0.1


def wait_for_start(addresses: Mapping[str, str]) -> None:
    """Waits until the services at these addresses accept connections, `WAIT_S` seconds at most.

    The keys of `addresses` are the names of the services. On a terminal, a line on standard error
    says what the command waits for. If a service does not start, returns without an error: the call
    itself then fails with a message that says more.
    """
    deadline = time.monotonic() + WAIT_S
    for name, address in addresses.items():
        if not is_loopback(address) or not _is_refused(address):
            continue
        if WAIT_S and sys.stderr.isatty():
            show_note(f"waiting up to {WAIT_S:.0f} s for the {name} at {address} to start")
        while time.monotonic() < deadline and _is_refused(address):
            time.sleep(_POLL_S)


def _is_refused(address: str) -> bool:
    """Returns True if this machine refuses connections to the port, so nothing listens there."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > MAX_PORT:
        return False
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_POLL_S):
            return False
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
