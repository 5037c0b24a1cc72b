"""Services work on when the machine's clock jumps by years, forward or back."""

import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hrag.errors import DeadlineExceeded, SequenceNotReached
from hrag.types import Document
from tests.attacks.observed import health_s
from tests.support.servers.processes import FAST, Running, fresh, running
from tests.support.until import until

pytestmark = pytest.mark.attacks

_SOURCE = Path(__file__).with_name("jumping_clock.cpp")
_YEAR_S = 365 * 24 * 3600
_WAIT_S = 2.0
_TEXT = "The keeper wrote down every ship that passed the northern rocks. "
_SETTINGS = {**FAST, "HRAG_SEGMENT_MIN_LEAVES": "64"}


@dataclass(frozen=True)
class Clock:
    """The wall clock of all programs that `start` starts."""

    file: Path
    library: Path

    def jump(self, seconds: int) -> None:
        """Sets the clock so many seconds before or after the real time."""
        with self.file.open("r+b", buffering=0) as file:
            file.write(seconds.to_bytes(8, "little", signed=True))

    def start(
        self, arguments: tuple[str, ...], environment: Mapping[str, str], log: Path
    ) -> "subprocess.Popen[bytes]":
        variables = {"LD_PRELOAD": str(self.library), "JUMPING_CLOCK": str(self.file)}
        return fresh(arguments, {**environment, **variables}, log)


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Clock:
    if shutil.which("g++") is None:
        pytest.skip("g++ is needed to let a clock jump")
    folder = tmp_path_factory.mktemp("clock")
    clock = Clock(folder / "clock", folder / "clock.so")
    clock.file.write_bytes(bytes(8))
    command = ["g++", "-O1", "-shared", "-fPIC", "-o", str(clock.library), str(_SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    return clock


@pytest.fixture(scope="module")
def services(
    clock: Clock, tmp_path_factory: pytest.TempPathFactory, _no_settings_from_outside: None
) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("jumps") / "store", _SETTINGS, clock.start) as services:
        services.client.ingest("t", Document(_TEXT, "first"))
        yield services


@pytest.fixture(params=[-_YEAR_S, _YEAR_S], ids=["back", "forward"])
def jump(clock: Clock, request: pytest.FixtureRequest) -> Iterator[Callable[[], None]]:
    """A function that lets the clock jump by a year."""
    clock.jump(0)
    yield lambda: clock.jump(request.param)
    clock.jump(0)


def test_the_clock_of_a_service_jumps(services: Running, jump: Callable[[], None]) -> None:
    """The other tests prove nothing if the services see the real time."""
    jump()
    services.client.ingest("t", Document("It was dated.", "dated"))
    years = {
        int(year) for year in re.findall(r"^.{0,5}(20\d\d)-\d\d-\d\d", services.indexer.log, re.M)
    }
    assert years - {datetime.now(UTC).year}


def test_writes_searches_and_segments_work_after_a_jump(
    services: Running, jump: Callable[[], None]
) -> None:
    client = services.client
    jump()
    assert health_s(services.indexer) < 5
    assert health_s(services.retriever) < 5
    documents = [Document(f"{number} {_TEXT * 40}", f"d{number}") for number in range(20)]
    results = list(client.ingest_many("t", documents))
    sequence = max(result.sequence for result in results)
    found = client.search("t", "which ship passed", min_sequence=sequence, timeout_s=30)
    assert found.passages
    until(lambda: client.index_status("t").embedded.tail_leaf_count < 64, 60)
    sequence = client.delete_document("t", "d0")
    client.search("t", "which ship passed", min_sequence=sequence, timeout_s=30)


def test_a_jump_does_not_end_a_call_that_waits(services: Running, jump: Callable[[], None]) -> None:
    """The call waits for a change that does not come, until its deadline.

    Then either the service answers just before the deadline, or gRPC ends the call at the deadline.
    """
    sequence = services.client.ingest("t", Document(_TEXT, "last")).sequence
    timer = threading.Timer(_WAIT_S / 4, jump)
    began = time.monotonic()
    timer.start()
    with pytest.raises((DeadlineExceeded, SequenceNotReached)):
        services.client.search("t", "ship", min_sequence=sequence + 1000, timeout_s=_WAIT_S)
    timer.join()
    assert time.monotonic() - began > _WAIT_S / 2
    assert services.client.search("t", "ship", timeout_s=30).passages
