"""A service as a process: settings, logs, signals, exit codes.

Exit code 0 after a stop by signal, 1 when it cannot run, 2 for a wrong setting.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

import structlog
from threadpoolctl import threadpool_limits

from hrag import log
from hrag.config import CommonSettings, SettingsError, load
from hrag.errors import HragError, StoreMissing
from hrag.rpc.server import Server

_log = structlog.get_logger()

_STORE_POLL_S = 0.1

Settings = TypeVar("Settings", bound=CommonSettings)
Opened = TypeVar("Opened")


def run(
    name: str,
    settings_class: type[Settings],
    serve: Callable[[Settings, threading.Event], None],
) -> None:
    """Runs `serve` until SIGTERM or SIGINT sets its event; then exits."""
    try:
        settings = load(settings_class)
    except SettingsError as error:
        print(f"{name}: {error}", file=sys.stderr)  # noqa: T201 - before there are logs
        sys.exit(2)
    log.configure(name, settings.log_format, settings.log_level)
    # Calls run side by side. BLAS threads of each would fight for the cores: eight threads
    # scanning tails of 8,000 leaves did 470 scans a second so, and 7,300 with one each.
    threadpool_limits(1, "blas")
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    try:
        serve(settings, stopping)
    except SettingsError as error:
        _log.error("wrong_setting", problem=str(error))
        sys.exit(2)
    except HragError as error:
        _log.error("cannot_serve", problem=error.message)
        sys.exit(1)
    _log.info("stopped")


def wait_for_store(open_store: Callable[[], Opened], stopping: threading.Event) -> Opened | None:
    """Tries until there is a store, or None once it is time to stop."""
    told = False
    while True:
        try:
            return open_store()
        except StoreMissing as error:
            if not told:
                _log.info("waiting_for_store", problem=error.message)
                told = True
        if stopping.wait(_STORE_POLL_S):
            return None


def until_stopped(server: Server, address: str, drain_s: float, stopping: threading.Event) -> None:
    """Serves until told to stop, then drains; ends the process if a call does not end."""
    server.start()
    _log.info("serving", service=server.service, address=address, port=server.port)
    stopping.wait()
    _log.info("stopping", drain_s=drain_s)
    if not server.stop(drain_s):
        # The handlers left behind may be reading the store, so it cannot be closed under
        # them, and Python would wait for them. What is committed is safe without either.
        _log.warning("stopped", problem=f"some calls were still running after {drain_s} s")
        os._exit(0)
