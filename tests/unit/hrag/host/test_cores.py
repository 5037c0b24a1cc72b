"""The count of usable cores respects the CPU quota of a container."""

import os
from pathlib import Path

import pytest

from hrag.host.cores import usable_cores


@pytest.mark.parametrize(
    ("quota", "usable"),
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
def test_a_quota_of_processor_time_limits_the_count_of_usable_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str | None, usable: int
) -> None:
    quota_file = tmp_path / "cpu.max"
    if quota is not None:
        quota_file.write_text(quota, "ascii")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(32)))
    assert usable_cores(quota_file) == usable
