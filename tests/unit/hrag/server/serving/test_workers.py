"""A supervisor starts and replaces worker processes, and signals stop a process.

The workers are small programs here.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from structlog.testing import capture_logs

from hrag.errors import ServiceUnavailable
from hrag.server.serving.workers import (
    RestartBackoff,
    cores_of,
    reserve_address,
    supervise,
    worker_address,
    worker_command,
)
from tests.support.servers.processes import is_alive
from tests.support.until import until

_SERVE = "import os, sys; os.write(0, b'7'); sys.stdin.read()"
# The beginning of a worker program. `first` becomes True in the first worker and False in later
# workers, because the folder `first` can be created only once.
_FIND_FIRST_WORKER = """
import os, pathlib, sys
folder = pathlib.Path(sys.argv[1])
try:
    (folder / "first").mkdir()
    first = True
except FileExistsError:
    first = False
"""


class Supervised:
    """A supervisor that runs in a thread, and its log."""

    def __init__(self, command: list[str], count: int, threads: ThreadPoolExecutor) -> None:
        self.logs: list[Any] = []
        self.stopping = threading.Event()
        self.ports = [0] * count
        self._ended = threads.submit(
            supervise, command, self.ports, "127.0.0.1:0", 0.0, self.stopping
        )

    def logged(self, event: str, key: str = "worker") -> list[Any]:
        """Returns the field `key` of each log line of `event`."""
        return [line[key] for line in self.logs if line["event"] == event]

    @property
    def pids(self) -> list[int]:
        """Returns the process ids of all workers, in the order of their start."""
        return self.logged("worker_started")

    def wait(self) -> None:
        self._ended.result(60)


@contextmanager
def _supervised(program: str, *arguments: object, count: int = 1) -> Iterator[Supervised]:
    command = [sys.executable, "-I", "-S", "-c", dedent(program), *map(str, arguments)]
    with capture_logs() as logs, ThreadPoolExecutor(1) as threads:
        supervised = Supervised(command, count, threads)
        supervised.logs = logs
        try:
            yield supervised
        finally:
            supervised.stopping.set()
    assert sorted(supervised.logged("worker_exited")) == sorted(supervised.pids)
    assert not any(map(is_alive, supervised.pids))


# The following tests cover the supervisor.


def test_workers_run_until_the_supervisor_stops() -> None:
    with _supervised(_SERVE, count=3) as supervised:
        until(lambda: supervised.ports == [7, 7, 7])
        assert all(map(is_alive, supervised.pids))
        supervised.stopping.set()
        supervised.wait()
    assert len(supervised.pids) == 3


def test_all_workers_get_the_same_address_and_port(tmp_path: Path) -> None:
    program = """
    import os, pathlib, sys
    report = pathlib.Path(sys.argv[1], str(os.getpid()))
    report.write_text(" ".join(sys.argv[2:]))
    report.rename(report.with_suffix(".written"))
    sys.stdin.read()
    """
    with _supervised(program, tmp_path, count=2):
        until(lambda: len(list(tmp_path.glob("*.written"))) == 2)
    addresses = {worker_address(file.read_text().split()) for file in tmp_path.iterdir()}
    assert len(addresses) == 1
    host, _, port = str(addresses.pop()).rpartition(":")
    assert host == "127.0.0.1"
    assert int(port) > 0


@pytest.mark.parametrize(
    ("workers", "cores", "expected"),
    [
        (1, [0, 1, 2], [[0, 1, 2]]),
        (2, [0, 1], [[0], [1]]),
        (2, [0, 2, 4, 6, 8], [[0, 2], [4, 6, 8]]),
        (3, [4, 5, 6, 7], [[4], [5], [6, 7]]),
        (4, [0, 1], [[0], [0], [1], [1]]),
        (3, [5], [[5], [5], [5]]),
    ],
)
def test_the_cores_are_divided_among_the_workers(
    workers: int, cores: list[int], expected: list[list[int]]
) -> None:
    assert cores_of(workers, cores) == expected


def test_each_worker_runs_on_its_share_of_the_cores() -> None:
    with _supervised(_SERVE, count=2) as supervised:
        until(lambda: len(supervised.pids) == 2)
        shares = [os.sched_getaffinity(pid) for pid in supervised.pids]
    assert shares == [set(cores) for cores in cores_of(2, sorted(os.sched_getaffinity(0)))]


def test_workers_run_even_if_their_cores_cannot_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_pid: int, _cores: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    with _supervised(_SERVE, count=2) as supervised:
        until(lambda: len(supervised.pids) == 2)
        assert "worker_start_failed" not in [line["event"] for line in supervised.logs]


def test_a_worker_that_exits_is_replaced_and_the_other_workers_continue() -> None:
    with _supervised(_SERVE, count=2) as supervised:
        until(lambda: len(supervised.pids) == 2)
        killed, surviving = supervised.pids
        os.kill(killed, signal.SIGKILL)
        until(lambda: len(supervised.pids) == 3)
        assert is_alive(surviving)
        assert supervised.logged("worker_exited") == [killed]
        assert supervised.logged("worker_exited", "code") == [-signal.SIGKILL]


@pytest.mark.parametrize("code", [1, 2])
def test_a_worker_that_fails_before_any_has_served_ends_all_workers(
    tmp_path: Path, code: int
) -> None:
    program = _FIND_FIRST_WORKER + f"if first: sys.exit({code})\nsys.stdin.read()"
    with _supervised(program, tmp_path, count=3) as supervised:
        with pytest.raises(SystemExit) as caught:
            supervised.wait()
        assert caught.value.code == code
        assert len(supervised.pids) == 3


def test_a_worker_that_fails_after_another_served_is_restarted(tmp_path: Path) -> None:
    program = _FIND_FIRST_WORKER + "if not first: sys.exit(1)\n" + _SERVE
    with _supervised(program, tmp_path) as supervised:
        until(lambda: supervised.ports == [7])
        os.kill(supervised.pids[0], signal.SIGKILL)
        until(lambda: len(supervised.pids) >= 4)
        assert set(supervised.logged("worker_exited", "code")[1:]) == {1}


def test_a_worker_that_is_killed_before_it_served_is_replaced() -> None:
    with _supervised("import sys; sys.stdin.read()") as supervised:
        until(lambda: len(supervised.pids) == 1)
        os.kill(supervised.pids[0], signal.SIGKILL)
        until(lambda: len(supervised.pids) == 2)


def test_only_serving_workers_have_a_metrics_port(tmp_path: Path) -> None:
    """A worker serves as soon as a file exists."""
    may_serve = tmp_path / "may serve"
    program = """
    import os, pathlib, sys, time
    while not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)
    os.write(0, b'7'); sys.stdin.read()
    """
    with _supervised(program, may_serve, count=2) as supervised:
        may_serve.touch()
        until(lambda: supervised.ports == [7, 7])
        may_serve.unlink()
        os.kill(supervised.pids[0], signal.SIGKILL)
        until(lambda: 0 in supervised.ports)
        may_serve.touch()
        until(lambda: supervised.ports == [7, 7])


def test_a_worker_that_reports_its_port_just_before_its_exit_is_restarted() -> None:
    with _supervised("import os, sys; os.write(0, b'7'); sys.exit(1)") as supervised:
        until(lambda: len(supervised.pids) >= 3)


def test_a_worker_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    program = """
    import pathlib, signal, sys
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pathlib.Path(sys.argv[1], "ignores SIGTERM").touch()
    while True: signal.pause()
    """
    with _supervised(program, tmp_path) as supervised:
        until((tmp_path / "ignores SIGTERM").exists)
        began = time.monotonic()
        supervised.stopping.set()
        supervised.wait()
        assert time.monotonic() - began < 50
        assert supervised.logged("worker_killed") == supervised.pids


def test_a_failed_start_of_a_worker_is_retried() -> None:
    stopping = threading.Event()
    with capture_logs() as logs, ThreadPoolExecutor(1) as threads:
        ended = threads.submit(supervise, ["/nowhere"], [0], "127.0.0.1:0", 0.0, stopping)
        until(lambda: len(logs) >= 2)
        stopping.set()
        assert ended.result(60) is None
    assert {line["event"] for line in logs} == {"worker_start_failed"}
    assert "/nowhere" in logs[0]["problem"]


def test_the_backoff_doubles_while_workers_exit_early() -> None:
    backoff = RestartBackoff()
    pauses = [backoff.delay_s(0.5) for _ in range(8)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert backoff.delay_s(60) == 0.1
    assert backoff.delay_s(0.5) == 0.2


def test_a_worker_is_recognised_by_its_last_arguments() -> None:
    assert worker_address(["--worker", "127.0.0.1:7"]) == "127.0.0.1:7"
    assert worker_address([]) is None
    assert worker_address(["--worker"]) is None
    assert worker_address(["127.0.0.1:7"]) is None


def test_the_worker_command_has_the_options_of_the_python_process() -> None:
    statement = "print(*worker_command(), sep='\\0', end='')"
    program = f"from hrag.server.serving.workers import worker_command; {statement}"
    command = [sys.executable, "-P", "-X", "utf8", "-c", program, "argument"]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    assert result.stdout.split("\0") == command
    assert worker_command()[0] == sys.executable


# The following tests cover the address that the workers share.


def _listener(address: tuple[str, int], *options: int) -> socket.socket:
    listener = socket.socket()
    for option in options:
        listener.setsockopt(socket.SOL_SOCKET, option, 1)
    listener.bind(address)
    listener.listen()
    return listener


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def test_a_reserved_address_is_available_only_to_processes_that_share_it() -> None:
    with reserve_address("127.0.0.1:0") as address:
        with pytest.raises(OSError, match="in use"):
            _listener(("127.0.0.1", _port(address)))
        with _listener(("127.0.0.1", _port(address)), socket.SO_REUSEPORT):
            pass
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", _port(address)), timeout=5)
    with reserve_address(address) as reserved_again:
        assert reserved_again == address


@pytest.mark.parametrize("options", [[], [socket.SO_REUSEADDR, socket.SO_REUSEPORT]])
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost"])
def test_an_address_in_use_is_refused(host: str, options: list[int]) -> None:
    with _listener(("127.0.0.1", 0), *options) as listener:
        address = f"{host}:{listener.getsockname()[1]}"
        with pytest.raises(ServiceUnavailable) as caught, reserve_address(address):
            pass
    assert f"cannot listen on {address}" in caught.value.message
    assert "in use" in caught.value.message


def test_an_address_that_another_supervisor_has_reserved_is_refused() -> None:
    with (
        reserve_address("127.0.0.1:0") as address,
        pytest.raises(ServiceUnavailable, match="in use"),
        reserve_address(address),
    ):
        pass


def test_closing_connections_do_not_occupy_the_address() -> None:
    # The listener sets SO_REUSEADDR, because gRPC also sets it.
    with _listener(("127.0.0.1", 0), socket.SO_REUSEADDR) as listener:
        address = listener.getsockname()
        with socket.create_connection(address) as caller:
            listener.accept()[0].close()  # The side that closes first stays in TIME_WAIT.
            assert caller.recv(1) == b""
    with pytest.raises(OSError, match="in use"):
        _listener(address)
    with reserve_address(f"127.0.0.1:{address[1]}"):
        pass


@pytest.mark.parametrize(
    "address", ["nowhere", ":7", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:99999", "unix:/a/b"]
)
def test_an_address_that_cannot_be_shared_is_refused_with_the_reason(address: str) -> None:
    with pytest.raises(ServiceUnavailable, match="host:port") as caught, reserve_address(address):
        pass
    assert f"cannot listen on {address}: " in caught.value.message


@pytest.mark.parametrize("address", ["198.51.100.7:0", "no.such.host.invalid:0"])
def test_an_address_of_another_machine_is_refused(address: str) -> None:
    with (
        pytest.raises(ServiceUnavailable, match="not an address of this machine"),
        reserve_address(address),
    ):
        pass


# The following tests cover processes that stop.


def _process(serve: str, **variables: str) -> subprocess.Popen[str]:
    """Starts a process whose function `serve(settings, stopping)` has the body `serve`."""
    program = f"""
import os, signal, sys, threading
from hrag.config import CommonSettings
from hrag.server.serving.service_process import abandon, run

def serve(settings, stopping):
    print("up", flush=True)
    {serve}

run("test", CommonSettings, serve)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def test_a_process_stops_at_the_end_of_standard_input_if_configured() -> None:
    with _process("stopping.wait()", HRAG_STOP_ON_EOF="true") as process:
        assert process.stdin is not None
        process.stdin.write("ignored input\n")
        process.stdin.flush()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        _, log = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "stdin_closed" in log
    assert log.splitlines()[-1].count("stopped") == 1


def test_a_signal_also_stops_a_process_that_reads_standard_input() -> None:
    """The thread that reads standard input must not prevent Python from exiting."""
    with _process("stopping.wait()", HRAG_STOP_ON_EOF="true") as process:
        process.terminate()
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert process.stderr.read().splitlines()[-1].count("stopped") == 1


def test_standard_input_is_ignored_by_default() -> None:
    with _process("stopping.wait()") as process:
        assert process.stdin is not None
        process.stdin.close()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


@pytest.mark.slow
def test_a_signal_stops_a_process_that_holds_the_lock_of_the_event() -> None:
    """A signal handler may run while the main thread holds the lock of the event `stopping`."""
    serve = """turns = 0
    while not stopping.wait(0):
        turns += 1
        if turns == 1000: print("in the loop", flush=True)
"""
    # With a signal handler that set the event directly, every second process hung.
    for _ in range(4):
        with _process(serve) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "in the loop\n"
            process.terminate()
            try:
                assert process.wait(60) == 0
            finally:
                process.kill()


def test_an_abandoned_process_exits_immediately_and_logs_why() -> None:
    serve = "threading.Thread(target=threading.Event().wait).start(); abandon('a thread still ran')"
    with _process(serve) as process:
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert "a thread still ran" in process.stderr.read()
