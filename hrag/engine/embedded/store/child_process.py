"""Runs a module of ours as a program of its own, which damaged pages may end."""

import subprocess
import sys
from pathlib import Path

_IMPORT_ROOT = Path(__file__).parents[4]  # The folder that holds the package `hrag`.


def run_module(module: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Returns how `python -m module` ended, and what it wrote; its standard input is empty."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=_IMPORT_ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        encoding="utf-8",
        errors="replace",
    )
