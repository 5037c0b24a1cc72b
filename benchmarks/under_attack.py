"""`python -m benchmarks.under_attack [NAME ...]`: what others notice of each attack.

Prints a table of the attacks in `tests/attacks/attackers.py`, each compared with the same calls
just before it: health checks, another tenant's calls to each service, memory, and how soon there is
full service again. Fails if a bound is missed. The machine must be quiet.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.table import head, row
from tests.attacks.attackers import ATTACKS
from tests.attacks.observer import Bounds, Latencies, Observation, Observer, observed_services
from tests.support.servers.postgres_server import PostgresServer
from tests.support.servers.processes import fresh
from tests.support.servers.stores import in_postgres

_BOUNDS = Bounds()
# gRPC expands references to headers before hrag sees them, so only survival is promised.
_SURVIVAL = Bounds(health_s=5.0, p50_ratio=1e9, p99_ratio=1e9, growth_bytes=1 << 30, recovery_s=5.0)
_CHAT_MODEL = ("answers", "batches")
_POSTGRES = ("batches", "filters")
_MIB = 1 << 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark and returns its exit code: 1 if a bound is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.under_attack", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(ATTACKS))
    parser.add_argument("--seconds", type=float, default=6.0, help="of each attack")
    options = parser.parse_args(arguments)
    names = options.names or list(ATTACKS)
    missed: list[str] = []
    for line in head(
        "attack", "services", "longest health check", "p50 of others", "p99 of others",
        "their longest call", "memory", "full service after",
    ):  # fmt: skip
        print(line)
    for services, of_services, postgres, chat_model in (
        ("embedded", [name for name in ATTACKS if name != "answers"], False, False),
        ("embedded, with a chat model", _CHAT_MODEL, False, True),
        ("PostgreSQL", _POSTGRES, True, False),
    ):
        chosen = [name for name in of_services if name in names]
        if not chosen:
            continue
        with ExitStack() as ending:
            folder = Path(ending.enter_context(TemporaryDirectory()))
            if postgres:
                server = ending.enter_context(closing(PostgresServer()))
                ending.enter_context(in_postgres(server))
            observer = ending.enter_context(observed_services(folder, fresh, chat_model=chat_model))
            for name in chosen:
                missed += _measured(observer, name, services, options.seconds)
    for sentence in missed:
        print(f"missed: {sentence}")
    return 1 if missed else 0


def _measured(observer: Observer, name: str, services: str, duration_s: float) -> Iterator[str]:
    """Measures an attack and prints its row; yields a sentence for each bound that is missed."""
    quiet = observer.observe(duration_s)
    attacked = observer.under_attack(name, duration_s)
    print(row(ATTACKS[name].what, services, *_cells(quiet, attacked)), flush=True)
    bounds = _SURVIVAL if name == "references" else _BOUNDS
    return (f"{name}, {services}: {miss}" for miss in attacked.missed(quiet, bounds))


def _cells(quiet: Observation, attacked: Observation) -> Iterator[str]:
    """Yields the cells of a row. The calls are those to the service with the largest ratio."""
    yield f"{attacked.slowest_health_s * 1e3:.0f} ms"
    for percentile in (Latencies.p50_s, Latencies.p99_s):
        before_s, after_s = max(
            (
                (percentile(quiet.calls[name]), percentile(calls))
                for name, calls in attacked.calls.items()
            ),
            key=lambda both: both[1] / both[0],
        )
        yield f"{after_s / before_s:.1f} x ({before_s * 1e3:.1f} to {after_s * 1e3:.1f} ms)"
    yield f"{max(calls.longest_s() for calls in attacked.calls.values()) * 1e3:.0f} ms"
    yield f"+{attacked.largest_growth_bytes / _MIB:.0f} MiB"
    yield f"{attacked.recovery_s:.2f} s"


if __name__ == "__main__":
    sys.exit(main())
