"""The stored run fits the present benchmarks, so a new run can be compared with it."""

import re
from pathlib import Path

import pytest

from benchmarks.figures import STORED, Results

ROOT = Path(__file__).resolve().parents[3]
RESULTS = Results.read(STORED)
NODE = re.compile(r"(?P<file>benchmarks/test_\w+\.py)::(?P<test>test_\w+)")
WORD = re.compile(r"[a-z]+(?:_[a-z]+)*")
# The report appends p50 or p99 to keys. This is the only word in these suffixes.
PERCENTILE = "p"


def source_of(command: str) -> tuple[str, str]:
    """Returns the source of the file that a command runs, in lower case, and its test's name."""
    match = NODE.search(command)
    assert match, command
    return (ROOT / match["file"]).read_text("utf-8").lower(), match["test"]


def test_the_benchmark_of_every_stored_key_records_that_key() -> None:
    """Each word of a key occurs in the file of its benchmark, which composes the key."""
    unknown = [
        f"{key}: {word}"
        for key, figure in RESULTS.figures.items()
        for word in WORD.findall(key)
        if word != PERCENTILE and word not in source_of(figure.command)[0]
    ]
    assert unknown == []


@pytest.mark.parametrize(
    "commands",
    [{figure.command for figure in RESULTS.figures.values()}, RESULTS.micro, RESULTS.took_s],
    ids=["figures", "micro", "took_s"],
)
def test_every_stored_test_exists(commands: set[str]) -> None:
    for command in commands:
        source, test = source_of(command)
        assert f"def {test}(" in source


def test_the_plot_files_are_those_of_the_stored_plots() -> None:
    drawn = {path.stem for path in STORED.parent.glob("*.svg")}
    assert drawn == set(RESULTS.plots)
