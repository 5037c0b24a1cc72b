"""Runs the comparison by size, and writes its output."""

import json
import os
import platform
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.machine import commit, machine
from benchmarks.peers.scale.comparison import Comparison, Plan, Results, Size
from benchmarks.peers.scale.corpus_writer import SEED
from benchmarks.peers.scale.tables import all_tables, rate

_FILE = "scale.json"


def main(plan: Plan, folder: Path) -> None:
    """Measures the peers, prints tables and writes the figures after each size."""
    folder.mkdir(exist_ok=True)
    about = {**machine(), "python": platform.python_version()}
    results = Comparison(plan, partial(_write, folder / _FILE, plan, about))()
    about["load_average_after"] = round(os.getloadavg()[0], 2)
    _write(folder / _FILE, plan, about, results)
    print(json.dumps({"machine": about, "versions": results.versions}, indent=1))
    print("\n".join(all_tables(results)))


def _write(path: Path, plan: Plan, about: dict[str, str | float], results: Results) -> None:
    run = {
        "machine": about,
        "commit": commit(),
        "seed": SEED,
        "plan": asdict(plan),
        "versions": {"hrag": version("hrag"), "numpy": version("numpy"), **results.versions},
        "sizes": [_size(size) for size in results.sizes],
    }
    path.write_text(json.dumps(run, indent=1) + "\n", "utf-8")


def _size(size: Size) -> dict[str, Any]:
    """Returns the figures of a size, without the times of single searches."""
    return {
        "leaves": size.leaves,
        "peers": {
            name: {
                "failed": figures.failed,
                **figures.costs,
                "searched": {
                    count: asdict(rate(searched)) for count, searched in figures.searched.items()
                },
            }
            for name, figures in size.peers.items()
        },
    }
