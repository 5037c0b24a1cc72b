"""Measurements that every peer needs."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Calls `work`; returns the seconds that it took, and its result."""
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def folder_bytes(folder: Path) -> int:
    """Returns the total length in bytes of all files in a folder and its subfolders."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
