"""The targets for fuzzing kernels work, and inputs and failures can be repeated.

`make fuzz` runs many inputs, with sanitizers.
"""

import random
from pathlib import Path

import pytest

from tests.fuzz.kernel_targets import TARGETS, with_extreme_number
from tests.fuzz.kernels import fuzz, input_of, main, run_input

_FEW = 40


@pytest.mark.parametrize("name", TARGETS)
def test_a_kernel_reads_damaged_bytes_or_raises_a_documented_error(name: str) -> None:
    for number in range(_FEW):
        run_input(name, 1, number)


@pytest.mark.parametrize("name", TARGETS)
def test_some_valid_bytes_of_a_target_are_read(name: str) -> None:
    target = TARGETS[name]
    read = 0
    for number in range(_FEW):
        for seed in target.seeds():
            try:
                target.run(seed, random.Random(number))
            except target.errors:
                continue
            read += 1
    assert read


def test_an_input_follows_from_the_seed_and_its_number() -> None:
    target = TARGETS["graph"]
    assert input_of(target, "graph", 1, 5)[0] == input_of(target, "graph", 1, 5)[0]
    assert len({input_of(target, "graph", 1, number)[0] for number in range(20)}) > 10


def test_extreme_numbers_are_aligned() -> None:
    draw = random.Random(0)
    for _ in range(_FEW):
        changed = with_extreme_number(bytes([7] * 64), draw)
        places = [at for at, byte in enumerate(changed) if byte != 7]
        assert len(changed) == 64
        assert places[0] // 4 * 4 + 8 > places[-1]
    assert with_extreme_number(b"abc", draw) == b"abc"


def test_a_target_that_ends_its_process_is_reported_with_its_input() -> None:
    report = fuzz("unknown", 7, 60.0)
    assert report is not None
    assert "make fuzz TARGETS=unknown SEED=7 ONLY=0" in report
    assert "KeyError" in report


def test_a_target_without_a_fault_has_no_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz("rows", 7, 0.1) is None
    assert "rows: " in capsys.readouterr().out


def test_a_run_with_other_kernels_than_it_names_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["kernels", "--kernels", str(tmp_path)])
    with pytest.raises(SystemExit):
        main()
    assert f"not those in {tmp_path}" in capsys.readouterr().err
