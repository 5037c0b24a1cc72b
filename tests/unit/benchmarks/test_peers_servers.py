"""The comparison of servers: its load generators, processes and table."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.load import h2load
from benchmarks.peers.servers import processes, senders
from benchmarks.peers.servers.comparison import Figures, Results
from benchmarks.peers.servers.senders import SearchesFailed, Sender, Sent
from benchmarks.peers.servers.tables import table

H2LOAD = """\
finished in 2.00s, 2.00 req/s, 40.00KB/s
requests: 4 total, 4 started, 4 done, 4 succeeded, 0 failed, 0 errored, 0 timeout
traffic: 40.10KB (41062) total, 62B (62) headers (space savings 95.00%), 40.00KB (40960) data
                     min         max         mean         sd        +/- sd
time for request:     1.00ms      4.00ms      2.50ms      1.00ms    60.00%
"""
PGBENCH = "number of transactions actually processed: 3\ntps = 1234.5 (without connection time)\n"
REDIS = """\
"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
"FT.SEARCH leaves *=>[KNN 5 @embedding $vector]","100.50","1.000","0.5","2.000","3.0","4.000","9.0"
"""
BUSY = "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass\n"
# This program begins by creating its file, and waits for the other program's file.
WAITING = """\
import sys, time
from pathlib import Path
own, other = map(Path, sys.argv[1:])
own.touch()
while not other.exists():
    time.sleep(0.01)
print(sys.stdin.read())
"""
LISTENING = """\
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
    while True:
        listener.accept()
"""


@pytest.fixture
def log(tmp_path):
    """A log of h2load: the start of each call, its HTTP status, and its microseconds."""
    path = tmp_path / "log"
    path.write_text("".join(f"1\t200\t{millisecond}000\n" for millisecond in (1, 2, 3, 4)))
    return path


def test_figures_of_h2load_are_from_its_log(log):
    sent = senders.parse_h2load(log, 2, 10_000, H2LOAD)
    assert (sent.calls, sent.per_second, sent.p50_ms) == (4, 2, 2.5)
    assert 3.9 < sent.p99_ms <= 4


def test_calls_that_were_refused_or_failed_are_no_searches(log):
    with pytest.raises(SearchesFailed, match="40960 bytes in 4 replies"):
        senders.parse_h2load(log, 2, 10_241, H2LOAD)
    log.write_text(log.read_text().replace("200", "503", 1))
    with pytest.raises(SearchesFailed):
        senders.parse_h2load(log, 2, 10_000, H2LOAD)


def test_figures_of_pgbench_are_from_the_logs_of_all_threads(tmp_path):
    (tmp_path / "log.7").write_text("0 1 1000 0 1764252000 5\n1 1 3000 0 1764252000 6\n")
    (tmp_path / "log.7.1").write_text("2 1 2000 0 1764252000 7\n")
    sent = senders.parse_pgbench(tmp_path, PGBENCH)
    assert (sent.calls, sent.per_second, sent.p50_ms) == (3, 1234.5, 2)
    with pytest.raises(SearchesFailed, match="no figures"):
        senders.parse_pgbench(tmp_path, "no figures")


def test_figures_of_redis_benchmark_are_in_its_last_line():
    assert senders.parse_redis_benchmark(7, REDIS) == Sent(7, 100.5, 2.0, 4.0)
    with pytest.raises(SearchesFailed, match="rps"):
        senders.parse_redis_benchmark(7, REDIS.splitlines()[0])


def test_generators_run_at_the_same_time_and_their_figures_are_joined(tmp_path):
    source = tmp_path / "source"
    source.write_text("3")
    first, second = tmp_path / "first", tmp_path / "second"
    parts = [
        Sender(
            [sys.executable, "-c", WAITING, *files],
            lambda output, p50_ms=p50_ms: Sent(2, float(output), p50_ms, 4 * p50_ms),
            source,
        )
        for files, p50_ms in (((first, second), 1), ((second, first), 2))
    ]
    assert senders.run(parts, 1) == Sent(4, 6, 1.5, 6)


def test_the_error_of_a_generator_is_reported():
    program = "import sys; sys.exit('no such index')"
    with pytest.raises(SearchesFailed, match=r"exit code 1.*no such index"):
        senders.run([Sender([sys.executable, "-c", program], lambda _: Sent(1, 1, 1, 1))], 1)


def test_the_missing_generator_is_reported_as_not_installed(monkeypatch):
    monkeypatch.setattr(h2load, "is_installed", lambda: False)
    with pytest.raises(ImportError, match="nghttp2-client"):
        senders.require_h2load()


def test_processor_time_includes_descendants_that_have_ended():
    """The child ends before it is measured. Its parent is running then."""
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"
    program += "; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        parent.stdout.readline()
        assert 0.2 <= processes.processor_s([parent.pid]) < 5
        parent.stdin.close()
    assert processes.processor_s([parent.pid]) == 0


def test_a_free_port_is_none_that_the_kernel_gives_to_connections():
    ephemeral = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("ascii").split()
    assert processes.free_port() < int(ephemeral[0])


def test_a_server_listens_on_loopback_and_ends_with_the_block(tmp_path):
    port = processes.free_port()
    command = [sys.executable, "-c", LISTENING, str(port)]
    with processes.running(command, port, tmp_path / "log", {}):
        assert not _is_free(port)
    assert _is_free(port)


def _is_free(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((processes.HOST, port)) != 0


def test_a_server_that_ends_at_its_start_is_reported(tmp_path):
    command = [sys.executable, "-c", "import sys; sys.exit('libssl.so.1.1: not found')"]
    with (
        pytest.raises(RuntimeError, match=r"did not start: libssl\.so\.1\.1: not found"),
        processes.running(command, processes.free_port(), tmp_path / "log", {}),
    ):
        pass


def test_the_table_has_medians_and_the_reason_why_a_server_is_missing():
    rounds = [
        {
            "per_second": 1000.0 * factor,
            "p50_ms": 2.0 * factor,
            "p99_ms": 5.0,
            "server_ms": 0.25,
            "sender_ms": 0.0625,
            "memory_bytes": 3e8,
        }
        for factor in (1, 2, 9)
    ]
    costs = {"graph": "M 16", "ef": None, "recall": 0.9, "index_s": 2.0}
    servers = {"hrag": Figures(costs, rounds), "redis": Figures(failed="not installed")}
    *_, measured, missing = table(Results(2000, servers))
    cells = [cell.strip() for cell in measured.strip("|").split("|")]
    assert cells[:4] == ["hrag, one worker", "M 16", "own", "0.900 (too low)"]
    assert cells[4:] == ["2,000", "4.00, 5.00 ms", "0.250 ms", "0.062 ms", "300 MB", "2.0 s"]
    assert missing == "\nNot measured: Redis Stack, five leaves: not installed"
