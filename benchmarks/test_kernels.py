"""The compiled kernels, compared with their Python twins.

A million leaves, one in fifty deleted. Hits in random order, of few groups: about one group
for three hits, as of a search that found much of a few documents. Seeded.
"""

import time

import numpy as np
import pytest

import hrag_fast
from benchmarks.report import interleaved, ratio
from hrag_fast import MAX, _reference

LEAVES = 1_000_000
LEAVES_PER_DOCUMENT = 100
LEAVES_PER_ANCESTOR = 4
HITS_PER_GROUP = 3.3
MIN_SPEEDUP = {100: 30, 1000: 50}
ROUNDS = 60


@pytest.fixture(scope="module")
def index():
    """Labels, ancestors and live flags, by row."""
    documents, leaves = np.divmod(np.arange(LEAVES, dtype=np.uint64), LEAVES_PER_DOCUMENT)
    return (
        documents << 20 | leaves,
        (leaves // LEAVES_PER_ANCESTOR).astype(np.uint32),
        (np.random.default_rng(1).random(LEAVES) >= 0.02).astype(np.uint8),
    )


def hits(count):
    """Returns rows and scores of leaves of few ancestors, in random order."""
    random = np.random.default_rng(count)
    group_count = round(count / HITS_PER_GROUP)
    ancestors = random.choice(LEAVES // LEAVES_PER_ANCESTOR, group_count, replace=False)
    leaves = (ancestors[:, None] * LEAVES_PER_ANCESTOR + np.arange(LEAVES_PER_ANCESTOR)).ravel()
    rows = random.choice(leaves, count, replace=False).astype(np.uint32)
    return rows, random.random(count, dtype=np.float32)


def seconds(function, arguments, calls):
    """Returns the mean seconds of a call."""
    started = time.perf_counter()
    for _ in range(calls):
        function(*arguments)
    return (time.perf_counter() - started) / calls


@pytest.mark.parametrize("kernels", [hrag_fast, _reference], ids=["kernel", "twin"])
@pytest.mark.parametrize("hit_count", [100, 1000])
def test_climb(benchmark, index, kernels, hit_count):
    groups = benchmark(kernels.climb, *hits(hit_count), *index, MAX)
    assert len(groups.keys) < hit_count / 3


@pytest.mark.parametrize("hit_count", [100, 1000])
def test_ratio_of_climb_to_its_twin(index, hit_count, report):
    """Interleaved in one process, so that a slow spell of the machine affects both."""
    arguments = (*hits(hit_count), *index, MAX)
    took = interleaved(
        [
            lambda _: seconds(hrag_fast.climb, arguments, 20_000 // hit_count),
            lambda _: seconds(_reference.climb, arguments, 1_000 // hit_count),
        ],
        ROUNDS,
    )
    report.parameters(seed=hit_count, hits=hit_count, leaves=LEAVES)
    key = f"kernels.climb.{hit_count}.ratio_to_twin"
    what = f"climb, speedup over its Python twin, k = {hit_count:,}"
    report.at_least(key, ratio(took, 1, 0), what, "x", MIN_SPEEDUP[hit_count])
    assert report.missed == []


@pytest.mark.parametrize("kernels", [hrag_fast, _reference], ids=["kernel", "twin"])
@pytest.mark.parametrize(
    "sentence",
    ["The end of a line, and more. ", "一行的结尾，还有更多。"],
    ids=["English", "Chinese"],
)
def test_boundary_ranks(benchmark, kernels, sentence):
    """1,000 cuts, one every 4 bytes, the mean length of a token."""
    text = (sentence * 1000).encode()
    ends = np.arange(4, 4004, 4, dtype=np.uint32)
    ranks = benchmark(kernels.boundary_ranks, text, ends)
    assert len(set(ranks.tolist())) >= 3
