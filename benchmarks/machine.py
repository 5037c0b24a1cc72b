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
    """Returns the processor's model name, or an empty text if the kernel gives none."""
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "")


def machine() -> dict[str, str | float]:
    """Returns a description of the machine. The load average is the one of the last minute."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30, 1),
        "kernel": platform.release(),
        "load_average": round(os.getloadavg()[0], 2),
    }


def versions() -> dict[str, str]:
    """Returns the versions of Python, hrag, its services' packages and pytest-benchmark."""
    listed = requires("hrag") or ()
    needed = [line for line in listed if "extra ==" not in line or 'extra == "server"' in line]
    required = [match.group() for line in needed if (match := _NAME.match(line))]
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in ("hrag", *sorted(required), "pytest-benchmark")},
    }


def commit() -> str | None:
    """Returns the commit of the working copy; None without git.

    It ends in "-dirty" if files differ from the commit.
    """
    command = ("git", "-C", str(_ROOT), "describe", "--always", "--dirty", "--abbrev=40")
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
