"""A parser of the output of h2load, nghttp2's load generator (Debian: nghttp2-client).

h2load takes almost no processor time from a service on the same machine. It counts every gRPC
status as success (HTTP 200), so refused calls are visible only in the count of bytes received.
"""

import re
import shutil
from dataclasses import dataclass

MISSING = "h2load is not installed (nghttp2-client)"
_OUTPUT = re.compile(
    r"requests: (\d+) total.*\((\d+)\) data.*time for request: +\S+ +([\d.]+)(us|ms|s)", re.DOTALL
)
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True, slots=True)
class H2loadRun:
    """The figures of one run without warm-up.

    h2load counts the bytes of a warm-up but not its calls.
    """

    calls: int
    data_bytes: int
    longest_s: float


def is_installed() -> bool:
    """True if h2load is on the PATH."""
    return shutil.which("h2load") is not None


def parse(output: str) -> H2loadRun:
    """Returns the figures in h2load's standard output. Raises ValueError if it contains none."""
    match = _OUTPUT.search(output)
    if match is None:
        raise ValueError(f"no figures in h2load's output: {output[-500:]!r}")
    calls, data_bytes, longest, unit = match.groups()
    return H2loadRun(int(calls), int(data_bytes), float(longest) * _UNITS[unit])
