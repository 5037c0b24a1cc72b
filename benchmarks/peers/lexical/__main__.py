"""`python -m benchmarks.peers.lexical`: compares the lexical source with tantivy and bm25s.

README.md in the folder above describes the comparison.
"""

import argparse
import json
from contextlib import ExitStack
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.machine import machine
from benchmarks.peers.lexical.comparison import BLOCK, ROUNDS, Comparison, table
from benchmarks.peers.lexical.engine import ENGINES, LIMIT
from benchmarks.peers.lexical.hrag_itself import QUERIES, SEED, make_corpus
from benchmarks.peers.registry import names_among

LEAVES = 100_000
_RESULTS = Path(__file__).parents[1] / "results"


def main() -> None:
    """Measures the installed engines, prints a table and writes the figures as JSON."""
    options = _parser().parse_args()
    about = machine()
    with TemporaryDirectory(prefix="lexical-") as name, ExitStack() as stack:
        folder = Path(name)
        leaves = make_corpus(folder, options.leaves)
        print(f"{len(leaves):,} leaves, {len(leaves.numbers):,} postings", flush=True)
        comparison = Comparison(stack, folder, options.engines)
        figures = comparison.figures()
    run = {
        "machine": about,
        "versions": {"hrag": version("hrag"), **comparison.versions},
        "corpus": {
            "seed": SEED,
            "leaves": len(leaves),
            "postings": len(leaves.numbers),
            "queries": QUERIES,
        },
        "plan": {"rounds": ROUNDS, "block": BLOCK, "limit": LIMIT},
        "figures": {name: asdict(engine) for name, engine in figures.items()},
        "seconds": comparison.took,
        "skipped": comparison.skipped,
    }
    _RESULTS.mkdir(exist_ok=True)
    path = _RESULTS / f"lexical_{options.leaves}.json"
    path.write_text(json.dumps(run, indent=1) + "\n", "utf-8")
    print(json.dumps({name: run[name] for name in ("machine", "versions", "corpus")}, indent=1))
    print("\n".join(table(figures)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.lexical", description=__doc__)
    parser.add_argument("--leaves", type=int, default=LEAVES)
    parser.add_argument(
        "--engines", type=names_among(ENGINES), default=list(ENGINES), help=", ".join(ENGINES)
    )
    return parser


if __name__ == "__main__":
    main()
