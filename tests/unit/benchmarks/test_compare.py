"""The comparison of two runs judges whether each figure is worse, the same or too noisy."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.compare import Verdict, compare, failures, main
from benchmarks.figures import TOLERANCE, BadResults, Figure, Results


def figure(value: float, **changed: Any) -> Figure:
    fields: dict[str, Any] = {
        "what": "Search, ratio to baseline",
        "value": value,
        "unit": "x",
        "better": "lower",
        "target": None,
        "noise": 0.01,
        "seed": 1,
        "sizes": {"leaves": 1000},
        "command": "pytest benchmarks/test_baseline.py",
        "full": False,
        "met": None,
    }
    return Figure(**fields | changed)


def results(mode: str = "bench", **figures: Figure) -> Results:
    return Results(about={"mode": mode}, figures=figures)


def verdict(stored: Figure, latest: Figure) -> Verdict:
    (compared,) = compare(results(ratio=stored), results(ratio=latest))
    return compared.verdict


@pytest.mark.parametrize(
    ("better", "stored", "latest", "expected"),
    [
        ("lower", 1.5, 2.0, Verdict.WORSE),
        ("lower", 1.5, 1.0, Verdict.BETTER),
        ("lower", 1.5, 1.5, Verdict.SAME),
        ("higher", 0.8, 0.5, Verdict.WORSE),
        ("higher", 0.8, 1.2, Verdict.BETTER),
        ("higher", 0.8, 0.8, Verdict.SAME),
    ],
)
def test_worse_depends_on_the_direction_of_a_figure(
    better: str, stored: float, latest: float, expected: Verdict
) -> None:
    assert verdict(figure(stored, better=better), figure(latest, better=better)) is expected


@pytest.mark.parametrize("noise", [(0.1, 0.0), (0.0, 0.1), (None, 0.1)])
def test_a_difference_within_the_noise_of_either_run_is_not_worse(
    noise: tuple[float | None, float],
) -> None:
    """Differences up to three standard deviations plus the tolerance of the unit are noise."""
    allowed = 3 * 0.1 + TOLERANCE["x"] * 2
    was, now = noise
    below, above = 2 + 0.99 * allowed, 2 + 1.01 * allowed
    assert verdict(figure(2, noise=was), figure(below, noise=now)) is Verdict.SAME
    assert verdict(figure(2, noise=was), figure(above, noise=now)) is Verdict.WORSE


def test_noise_of_both_runs_is_combined_as_standard_deviations() -> None:
    allowed = 3 * 0.5 + TOLERANCE["x"] * 10
    was, now = figure(10, noise=0.3), figure(10 + 0.99 * allowed, noise=0.4)
    assert verdict(was, now) is Verdict.SAME
    assert verdict(was, now.model_copy(update={"value": 10 + 1.01 * allowed})) is Verdict.WORSE


def test_without_noise_the_tolerance_still_applies() -> None:
    assert verdict(figure(1.5, noise=0), figure(1.6, noise=0)) is Verdict.SAME
    shares = [
        figure(value, noise=0, unit="share", better="higher") for value in (0.999, 0.996, 0.99)
    ]
    assert verdict(shares[0], shares[1]) is Verdict.SAME
    assert verdict(shares[0], shares[2]) is Verdict.WORSE


def test_a_comparison_with_too_much_noise_is_inconclusive() -> None:
    assert verdict(figure(1.5, noise=0.4), figure(1.5, noise=0)) is Verdict.NOISY
    assert verdict(figure(1.5, noise=0.4), figure(5, noise=0)) is Verdict.WORSE


@pytest.mark.parametrize("changed", [{"unit": "ms"}, {"better": None}])
def test_times_and_reported_figures_are_not_compared(changed: dict[str, Any]) -> None:
    assert compare(results(a=figure(1, **changed)), results(a=figure(9, **changed))) == []


def test_a_missing_figure_fails_unless_the_run_is_partial() -> None:
    compared = compare(results(a=figure(1), b=figure(1)), results(a=figure(1)))
    assert [comparison.key for comparison in failures(compared, partial=False)] == ["b"]
    assert failures(compared, partial=True) == []


def test_a_figure_of_the_full_run_is_missing_from_full_runs_only() -> None:
    stored = results("full", a=figure(1, full=True))
    assert failures(compare(stored, results("bench")), partial=False) == []
    assert len(failures(compare(stored, results("full")), partial=False)) == 1


def test_new_figures_are_listed() -> None:
    compared = compare(results(), results(a=figure(1)))
    assert [comparison.verdict for comparison in compared] == [Verdict.NEW]
    assert failures(compared, partial=False) == []


@pytest.mark.parametrize(
    "changed", [{"sizes": {"leaves": 2000}}, {"seed": 2}, {"unit": "share"}, {"better": "higher"}]
)
def test_a_figure_with_other_parameters_fails(changed: dict[str, Any]) -> None:
    compared = compare(results(a=figure(1)), results(a=figure(1, **changed)))
    assert [comparison.verdict for comparison in failures(compared, partial=True)] == [
        Verdict.CHANGED
    ]


def written(path: Path, value: float, **changed: Any) -> str:
    results(a=figure(value, **changed)).write(path)
    return str(path)


def test_the_exit_code_says_if_a_figure_is_worse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored, worse = written(tmp_path / "stored.json", 1), written(tmp_path / "worse.json", 2)
    assert main([stored, stored]) == 0
    assert "| a | Search, ratio to baseline | 1 ± 0.01 x | 1 ± 0.01 x | " in capsys.readouterr().out
    assert main([stored, worse]) == 1
    assert "WORSE" in capsys.readouterr().out
    empty = tmp_path / "empty.json"
    results().write(empty)
    assert main([stored, str(empty)]) == 1
    assert main([stored, str(empty), "--partial"]) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _: None, "No such file"),
        (lambda path: path.write_bytes(b"\xff{"), "utf-8"),
        (lambda path: path.write_text("{"), "Expecting"),
        (lambda path: path.write_text("[]"), "its version is None"),
        (lambda path: path.write_text('{"version": 2}'), "its version is 2, this program reads 1"),
        (lambda path: path.write_text('{"version": 1}'), "about"),
    ],
)
def test_the_error_message_names_a_broken_file(
    change: Any, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored, broken = written(tmp_path / "stored.json", 1), tmp_path / "broken.json"
    change(broken)
    assert main([stored, str(broken)]) == 2
    error = capsys.readouterr().err
    assert str(broken) in error
    assert message in error


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "much", None])
def test_a_value_that_is_no_finite_number_is_refused(value: Any, tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    written(path, 1)
    content = json.loads(path.read_text())
    content["figures"]["a"]["value"] = value
    path.write_text(json.dumps(content))
    with pytest.raises(BadResults, match=r"figures\.a\.value"):
        Results.read(path)


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    stored = results(a=figure(1.25, noise=None, target=2.0, met=True))
    stored.write(tmp_path / "new" / "figures.json")
    assert Results.read(tmp_path / "new" / "figures.json") == stored
