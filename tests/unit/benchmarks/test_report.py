"""A report computes the noise of figures, records figures and refuses invalid ones."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import compare, table
from benchmarks.figures import Results
from benchmarks.report import Measured, Report, Run, interleaved, measured, ratio

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def run() -> Run:
    return Run()


@pytest.fixture
def shown() -> list[str]:
    return []


@pytest.fixture
def report(run: Run, shown: list[str]) -> Report:
    return Report(run, "pytest benchmarks/test_it.py", full=False, show=shown.append)


def test_measurements_alternate_in_changing_order() -> None:
    called: list[tuple[str, int]] = []

    def measure(name: str):
        def record_call(number: int) -> float:
            called.append((name, number))
            return float(number)

        return record_call

    figures = interleaved([measure("a"), measure("b")], 2)
    assert called == [("a", 0), ("b", 0), ("b", 1), ("a", 1)]
    assert figures.tolist() == [[0, 0], [1, 1]]


def test_noise_is_the_standard_error_of_the_mean() -> None:
    """Resampling estimates the standard error of the mean with a precision of a quarter."""
    rounds = np.random.default_rng(5).normal(10, 2, 2500)
    figure = measured(rounds, np.mean)
    assert figure.value == rounds.mean()
    assert figure.noise == pytest.approx(2 / np.sqrt(2500), rel=0.25)


def test_slow_rounds_in_a_row_increase_the_noise() -> None:
    """Slow rounds in a row give more noise than the same number of scattered slow rounds."""
    scattered = np.random.default_rng(5).permutation(np.repeat([1.0, 3.0], 500))
    noise_of_scattered, noise_of_successive = (
        measured(rounds, np.mean).noise for rounds in (scattered, np.sort(scattered))
    )
    assert noise_of_scattered
    assert noise_of_successive
    assert noise_of_successive > 3 * noise_of_scattered


def test_equal_rounds_have_no_noise_and_a_slowdown_of_both_leaves_the_ratio() -> None:
    assert measured(np.full(10, 3.0), np.median).noise == 0
    base = np.where(np.arange(1000) < 500, 1.0, 7.0) + np.random.default_rng(5).random(1000)
    both = np.stack([base, 2 * base], axis=1)
    assert ratio(both, 1, 0).value == pytest.approx(2)
    assert ratio(both, 0, 1).value == pytest.approx(0.5)
    assert ratio(both, 1, 0).noise == pytest.approx(0)


def test_a_single_round_has_no_noise() -> None:
    assert measured(np.array([4.0]), np.median) == Measured(4, None)


def test_a_figure_is_recorded_with_the_command_and_parameters_to_repeat_it(
    run: Run, report: Report, shown: list[str]
) -> None:
    report.parameters(seed=7, leaves=10)
    report.at_most("it.ratio", 1.5, "it to the other", "x", 1.25)
    figure = run.figures["it.ratio"]
    assert (figure.value, figure.target, figure.met, figure.better) == (1.5, 1.25, False, "lower")
    assert (figure.seed, figure.sizes, figure.command) == (
        7,
        {"leaves": 10},
        "pytest benchmarks/test_it.py",
    )
    line = "target <= 1.25 x / figure 1.5 x / MISSED"
    assert report.missed == [f"it to the other: {line}"]
    assert shown == [f"\nit to the other\n  {line}"]


def test_a_target_missed_by_no_more_than_noise_does_not_fail(
    run: Run, report: Report, shown: list[str]
) -> None:
    report.at_most("it.ratio", Measured(2.05, 0.06), "it to the other", "x", 2)
    assert run.figures["it.ratio"].met is False
    assert shown[0].endswith("MISSED")
    assert report.missed == []
    report.at_most("it.other", Measured(2.07, 0.06), "it to another", "x", 2)
    assert [message.partition(":")[0] for message in report.missed] == ["it to another"]


@pytest.mark.parametrize("value", [0.8, 0.9])
def test_a_figure_that_equals_its_target_meets_it(run: Run, report: Report, value: float) -> None:
    report.at_least("it.rate", value, "it", "x", 0.8)
    report.at_most("it.took", value, "it", "x", 0.9)
    assert report.missed == []
    assert [figure.met for figure in run.figures.values()] == [True, True]


@pytest.mark.parametrize(
    ("key", "value", "unit", "message"),
    [
        ("It.ratio", 1.0, "x", "key 'It.ratio'"),
        ("ratio", 1.0, "x", "key 'ratio'"),
        ("", 1.0, "x", "key ''"),
        ("it.taken", 1.0, "x", "belongs to another figure: the first"),
        ("it.ratio", 1.0, "times", "'times' is not one of x, share"),
        ("it.ratio", float("nan"), "x", "nan"),
        ("it.ratio", float("inf"), "x", "inf"),
    ],
)
def test_a_figure_that_cannot_be_compared_is_refused(
    report: Report, key: str, value: float, unit: str, message: str
) -> None:
    report.record("it.taken", 1, "the first", "x")
    with pytest.raises(ValueError, match=message):
        report.record(key, value, "it", unit)


def test_a_plot_collects_points_and_refuses_points_with_other_axes(
    run: Run, report: Report
) -> None:
    for size in (10, 20):
        report.draw("growth", "search", [(size, 0.5)], title="Growth", x="leaves", y="ms")
    assert run.plots["growth"].lines == {"search": [(10, 0.5), (20, 0.5)]}
    with pytest.raises(ValueError, match="plot growth exists as"):
        report.draw("growth", "search", [], title="Growth", x="leaves", y="us")


# These benchmarks are run in a separate session of pytest.
SESSION = """
import pytest

def test_kept(report):
    report.parameters(seed=3, leaves=5)
    report.at_most("it.ratio", 1.5, "it to the other", "x", 2)
    report.draw("growth", "it", [(5, 1.5)], title="Growth", x="leaves", y="ms")

@pytest.mark.full
def test_large(report):
    report.at_most("it.large", 1.5, "it, large", "x", 2)

def test_micro(benchmark):
    benchmark.pedantic(sum, ([1, 2],), rounds=3)

def test_broken(report):
    report.at_least("it.rate", 1, "its rate", "x", 2)
    assert report.missed == []
"""


def session(folder: Path, *options: str) -> tuple[int, Path]:
    """Runs a session with the benchmarks in SESSION; returns its exit code and results file."""
    (folder / "test_session.py").write_text(SESSION)
    results_path = folder / "figures.json"
    command = (
        *(sys.executable, "-m", "pytest", str(folder), "-p", "benchmarks.conftest"),
        *("-c", str(ROOT / "pyproject.toml"), "--figures", str(results_path), *options),
    )
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
    }
    ran = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True)
    return ran.returncode, results_path


def test_a_session_writes_its_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The results of failed tests are written too.

    The written results can be compared and tabulated.
    """
    code, results_path = session(tmp_path)
    assert code == 1
    results = Results.read(results_path)
    assert {key: figure.met for key, figure in results.figures.items()} == {
        "it.ratio": True,
        "it.rate": False,
    }
    assert results.figures["it.ratio"].command.endswith("test_session.py::test_kept")
    assert list(results.plots) == ["growth"]
    (micro,) = results.micro.values()
    assert micro.median_us > 0
    assert len(results.took_s) == 3
    about = results.about
    assert about["mode"] == "bench"
    assert about["machine"]["cores"] >= 1
    assert about["versions"]["hrag"]
    assert {"date", "commit"} <= set(about)
    assert compare.main([str(results_path), str(results_path)]) == 0
    assert table.main([str(results_path)]) == 0
    # The seed 3 is a parameter of test_kept, so the figure of test_broken must not have it.
    assert "| its rate | 3 | " not in capsys.readouterr().out


@pytest.mark.slow
def test_a_full_session_says_so(tmp_path: Path) -> None:
    code, results_path = session(tmp_path, "-m", "full")
    assert code == 0
    results = Results.read(results_path)
    assert results.about["mode"] == "full"
    assert list(results.figures) == ["it.large"]
    assert results.figures["it.large"].full
    assert results.figures["it.large"].command.endswith("test_large -m full")
