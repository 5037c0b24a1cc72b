"""A retriever under five times its capacity keeps serving and recovers at once.

h2load sends the calls, because it needs little time of the cores that it shares with the services.
h2load does not distinguish refusals from answers. But all calls are the same search, and a refusal
has no data, so the received bytes show how many calls were answered.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.load import h2load
from benchmarks.load.work import Work, tenant_id
from hrag.client import Client
from hrag.errors import HragError
from hrag.types import IngestResult
from tests.endurance.processes import MB, ROOT, MemorySampler
from tests.endurance.report import Report
from tests.support.servers.processes import Running, fresh, running
from tests.support.until import until

pytestmark = [pytest.mark.endurance, pytest.mark.timeout(300)]

SCRIPT = ROOT / "benchmarks" / "load" / "h2load.sh"
SETTINGS = {"HRAG_EMBEDDER": "hash:384", "HRAG_LOG_LEVEL": "info"}
OVERLOAD = 5
CAPACITY_S = 10
OVERLOAD_S = 60
CLIENTS = 20
# Each client has this many open calls. Together the clients have 2,000 open calls, of which the
# retriever accepts 256.
OPEN_CALLS = 100
# The script sends this deadline with each call.
DEADLINE_S = 5.0
# The retriever has recovered when a search takes at most this many seconds.
RECOVERED_S = 1.0


def test_the_retriever_survives_five_times_its_capacity(data_dir: Path, report: Report) -> None:
    with running(data_dir, SETTINGS, fresh) as services:
        _fill(services)
        at_ease = _sent(services, CAPACITY_S)
        assert at_ease.data_bytes > 1000 * at_ease.calls, "searches were refused"
        capacity = at_ease.calls / CAPACITY_S
        report.record("capacity, h2load on the same machine", f"{capacity:,.0f} searches/s")
        rate = -(-OVERLOAD * int(capacity) // CLIENTS)
        more = (f"--clients={CLIENTS}", f"--max-concurrent-streams={OPEN_CALLS}", f"--rps={rate}")
        with MemorySampler(services.retriever) as memory:
            overloaded = _sent(services, OVERLOAD_S, *more)
        recovery_s = _seconds_until_recovered(services)
    answered = overloaded.data_bytes / at_ease.data_bytes * at_ease.calls
    report.record("calls in overload; answered", f"{overloaded.calls:,}; {answered:,.0f}")
    goodput = answered / OVERLOAD_S
    report.at_least(0.8, goodput / capacity, "goodput in overload, of capacity", "x")
    report.at_most(DEADLINE_S, overloaded.longest_s, "the longest call", "s")
    report.at_most(200, memory.grown_bytes / MB, "the retriever's memory grows by", "MB")
    report.at_most(2, recovery_s, "until a search is quick again", "s")
    assert report.missed == []


def _fill(services: Running) -> None:
    work = Work(rate=1.0, duration_s=1.0)
    documents = map(work.document, range(work.documents))
    for result in services.client.ingest_many(tenant_id(0), documents):
        assert isinstance(result, IngestResult), result


def _sent(services: Running, seconds: int, *options: str) -> h2load.H2loadRun:
    assert h2load.is_installed(), h2load.MISSING
    duration = (f"--duration={seconds}", "--warm-up-time=0")
    ran = subprocess.run(
        [SCRIPT, services.retriever.address, *duration, *options],
        env={**os.environ, "PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return h2load.parse(ran.stdout)


def _seconds_until_recovered(services: Running) -> float:
    """Waits until a search of a new client is answered within RECOVERED_S.

    Returns the seconds that this took.
    """
    began = time.monotonic()
    with Client(retriever=services.retriever.address) as client:
        until(lambda: _is_answered(client), 60)
    return time.monotonic() - began


def _is_answered(client: Client) -> bool:
    try:
        client.search(tenant_id(0), "harbour tide", timeout_s=RECOVERED_S)
    except HragError:
        return False
    return True
