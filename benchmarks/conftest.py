"""The pytest plugin of the benchmarks: the fixture `report`, and the writer of the results file.

All results of a session are written to one file when the session ends.
"""

import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from benchmarks.figures import LATEST, Micro, Results
from benchmarks.machine import commit, machine, versions
from benchmarks.report import Report, Run

_RUN = pytest.StashKey[Run]()


class _ResultsWriter:
    """Writes the results file at the end of a session.

    It is created at the start of the session, so it records the load average before the run.
    """

    def __init__(self, run: Run, path: Path) -> None:
        self._run = run
        self._path = path
        self._about: dict[str, Any] = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": commit(),
            "machine": machine(),
            "versions": versions(),
        }

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        full = any(item.get_closest_marker("full") for item in session.items)
        self._about["mode"] = "full" if full else "bench"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        took_s = self._run.took_s
        took_s[report.nodeid] = round(took_s.get(report.nodeid, 0) + report.duration, 2)

    def pytest_sessionfinish(self) -> None:
        """Writes the results file.

        If nothing was measured, as with `--collect-only`, an earlier file stays as it is.
        """
        run = self._run
        if run.figures or run.micro:
            results = Results(
                about=self._about,
                figures=run.figures,
                plots=run.plots,
                micro=run.micro,
                took_s=run.took_s,
            )
            results.write(self._path)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--figures", type=Path, default=LATEST, help="the file to which results are written"
    )
    parser.addoption(
        "--leaves",
        type=int,
        default=100_000,
        help="number of leaves of each store in test_postgres.py",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_RUN] = Run()
    config.pluginmanager.register(_ResultsWriter(config.stash[_RUN], config.option.figures))


@pytest.fixture
def report(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> Report:
    """Prints the test's figures as they are measured, and collects them for the results file."""
    full = request.node.get_closest_marker("full") is not None
    command = f"pytest {shlex.quote(request.node.nodeid)}{' -m full' if full else ''}"

    def show(text: str) -> None:
        with capsys.disabled():
            print(text, end="", flush=True)

    return Report(request.config.stash[_RUN], command, full=full, show=show)


@pytest.fixture(autouse=True)
def _record_micro(request: pytest.FixtureRequest) -> Iterator[None]:
    """Adds pytest-benchmark's statistics of the test to the session's results."""
    if "benchmark" not in request.fixturenames:
        yield
        return
    benchmark = request.getfixturevalue("benchmark")
    yield
    if benchmark.stats:
        stats = benchmark.stats.stats
        request.config.stash[_RUN].micro[request.node.nodeid] = Micro(
            median_us=stats.median * 1e6, iqr_us=stats.iqr * 1e6, rounds=stats.rounds
        )
