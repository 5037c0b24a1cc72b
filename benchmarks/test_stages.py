"""Measures the time of each stage of a search through gRPC, for queries by text and by vector.

The service times each stage. The rest of the client's round trip is called the response. It
consists of gRPC, and of encoding and decoding messages on both sides. The built-in embedder embeds
each question every time, because its cache is off. Leaves are clustered around the questions'
vectors. Searches are dense, except that one search by text has the default retrieval, which is
hybrid.
"""

import re
import time
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from benchmarks import corpus
from benchmarks.report import interleaved, measured
from hrag.cli.processes import ServiceProcesses, free_addresses
from hrag.client import Client
from hrag.models.embedding.builtin import BuiltinEmbedder
from hrag.types import Retrieval, SearchMode

LEAVES = 50_000
LEAVES_EACH = 100
SEED = 67
QUERIES = 500
WARM_UP = 50
MODES = (SearchMode.STANDARD, SearchMode.SMALL_TO_BIG, SearchMode.AUTO_MERGE)
DENSE = {
    "retrieval": Retrieval.DENSE,
    "candidates": corpus.DENSE_CANDIDATES,
    "neighbour_bonus": 0.0,
}
STAGES = ("embed", "search", "climb", "fetch")
SENTENCE = re.compile(r"[A-Z][^.?!]{40,160}[.?!]")


@pytest.fixture
def filled(tmp_path) -> tuple[Path, list[str], list[list[float]]]:
    """The folder of a store with one segment, the questions, and their vectors."""
    sentences = SENTENCE.findall(corpus.english_text(1_000_000))
    questions = list(
        islice(dict.fromkeys(" ".join(sentence.split()) for sentence in sentences), QUERIES)
    )
    assert len(questions) == QUERIES
    embedder = BuiltinEmbedder()
    vectors = embedder.embed(questions)
    corpus.fill(
        tmp_path,
        LEAVES,
        LEAVES_EACH,
        embedder.dimension,
        SEED,
        sealed=True,
        embedder=embedder.name,
        centres=vectors,
    )
    return tmp_path, questions, vectors.tolist()


def test_stages(filled, tmp_path_factory, report):
    folder, questions, vectors = filled
    addresses = free_addresses(2)
    settings = {"HRAG_EMBEDDER": "builtin", "HRAG_QUERY_CACHE_ENTRIES": "0"}
    logs = tmp_path_factory.mktemp("logs")
    small_to_big = SearchMode.SMALL_TO_BIG
    variants = {
        **{f"{mode}, text": (mode, questions, DENSE) for mode in MODES},
        "small_to_big, vector": (small_to_big, vectors, DENSE),
        "small_to_big, hybrid": (small_to_big, questions, {}),
    }
    took = {name: [] for name in variants}
    with (
        ServiceProcesses(folder, *addresses, logs=logs, settings=settings) as services,
        Client(*addresses) as client,
    ):
        services.wait_until_serving(timeout_s=60)

        def run(name, number):
            mode, queries, options = variants[name]
            began = time.perf_counter()
            result = client.search(
                corpus.TENANT,
                queries[number],
                collection=corpus.COLLECTION,
                mode=mode,
                **options,
            )
            whole_ms = (time.perf_counter() - began) * 1e3
            stages_ms = [getattr(result.timings, f"{stage}_us") / 1e3 for stage in STAGES]
            took[name].append([*stages_ms, whole_ms - sum(stages_ms)])
            return whole_ms

        measures = [partial(run, name) for name in variants]
        interleaved(measures, WARM_UP)
        interleaved(measures, QUERIES)
    report.parameters(seed=SEED, leaves=LEAVES, dimension=BuiltinEmbedder.dimension)
    for name, rounds in took.items():
        stages = np.array(rounds[WARM_UP:])
        points = []
        for column, stage in enumerate((*STAGES, "response")):
            p50 = measured(stages[:, column], np.median)
            key = f"stages.{name.replace(', ', '.')}.{stage}"
            report.record(key, p50, f"through gRPC, {LEAVES:,} x 512, {name}: {stage}, p50", "ms")
            points.append((stage, p50.value))
        report.draw(
            "stages",
            name,
            points,
            title=f"Stages of a search through gRPC, {LEAVES:,} x 512, built-in embedder, p50",
            x="stage",
            y="ms",
        )
