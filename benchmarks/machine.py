"""The machine, library versions and commit of a benchmark run."""

import os
import platform
import re
import subprocess
from importlib.metadata import requires, version
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_NAME = re.compile(r"[\w.-]+")


def cpu() -> str:
    """Returns the processor's model name, empty if the kernel gives none."""
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "")


def machine() -> dict[str, str | float]:
    """Returns the machine's description; the load average is that of the last minute."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30, 1),
        "kernel": platform.release(),
        "load_average": round(os.getloadavg()[0], 2),
    }


def versions() -> dict[str, str]:
    """Returns the versions of Python, hrag, what its services require, and pytest-benchmark."""
    listed = requires("hrag") or ()
    names = [each for each in listed if "extra ==" not in each or 'extra == "server"' in each]
    required = [found.group() for each in names if (found := _NAME.match(each))]
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in ("hrag", *sorted(required), "pytest-benchmark")},
    }


def commit() -> str | None:
    """Returns the working copy's commit, ending in "-dirty" if files differ; None without git."""
    command = ("git", "-C", str(_ROOT), "describe", "--always", "--dirty", "--abbrev=40")
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
