"""The tables of a run are correct, and so are the files that contain the tables."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.figures import STORED, Figure, Plot, Results
from benchmarks.table import HEADLINES, README, REQUIREMENTS, TABLES, tables, write, written

ABOUT = {
    "date": "2030-01-02T03:04:05+00:00",
    "commit": "abc",
    "mode": "bench",
    "machine": {
        "cpu": "A CPU",
        "cores": 2,
        "memory_gib": 4.0,
        "kernel": "6.1",
        "load_average": 0.1,
    },
    "versions": dict.fromkeys(
        ("python", "numpy", "hnswlib", "lmdb", "grpcio", "protobuf", "tiktoken"), "1"
    ),
}


def figure(description: str, value: float, **changed: Any) -> Figure:
    fields: dict[str, Any] = {
        "what": description,
        "value": value,
        "unit": "x",
        "better": "lower",
        "target": None,
        "noise": None,
        "seed": 1,
        "sizes": {},
        "command": "pytest benchmarks/test_it.py",
        "full": False,
        "met": None,
    }
    return Figure(**fields | changed)


def lines(**figures: Figure) -> list[str]:
    keyed = {key.replace("__", "."): figure for key, figure in figures.items()}
    return list(tables(Results(about=ABOUT, figures=keyed)))


def test_a_missed_target_is_shown_with_its_command() -> None:
    shown = lines(
        baseline__one_caller__ratio=figure("p50", 1.567, noise=0.02, target=1.25, met=False)
    )
    (line,) = [line for line in shown if "p50" in line]
    assert line.endswith(
        "| p50 | <= 1.25 x | 1.57 ± 0.02 x | **missed** | `pytest benchmarks/test_it.py` |"
    )


def test_a_requirement_without_a_figure_is_reported() -> None:
    missing = [line for line in lines() if "not measured in this run" in line]
    assert len(missing) == len(REQUIREMENTS)


def test_other_figures_are_listed_with_their_target_or_without() -> None:
    shown = lines(
        a__ratio=figure("ratio", 0.5, target=0.4, better="higher", met=True),
        a__p50=figure("took, p50", 1.0, unit="ms"),
        a__p99=figure("took, p99", 1234.5, unit="ms"),
        b__rate=figure("rate", 5, unit="calls/s", seed=None),
        b__recall=figure("recall", 0.999, unit="share"),
    )
    start = shown.index("| what | seed | figure |")
    assert shown[start + 1 : start + 5] == [
        "| --- | --- | --- |",
        "| took, p50, p99 | 1 | 1, 1,234 ms |",
        "| rate | none | 5 calls/s |",
        "| recall | 1 | 0.999 |",
    ]
    assert "| ratio | 1 | >= 0.4 x | 0.5 x | met |" in shown


def test_plots_are_shown_by_their_names() -> None:
    plot = Plot(title="Growth", x="leaves", y="ms", lines={})
    assert "![Growth](growth.svg)" in list(tables(Results(about=ABOUT, plots={"growth": plot})))


def test_files_are_listed_with_the_time_of_all_their_tests() -> None:
    took_s = {"test_a.py::test_1": 1.5, "test_b.py::test": 9.0, "test_a.py::test_2[x]": 2.0}
    shown = list(tables(Results(about=ABOUT, took_s=took_s)))
    assert shown[-2:] == ["| `test_a.py` | 4 s |", "| `test_b.py` | 9 s |"]


def test_the_machine_is_named() -> None:
    assert any("2 cores (A CPU), 4.0 GiB, Linux 6.1" in line for line in lines())


def test_the_stored_tables_are_those_of_the_stored_run() -> None:
    """This test fails if the tables were edited by hand or not written after the run."""
    stored = Results.read(STORED)
    assert STORED.with_name(TABLES).read_text("utf-8") == "\n".join(tables(stored)) + "\n"
    text = README.read_text("utf-8")
    assert written(text, stored) == text


def test_the_stored_run_has_the_figures_of_every_headline() -> None:
    stored = Results.read(STORED)
    keys = [key for headline in HEADLINES for key in headline.keys]
    assert [key for key in keys if key not in stored.figures] == []


def test_both_files_are_written_or_neither(tmp_path: Path) -> None:
    readme, tables_path = tmp_path / "README.md", tmp_path / TABLES
    readme.write_text("no marks", "utf-8")
    with pytest.raises(ValueError, match="must each occur"):
        write(Results(about=ABOUT), tables_path, readme)
    assert not tables_path.exists()
    readme.write_text(README.read_text("utf-8"), "utf-8")
    write(Results(about=ABOUT), tables_path, readme)
    assert "at commit abc" in readme.read_text("utf-8")
    assert "at commit abc" in tables_path.read_text("utf-8")


def test_only_the_text_between_the_marks_is_replaced() -> None:
    text = README.read_text("utf-8")
    changed = written(text, Results(about=ABOUT))
    before, remainder = text.split("<!-- `python -m benchmarks.table --write` writes from here -->")
    after = remainder.split("<!-- to here -->")[1]
    assert changed.startswith(before)
    assert changed.endswith(after)
    assert "**missed**" not in changed.removeprefix(before).removesuffix(after)
    assert written(changed, Results(about=ABOUT)) == changed


@pytest.mark.parametrize("text", ["", "<!-- to here -->\n"])
def test_a_text_without_marks_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must each occur once"):
        written(text, Results(about=ABOUT))
