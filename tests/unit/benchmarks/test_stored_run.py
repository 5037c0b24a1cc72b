"""The stored run fits the present benchmarks: a new run can be compared with it."""

import re
from pathlib import Path

import pytest

from benchmarks.figures import STORED, Results

ROOT = Path(__file__).resolve().parents[3]
RESULTS = Results.read(STORED)
NODE = re.compile(r"(?P<file>benchmarks/test_\w+\.py)::(?P<test>test_\w+)")
WORD = re.compile(r"[a-z]+(?:_[a-z]+)*")
# The only word in p50 and p99, which the report appends to keys.
PERCENTILE = "p"


def source_of(command: str) -> tuple[str, str]:
    """Returns the source of the benchmark's file in lower case, and the name of its test."""
    match = NODE.search(command)
    assert match, command
    return (ROOT / match["file"]).read_text("utf-8").lower(), match["test"]


def test_every_stored_key_is_one_that_its_benchmark_records() -> None:
    """Benchmarks compose keys in their files, so each word of a key occurs in its file."""
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


def test_every_plot_has_its_file_and_no_other_is_there() -> None:
    drawn = {path.stem for path in STORED.parent.glob("*.svg")}
    assert drawn == set(RESULTS.plots)
