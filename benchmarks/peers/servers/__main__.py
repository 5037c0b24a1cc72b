"""`python -m benchmarks.peers.servers`: the comparison of servers. See README.md in this folder."""

import argparse
import json
import os
import platform
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from benchmarks.machine import commit, machine
from benchmarks.peers.registry import names_among
from benchmarks.peers.scale.corpus_writer import SEED
from benchmarks.peers.scale.limits import Limits
from benchmarks.peers.servers.comparison import Comparison, Plan
from benchmarks.peers.servers.server import SERVERS
from benchmarks.peers.servers.tables import table

_FILE = Path(__file__).parents[1] / "results" / "servers.json"


def main() -> None:
    """Measures the servers, prints a table and writes all figures to `servers.json`."""
    options = _parser().parse_args()
    limits = Limits(options.limit_s, options.limit_gb * 1e9)
    plan = Plan(options.servers, options.leaves, options.rounds, options.seconds, limits)
    about = {**machine(), "python": platform.python_version()}
    results = Comparison(plan)()
    about["load_average_after"] = round(os.getloadavg()[0], 2)
    versions = {"hrag": version("hrag"), **results.versions}
    run = {
        "machine": about,
        "commit": commit(),
        "seed": SEED,
        "plan": asdict(plan),
        **asdict(results),
        "versions": versions,
    }
    _FILE.parent.mkdir(exist_ok=True)
    _FILE.write_text(json.dumps(run, indent=1) + "\n", "utf-8")
    print(json.dumps({"machine": about, "versions": versions}, indent=1))
    print("\n".join(table(results)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.servers", description=__doc__)
    parser.add_argument(
        "--servers", type=names_among(SERVERS), default=list(SERVERS), help=", ".join(SERVERS)
    )
    parser.add_argument("--leaves", type=int, default=100_000, help="number of seeded leaves")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of searches")
    parser.add_argument("--seconds", type=int, default=5, help="seconds of a round")
    parser.add_argument("--limit-s", type=float, default=2400.0, help="maximum seconds of indexing")
    parser.add_argument(
        "--limit-gb", type=float, default=12.0, help="maximum memory of a server in GB"
    )
    return parser


if __name__ == "__main__":
    main()
