"""`python -m benchmarks.peers`: the comparison with peers. See README.md in this folder."""

import argparse
import json
import os
import platform
import re
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import numpy as np

from benchmarks.machine import cpu
from benchmarks.peers.corpora import Corpus, Question, evaluation, python_documentation
from benchmarks.peers.driver import Plan as RealTextPlan
from benchmarks.peers.driver import Run
from benchmarks.peers.peer import Text
from benchmarks.peers.registry import PEERS, ROOT, names_among
from benchmarks.peers.scale import run as scale_run
from benchmarks.peers.scale.comparison import LOAD_S, Plan
from benchmarks.peers.scale.limits import Limits
from benchmarks.peers.scale.peer import SCALE_PEERS
from benchmarks.peers.tables import all_tables

SEED = 51
QUESTIONS = 500
_RESULTS = Path(__file__).with_name("results")
_VECTORS = _RESULTS / "vectors-use-multilingual-v3.npz"
_EVAL = ROOT.parent / "shared" / "data" / "eval"
_NAMES = list(PEERS | SCALE_PEERS)
_QUESTION_CHARS = (40, 200)
_SENTENCE_END = re.compile(r"(?<=[.?!])\s+")


def main() -> None:
    """Measures the installed peers, prints tables and writes all figures to `latest.json`.

    With `--leaves`, runs the comparison by size instead: see `benchmarks.peers.scale`.
    """
    parser = _parser()
    options = parser.parse_args()
    known = SCALE_PEERS if options.leaves else PEERS
    names = options.peers or list(known)
    if excluded := ", ".join(set(names) - set(known)):
        parser.error(f"not in this comparison: {excluded}")
    if options.leaves:
        limits = Limits(options.limit_s, options.limit_gb * 1e9)
        scale_run.main(Plan(names, options.leaves, limits, load_s=options.load_s), _RESULTS)
    else:
        _compare(names, options)


def _compare(names: Sequence[str], options: argparse.Namespace) -> None:
    load_before = os.getloadavg()
    timed = _timed_corpus(options.documents)
    folders = sorted(path.parent for path in options.eval_dir.glob("*/queries.jsonl"))
    if not folders:
        print(f"no evaluation data in {options.eval_dir}: recall is left out")
    _RESULTS.mkdir(exist_ok=True)
    plan = RealTextPlan(names, options.index_rounds, options.search_rounds)
    results = Run(plan, timed, [evaluation(folder) for folder in folders], _VECTORS)()
    run = {
        "machine": {
            "cpu": cpu(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "load_before_and_after": [load_before, os.getloadavg()],
        },
        "corpus": {
            "seed": SEED,
            "documents": len(timed.documents),
            "text_bytes": timed.text_bytes,
            "questions": len(timed.questions),
        },
        "plan": asdict(plan),
        "versions": {"hrag": version("hrag"), "numpy": version("numpy"), **results.versions},
        "results": asdict(results),
    }
    (_RESULTS / "latest.json").write_text(json.dumps(run, indent=1) + "\n", "utf-8")
    print(json.dumps({name: run[name] for name in ("machine", "corpus", "versions")}, indent=1))
    print("\n".join(all_tables(results, timed.text_bytes)))


def _timed_corpus(count: int | None) -> Corpus:
    """Returns Python's documentation as documents, and sentences of it as questions."""
    texts = python_documentation()[:count]
    min_chars, max_chars = _QUESTION_CHARS
    sentences = sorted(
        {
            sentence
            for text in texts
            for sentence in _SENTENCE_END.split(text)
            if min_chars < len(sentence) < max_chars
        }
    )
    chosen = np.random.default_rng(SEED).choice(len(sentences), QUESTIONS)
    return Corpus(
        "python",
        chinese=False,
        documents=[Text(f"document-{number:03d}", text) for number, text in enumerate(texts)],
        questions=[Question(sentences[index], {}) for index in chosen],
    )


def _sizes(value: str) -> list[int]:
    return [int(size) for size in value.split(",")]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--peers", type=names_among(_NAMES), help=", ".join(_NAMES))
    parser.add_argument(
        "--leaves",
        type=_sizes,
        help="compare by size, at these counts of seeded leaves, such as 2000,100000,1000000",
    )
    parser.add_argument(
        "--limit-s", type=float, default=1200.0, help="maximum seconds of indexing (with --leaves)"
    )
    parser.add_argument(
        "--limit-gb",
        type=float,
        default=12.0,
        help="maximum memory of a peer in GB (with --leaves)",
    )
    parser.add_argument(
        "--load-s", type=float, default=LOAD_S, help="seconds of a round of searches"
    )
    parser.add_argument("--documents", type=int, help="number of timed documents; all by default")
    parser.add_argument("--index-rounds", type=int, default=3)
    parser.add_argument("--search-rounds", type=int, default=20)
    parser.add_argument(
        "--eval-dir",
        type=Path,
        default=Path(os.environ.get("HRAG_BENCH_EVAL_DIR", _EVAL)),
        help="folder of evaluation sets (HRAG_BENCH_EVAL_DIR; default ../shared/data/eval)",
    )
    return parser


if __name__ == "__main__":
    main()
