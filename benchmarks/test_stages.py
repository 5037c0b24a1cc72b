"""Where the time of a search goes: questions as texts, the builtin embedder, through gRPC.

Each stage as the service times it; the rest of what the client waits for, both sides' gRPC
and messages, is the response. Leaves gather round the vectors of the questions. No question
is asked twice without being embedded again.
"""

import re
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from benchmarks import corpus
from benchmarks.report import interleaved, measured
from hrag.cli.running import Services, free_addresses
from hrag.client import Client
from hrag.embedding.builtin import BuiltinEmbedder
from hrag.types import SearchMode

LEAVES = 50_000
LEAVES_EACH = 100
SEED = 67
QUERIES = 500
WARM_UP = 50
MODES = (
    SearchMode.STANDARD,
    SearchMode.SMALL_TO_BIG,
    SearchMode.AUTO_MERGE,
    SearchMode.SENTENCE_WINDOW,
)
STAGES = ("embed", "search", "climb", "fetch")
SENTENCE = re.compile(r"[A-Z][^.?!\n]{40,120}[.?!]")


@pytest.fixture
def filled(tmp_path) -> Iterator[tuple[Path, list[str]]]:
    """The folder of a store with one segment, and questions."""
    sentences = dict.fromkeys(SENTENCE.findall(corpus.english_text(1_000_000)))
    questions = list(islice(sentences, QUERIES))
    assert len(questions) == QUERIES
    embedder = BuiltinEmbedder()
    corpus.fill(
        tmp_path,
        LEAVES,
        LEAVES_EACH,
        embedder.dimension,
        SEED,
        sealed=True,
        embedder=embedder.name,
        round_these=embedder.embed(questions),
    )
    return tmp_path, questions


def test_stages(filled, tmp_path_factory, report):
    folder, questions = filled
    addresses = free_addresses(2)
    settings = {"HRAG_EMBEDDER": "builtin", "HRAG_QUERY_CACHE_ENTRIES": "0"}
    logs = tmp_path_factory.mktemp("logs")
    took = {mode: [] for mode in MODES}
    with Services(folder, *addresses, logs=logs, settings=settings) as services:
        services.wait_until_serving(timeout_s=60)
        with Client(*addresses) as client:

            def asked(mode, number):
                began = time.perf_counter()
                found = client.search(
                    corpus.TENANT, questions[number], collection=corpus.COLLECTION, mode=mode
                )
                whole_ms = (time.perf_counter() - began) * 1e3
                own_ms = [getattr(found.timings, f"{stage}_us") / 1e3 for stage in STAGES]
                took[mode].append([*own_ms, whole_ms - sum(own_ms)])
                return whole_ms

            measures = [lambda number, mode=mode: asked(mode, number) for mode in MODES]
            interleaved(measures, WARM_UP)
            interleaved(measures, QUERIES)
    report.of(seed=SEED, leaves=LEAVES, dimension=BuiltinEmbedder.dimension)
    for mode in MODES:
        stages = np.array(took[mode][WARM_UP:])
        points = []
        for place, stage in enumerate((*STAGES, "response")):
            p50 = measured(stages[:, place], np.median)
            what = f"through gRPC, text, {LEAVES:,} x 512, {mode}: {stage}, p50"
            report.tell(f"stages.{mode.lower()}.{stage}", p50, what, "ms")
            points.append((stage, p50.value))
        report.draw(
            "stages",
            mode,
            points,
            title=f"Stages of a search through gRPC, {LEAVES:,} x 512, builtin embedder, p50",
            x="stage",
            y="ms",
        )
