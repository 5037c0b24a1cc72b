"""Load generators: processes that search a server in a closed loop, and the figures they report.

A caller waits for the reply to its search before it sends the next one. All generators are
programs in C, so they take little processor time from a server on the same machine.
"""

import re
import statistics
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.load import h2load

# A generator may take this much longer than planned, for example on a busy machine.
_EXTRA_S = 60.0
_TPS = re.compile(r"^tps = ([\d.]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Sent:
    """The searches of a generator, or of several together, and the percentiles of their times."""

    calls: int
    per_second: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class Sender:
    """A generator's command, a parser of its standard output, and its standard input."""

    command: Sequence[str | Path]
    parse: Callable[[str], Sent]
    input: Path | None = None
    environment: Mapping[str, str] | None = None


class SearchesFailed(Exception):
    """A generator ended with an error, or the server did not answer its searches."""


def run(senders: Sequence[Sender], seconds: int) -> Sent:
    """Runs generators at the same time; returns their figures together."""
    with ExitStack() as stack:
        running = [stack.enter_context(_started(sender, stack)) for sender in senders]
        stack.callback(lambda: [process.kill() for process in running])
        outputs = [process.communicate(timeout=seconds + _EXTRA_S) for process in running]
    for process, (output, error) in zip(running, outputs, strict=True):
        if process.returncode:
            raise SearchesFailed(f"exit code {process.returncode}: {output[-200:]} {error[-200:]}")
    pairs = zip(senders, outputs, strict=True)
    return joined([sender.parse(output) for sender, (output, _) in pairs])


def _started(sender: Sender, stack: ExitStack) -> "subprocess.Popen[str]":
    source = stack.enter_context(sender.input.open("rb")) if sender.input else subprocess.DEVNULL
    return subprocess.Popen(
        sender.command,
        stdin=source,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=sender.environment,
        text=True,
        errors="replace",
    )


def joined(parts: Sequence[Sent]) -> Sent:
    """Returns the figures of several generators: sums, and medians of their percentiles."""
    return Sent(
        sum(part.calls for part in parts),
        sum(part.per_second for part in parts),
        statistics.median(part.p50_ms for part in parts),
        statistics.median(part.p99_ms for part in parts),
    )


def h2load_sender(
    url: str,
    headers: Sequence[str],
    body: bytes,
    *,
    folder: Path,
    callers: int,
    seconds: int,
    reply_bytes: int,
    options: Sequence[str] = (),
) -> Sender:
    """Returns h2load, which sends requests with this body. Each caller has a connection.

    A reply has at least `reply_bytes` bytes, unless the server refused the call.
    """
    data, log = folder / "body", folder / "log"
    data.write_bytes(body)
    log.unlink(missing_ok=True)
    command = [
        "h2load",
        f"--clients={callers}",
        "--max-concurrent-streams=1",
        "--warm-up-time=0",
        f"--duration={seconds}",
        f"--data={data}",
        f"--log-file={log}",
        *(f"--header={header}" for header in headers),
        *options,
        url,
    ]
    return Sender(command, partial(parse_h2load, log, seconds, reply_bytes))


def require_h2load() -> None:
    """Raises ImportError, which a worker reports, if h2load is not installed."""
    if not h2load.is_installed():
        raise ImportError(h2load.MISSING)


def parse_h2load(log: Path, seconds: int, reply_bytes: int, output: str) -> Sent:
    """Returns the figures of h2load. `log` has the time of each call that ended.

    Raises SearchesFailed if calls failed or were refused. A refused call of gRPC has the HTTP
    status 200 too, but its reply is shorter than a reply with passages.
    """
    data_bytes = h2load.parse(output).data_bytes
    rows = np.loadtxt(log, np.int64, ndmin=2)
    if data_bytes < reply_bytes * len(rows) or not np.all(rows[:, 1] == 200):
        raise SearchesFailed(f"{data_bytes} bytes in {len(rows)} replies: {output[-300:]}")
    return _timed(rows[:, 2] / 1e3, len(rows) / seconds)


def parse_pgbench(folder: Path, output: str) -> Sent:
    """Returns the figures of pgbench, whose log files in `folder` have the time of each call."""
    rates = _TPS.search(output)
    if rates is None:
        raise SearchesFailed(output[-300:])
    took_us = np.concatenate(
        [np.loadtxt(log, np.int64, usecols=2, ndmin=1) for log in folder.glob("log.*")]
    )
    return _timed(took_us / 1e3, float(rates[1]))


def _timed(took_ms: NDArray[np.float64], per_second: float) -> Sent:
    p50, p99 = np.percentile(took_ms, [50, 99]).tolist()
    return Sent(len(took_ms), per_second, p50, p99)


def parse_redis_benchmark(calls: int, output: str) -> Sent:
    """Returns the figures of redis-benchmark, whose last line is a row of CSV."""
    try:
        *_, rate, _, _, p50, _, p99, _ = output.strip().rsplit('","')
        return Sent(calls, float(rate), float(p50), float(p99))
    except ValueError as error:
        raise SearchesFailed(output[-300:]) from error
