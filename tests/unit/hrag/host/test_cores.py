"""A container may have less CPU time than its number of cores suggests."""

import os
from pathlib import Path

import pytest

from hrag.host import cores


@pytest.mark.parametrize(
    ("written", "usable"),
    [
        ("200000 100000\n", 2),
        ("150000 100000\n", 2),
        ("10000 100000\n", 1),
        ("6400000 100000\n", 32),
        ("max 100000\n", 32),
        ("damaged", 32),
        (None, 32),
    ],
)
def test_a_quota_of_time_is_a_number_of_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str | None, usable: int
) -> None:
    quota = tmp_path / "cpu.max"
    if written is not None:
        quota.write_text(written, "ascii")
    monkeypatch.setattr(cores, "_QUOTA", quota)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(32)))
    assert cores.usable_cores() == usable
