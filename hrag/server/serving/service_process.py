"""The process of a service: settings, logs, signals, exit codes.

The exit code is 0 after a stop, 1 if the service cannot run, and 2 for an invalid setting, also one
that the database refuses. SIGTERM and SIGINT stop a service. With HRAG_STOP_ON_EOF, the end of
standard input stops a service too: if standard input is a pipe from a parent process, the service
stops when the parent ends, even if the parent is killed.
"""

import gc
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn, TypeVar

import structlog
from threadpoolctl import threadpool_limits

from hrag.config import CommonSettings, SettingsError, load, pop_unknown_variables
from hrag.host import private_files
from hrag.observe import audit, log, tracing
from hrag.required_settings import pop_ineffective
from hrag.server.serving.grpc_server import Server
from hrag.values.errors import DatabaseRefused, HragError, StoreMissing, outcome_of

_log = structlog.get_logger()

# While the store does not exist, the service tries to open it at this interval.
_STORE_POLL_S = 0.1
_OPEN_FILES = 65_536
# The interval at which a running service checks that it can still use its store.
_STORE_WATCH_S = 1.0
_STDIN = 0
_READ_BYTES = 65_536

Settings = TypeVar("Settings", bound=CommonSettings)
Store = TypeVar("Store")


def run(
    name: str,
    settings_class: type[Settings],
    serve: Callable[[Settings, threading.Event], None],
) -> None:
    """Runs a service: loads the settings, sets up logs and signals, and calls `serve`.

    `serve` must serve until its second argument, an event, is set. Exits the process with code 1 if
    the service cannot run, and with code 2 if a setting is invalid or the database refuses it.
    """
    private_files.set_umask()
    try:
        settings = load(settings_class)
    except SettingsError as error:
        print(f"{name}: {error}", file=sys.stderr)  # noqa: T201 - before there are logs
        sys.exit(2)
    log.configure(name, settings.log_format, settings.log_level)
    for variable, nearest in pop_unknown_variables().items():
        _log.warning("unknown_setting", variable=variable, nearest=nearest)
    for ineffective in pop_ineffective(settings):
        _log.warning("setting_without_effect", problem=str(ineffective))
    # Calls run in parallel, and several BLAS threads for each call would compete for the cores.
    # When eight threads scanned tails of 8,000 leaves, they made 470 scans a second with several
    # BLAS threads for each scan, and 7,300 scans a second with one BLAS thread for each scan.
    threadpool_limits(1, "blas")
    _raise_limit_of_open_files()
    stopping = threading.Event()
    _stop_on_signals(stopping)
    if settings.stop_on_eof:
        stop_on_eof(stopping)
    try:
        audit.configure(name, settings)
        tracing.configure(name, settings)
        serve(settings, stopping)
    except (SettingsError, DatabaseRefused) as error:
        _log.error("invalid_setting", problem=str(error))
        sys.exit(2)
    except HragError as error:
        _log.error("service_failed", problem=str(error))
        sys.exit(1)
    finally:
        tracing.close()
        audit.close()
    _log.info("stopped")


def _raise_limit_of_open_files() -> None:
    """Raises the soft limit of open files up to 65,536, if the hard limit allows it.

    Each connection is an open file, and the soft limit is often 1,024.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))


def _stop_on_signals(stopping: threading.Event) -> None:
    # Python runs signal handlers in the main thread only. The main thread may be asleep while
    # another thread receives the signal, and a handler that sets the event would deadlock if the
    # main thread held the lock of the event. So the handlers do nothing. Python's C code also
    # writes a byte to a pipe at each signal. The thread `signals` waits for this byte and then sets
    # the event.
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    for stop_signal in (signal.SIGTERM, signal.SIGINT):
        signal.signal(stop_signal, lambda *_: None)

    def wait() -> None:
        os.read(reading, 1)
        stopping.set()

    threading.Thread(target=wait, name="signals", daemon=True).start()


def stop_on_eof(stopping: threading.Event) -> None:
    """Sets `stopping` when standard input ends; the content of standard input is ignored.

    This is for child processes: their standard input is a pipe from the parent. The pipe closes
    when the parent ends for any reason.
    """

    def wait() -> None:
        # The file descriptor is read instead of sys.stdin, because Python could not exit while a
        # thread reads sys.stdin.
        with suppress(OSError):  # If standard input cannot be read, it is treated as ended.
            while os.read(_STDIN, _READ_BYTES):
                pass
        _log.info("stdin_closed")
        stopping.set()

    threading.Thread(target=wait, name="stdin", daemon=True).start()


def report_serving(metrics_port: int = 0) -> None:
    """Reports to the parent, through the socket at standard input, that the service serves.

    `metrics_port` is the port at which this process serves its metrics; 0 if it serves none.
    """
    with suppress(OSError):  # Standard input is not a socket, or the parent has ended.
        os.write(_STDIN, b"%d\n" % metrics_port)


def wait_for_store(open_store: Callable[[], Store], stopping: threading.Event) -> Store | None:
    """Calls `open_store` until it does not raise StoreMissing any more; returns the store.

    Returns None if `stopping` is set before the store exists.
    """
    logged = False
    while True:
        try:
            return open_store()
        except StoreMissing as error:
            if not logged:
                _log.info("waiting_for_store", problem=str(error))
                logged = True
        if stopping.wait(_STORE_POLL_S):
            return None


def serve_until_stopped(
    server: Server,
    drain_s: float,
    stopping: threading.Event,
    require_store: Callable[[], None],
    on_serving: Callable[[], None] | None,
) -> None:
    """Serves until `stopping` is set, then lets running calls finish for `drain_s` seconds.

    Calls `on_serving` once the server answers. `require_store` raises an HragError while the store
    cannot be used. During this time, health checks report NOT_SERVING, but the service still
    answers the calls that do not need the store. Ends the process immediately if the handler of a
    call is still running at the end of the `drain_s` seconds.
    """
    _freeze_objects()
    server.start()
    _log.info("serving", service=server.service, address=server.address, port=server.port)
    if on_serving is not None:
        on_serving()
    _watch_store(server, require_store, stopping)
    _log.info("stopping", drain_s=drain_s)
    if not server.stop(drain_s):
        # The remaining handlers may be reading the store, so the store must not be closed. A normal
        # exit would wait for the threads of these handlers. So the process ends without closing the
        # store and without waiting. Committed data is not lost.
        abandon(f"some calls were still running after {drain_s} s")


def _freeze_objects() -> None:
    """Excludes the objects that exist now from later garbage collections.

    Most of them are modules, classes and functions, which are never freed. A full collection that
    examines them takes 45 ms, and all calls wait for it.
    """
    gc.collect()
    gc.freeze()


def _watch_store(
    server: Server, require_store: Callable[[], None], stopping: threading.Event
) -> None:
    """Reports to health checks and to the log when the store is lost, and when it is found again.

    Returns when `stopping` is set. The store is lost while `require_store` raises an HragError.
    """
    lost = False
    while not stopping.wait(_STORE_WATCH_S):
        problem = outcome_of(require_store)
        if lost == isinstance(problem, HragError):
            continue
        lost = not lost
        if isinstance(problem, HragError):
            _log.error("store_lost", problem=str(problem))
        else:
            _log.info("store_found")
        # Health changes last, so whoever sees it change finds the reason in the log.
        server.health.set(serving=not lost)


def abandon(reason: str) -> NoReturn:
    """Ends the process immediately, with exit code 0 and `reason` as a warning in the log.

    This is called when a service stops and would otherwise wait for a thread that may not end. Only
    the audit log is closed, and no thread is joined. Committed data is not lost.
    """
    audit.close()
    _log.warning("stopped", problem=reason)
    os._exit(0)
