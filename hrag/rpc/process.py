"""A service as a process: settings, logs, signals, exit codes.

Exit code 0 after a stop, 1 when it cannot run, 2 for a wrong setting. A stop is asked for
by SIGTERM or SIGINT or, with HRAG_STOP_ON_EOF, by the end of standard input: a parent that
holds the other end of a pipe so takes its children with it, even when it is killed.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn, TypeVar

import structlog
from threadpoolctl import threadpool_limits

from hrag import log, tracing
from hrag.config import CommonSettings, SettingsError, load
from hrag.errors import HragError, StoreMissing
from hrag.rpc.server import Server

_log = structlog.get_logger()

_STORE_POLL_S = 0.1
_STDIN = 0
_READ_BYTES = 65_536

Settings = TypeVar("Settings", bound=CommonSettings)
Opened = TypeVar("Opened")


def run(
    name: str,
    settings_class: type[Settings],
    serve: Callable[[Settings, threading.Event], None],
) -> None:
    """Runs `serve`, whose event is set when it is time to stop; then exits."""
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
    _stop_on_signals(stopping)
    if settings.stop_on_eof:
        stop_on_eof(stopping)
    try:
        tracing.configure(name, settings)
        serve(settings, stopping)
    except SettingsError as error:
        _log.error("wrong_setting", problem=str(error))
        sys.exit(2)
    except HragError as error:
        _log.error("cannot_serve", problem=error.message)
        sys.exit(1)
    tracing.close()
    _log.info("stopped")


def _stop_on_signals(stopping: threading.Event) -> None:
    # Python's handlers run in the main thread alone: one that sleeps does not wake when
    # another thread took the signal, and one that holds the event's lock would wait for
    # itself. What C writes into a pipe reaches the thread that reads it, whoever got it.
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)

    def wait() -> None:
        os.read(reading, 1)
        stopping.set()

    threading.Thread(target=wait, name="signals", daemon=True).start()


def stop_on_eof(stopping: threading.Event) -> None:
    """Sets `stopping` when standard input ends; what comes before its end is ignored.

    For children: the parent holds the other end of a pipe, which closes however it dies.
    """

    def wait() -> None:
        # Not sys.stdin: Python cannot exit while a thread waits inside its buffer.
        with suppress(OSError):  # One that cannot be read has ended too.
            while os.read(_STDIN, _READ_BYTES):
                pass
        _log.info("standard_input_ended")
        stopping.set()

    threading.Thread(target=wait, name="stdin", daemon=True).start()


def tell_serving(metrics_port: int = 0) -> None:
    """Tells the parent that holds the other end of standard input, a socket, that we serve.

    And at which port this process shows its metrics, if it does.
    """
    with suppress(OSError):  # It is no socket, or its end says already that the parent is gone.
        os.write(_STDIN, b"%d\n" % metrics_port)


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


def until_stopped(
    server: Server,
    address: str,
    drain_s: float,
    stopping: threading.Event,
    on_serving: Callable[[], None] | None = None,
) -> None:
    """Serves until told to stop, then drains; ends the process if a call does not end.

    Calls `on_serving` once the server answers.
    """
    server.start()
    _log.info("serving", service=server.service, address=address, port=server.port)
    if on_serving is not None:
        on_serving()
    stopping.wait()
    _log.info("stopping", drain_s=drain_s)
    if not server.stop(drain_s):
        # The handlers left behind may be reading the store, so it cannot be closed under
        # them, and Python would wait for them. What is committed is safe without either.
        abandon(f"some calls were still running after {drain_s} s")


def abandon(reason: str) -> NoReturn:
    """Ends the process at once, with exit code 0 and a warning that says why.

    For a stop that would otherwise wait for a thread of ours: nothing is closed, no thread
    is joined. What is committed is safe all the same.
    """
    _log.warning("stopped", problem=reason)
    os._exit(0)
