"""Both services as child processes: start, wait until they serve, watch, stop.

The services stay ordinary programs that know nothing of this one: settings go in through
the environment, they say themselves when they serve, SIGTERM stops them, exit codes say
why they ended. Children run in process groups of their own, so that Ctrl-C reaches only this
process, which then stops them in order. Their standard input is a socket of which only this
process holds the other end: should it be killed, they see the end and stop by themselves; and
through it they say that they serve, whatever certificates and keys a call would need.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from hrag.cli.console import Failure
from hrag.net.addresses import dial_address

_POLL_S = 0.05
_WATCH_S = 0.2
_WRONG_SETTING = 2  # The services' exit code for it.
_CLEAN_CODES = (0, -signal.SIGTERM)  # The latter: stopped before it could listen for signals.


class ServiceFailed(Failure):
    """A service ended, or does not come up."""


@dataclass(frozen=True, slots=True)
class Service:
    """What the command line knows of a service."""

    name: str
    health_name: str
    address_variable: str

    @property
    def module(self) -> str:
        return f"{self.name}_svc"


INDEXER = Service("indexer", "hrag.v1.IndexerService", "HRAG_INDEXER_ADDRESS")
RETRIEVER = Service("retriever", "hrag.v1.RetrieverService", "HRAG_RETRIEVER_ADDRESS")


@dataclass(frozen=True, slots=True)
class _Child:
    service: Service
    address: str
    process: subprocess.Popen[bytes]
    link: socket.socket

    def serves(self) -> bool:
        """Whether it has said so by now; to be asked until it has."""
        try:
            return bool(self.link.recv(1))
        except BlockingIOError:
            return False


class Services:
    """Both services on one store; running inside its `with` block.

    `logs` is the folder for one `<name>.log` each; without it the children write to this
    process's own outputs. `settings` are environment variables on top of the present ones.
    `stop_s` bounds a stop; None leaves it to the services' own drain time.
    """

    def __init__(
        self,
        data_dir: Path,
        indexer: str,
        retriever: str,
        *,
        logs: Path | None = None,
        settings: Mapping[str, str] | None = None,
        stop_s: float | None = None,
    ) -> None:
        self.indexer = indexer
        self.retriever = retriever
        self.addresses = {INDEXER: indexer, RETRIEVER: retriever}
        self._logs = logs
        self._stop_s = stop_s
        self._children: list[_Child] = []
        self._env = {
            **os.environ,
            **(settings or {}),
            "HRAG_DATA_DIR": str(data_dir),
            "HRAG_STOP_ON_EOF": "true",
            **{service.address_variable: value for service, value in self.addresses.items()},
        }

    def __enter__(self) -> Self:
        """Raises ServiceFailed if something listens at an address already."""
        for service, address in self.addresses.items():
            _refuse_taken(service, address)
        with ExitStack() as undo:
            undo.callback(self.stop)
            for service, address in self.addresses.items():
                self._children.append(self._start(service, address))
            undo.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def wait_until_serving(self, timeout_s: float | None = None) -> None:
        """Returns when both serve; raises ServiceFailed if one ends or takes longer."""
        until = time.monotonic() + (float("inf") if timeout_s is None else timeout_s)
        for child in self._children:
            while not child.serves():
                self.check_alive()
                if time.monotonic() > until:
                    raise ServiceFailed(
                        f"the {child.service.name} at {child.address} does not serve "
                        f"after {timeout_s:.0f} s"
                    )
                time.sleep(_POLL_S)
        self.check_alive()

    def watch(self) -> None:
        """Returns never; raises ServiceFailed when a service ends."""
        while True:
            self.check_alive()
            time.sleep(_WATCH_S)

    def check_alive(self) -> None:
        """Raises ServiceFailed, naming the service that ended and how."""
        for child in self._children:
            code = child.process.poll()
            if code is not None:
                raise ServiceFailed(f"the {child.service.name} {_ending(code)}")

    def stop(self) -> None:
        """Stops both and waits for them; a second Ctrl-C kills them at once."""
        try:
            for child in reversed(self._children):
                child.process.terminate()
            for child in reversed(self._children):
                child.process.wait(self._stop_s)
        except (KeyboardInterrupt, subprocess.TimeoutExpired):
            for child in self._children:
                child.process.kill()
                child.process.wait()
        for child in self._children:
            child.link.close()

    def check_stopped_cleanly(self) -> None:
        """After `stop`: raises ServiceFailed unless both ended as they should."""
        for child in self._children:
            code = child.process.returncode
            if code not in _CLEAN_CODES:
                raise ServiceFailed(f"the {child.service.name} {_ending(code)}")

    def log_tail(self, lines: int = 15) -> str:
        """The last lines of each log, under its service's name; empty without `logs`."""
        if self._logs is None:
            return ""
        tails = []
        for child in self._children:
            text = self._log(child.service).read_text("utf-8", "replace")
            tails += [f"{child.service.name}:", *text.splitlines()[-lines:]]
        return "\n".join(tails)

    def _log(self, service: Service) -> Path:
        assert self._logs is not None
        return self._logs / f"{service.name}.log"

    def _start(self, service: Service, address: str) -> _Child:
        # -P: a file in the present folder must not stand in for a library's module.
        command = [sys.executable, "-P", "-m", service.module]
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs, nullcontext() if self._logs is None else self._log(service).open("wb") as log:
            # All other files of ours are closed in the child, the socket of its sibling too.
            process = subprocess.Popen(
                command,
                env=self._env,
                stdin=theirs.fileno(),
                stdout=log,
                stderr=log,
                process_group=0,
            )
        return _Child(service, address, process, ours)


def stop_on_signals() -> None:
    """Makes SIGTERM and a closed terminal end this process as Ctrl-C does."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)


def free_addresses(count: int) -> list[str]:
    """Different loopback addresses that nothing listens at now."""
    with ExitStack() as closing:
        sockets = [closing.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]


def with_free_port(address: str) -> str:
    """`address`, its port 0 replaced by a free one, so that it can be told and dial_address."""
    host, colon, port = address.rpartition(":")
    if port != "0":
        return address
    return f"{host}{colon}{free_addresses(1)[0].rpartition(':')[2]}"


def _refuse_taken(service: Service, address: str) -> None:
    host, _, port = dial_address(address).rpartition(":")
    if not port.isdecimal() or not host:
        return  # Not a TCP address; the service itself says what is wrong with it.
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=1).close()
    except (OSError, OverflowError, UnicodeError):
        return
    raise ServiceFailed(
        f"{service.address_variable} is {address}: another program listens there already; "
        "stop it or choose another address"
    )


def _ending(code: int) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name} (exit code {code})"
    if code == _WRONG_SETTING:
        return f"ended with exit code {code}: a setting is wrong, its own message says which"
    return f"ended with exit code {code}"
