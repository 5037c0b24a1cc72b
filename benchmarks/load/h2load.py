"""What h2load, the load generator of nghttp2 (Debian: nghttp2-client), tells of a run.

It takes next to nothing of the cores that it shares with a service. All statuses of gRPC
are HTTP 200 to it, so what was refused shows only in the bytes that came.
"""

import re
import shutil
from dataclasses import dataclass

MISSING = "h2load is not installed (nghttp2-client)"
_TOLD = re.compile(
    r"requests: (\d+) total.*\((\d+)\) data.*time for request: +\S+ +([\d.]+)(us|ms|s)", re.DOTALL
)
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True, slots=True)
class Sent:
    """Of a run without warm-up, whose bytes would count where its calls do not."""

    calls: int
    data_bytes: int
    longest_s: float


def is_there() -> bool:
    return shutil.which("h2load") is not None


def told(output: str) -> Sent:
    """Of its standard output; raises ValueError for any other."""
    found = _TOLD.search(output)
    if found is None:
        raise ValueError(f"h2load told nothing of its requests: {output[-500:]!r}")
    calls, data_bytes, longest, unit = found.groups()
    return Sent(int(calls), int(data_bytes), float(longest) * _UNITS[unit])
