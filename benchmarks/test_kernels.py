"""Compares the compiled kernels with their Python twins. All data come from fixed seeds.

The climb has a million leaves, of which one in fifty is deleted. The hits are in random order and
have few ancestors: about one ancestor for three hits, as in a search that finds leaves of a few
documents.

BM25 scores five terms, of which the rarest occurs in 0.1 % of 100,000 rows and the most frequent in
30 %.

The analysis reads twenty leaves, and the stems of most of their words are cached already.
"""

import time

import numpy as np
import pytest
import Stemmer

import hrag_fast
from benchmarks import corpus
from benchmarks.report import interleaved, measured, ratio
from hrag_fast import MAX
from tests import twins

LEAVES = 1_000_000
LEAVES_PER_DOCUMENT = 100
LEAVES_PER_ANCESTOR = 4
HITS_PER_GROUP = 3.3
MIN_SPEEDUP = {100: 30, 1000: 50}
ROUNDS = 60
ROWS = 100_000
# The share of the rows in which each term of the query occurs.
SHARES_OF_ROWS = (0.3, 0.1, 0.03, 0.01, 0.001)
FEWER_ROUNDS = 20
LEAF_BYTES = 920
ANALYSED_LEAVES = 20
ANALYSED = {
    "English": lambda: next(corpus.varied_texts(ANALYSED_LEAVES, 1, [0])),
    "Chinese": lambda: corpus.chinese_text(ANALYSED_LEAVES * LEAF_BYTES, 1),
}


@pytest.fixture(scope="module")
def index():
    """The labels, the ancestors and the live flags of all leaves, by row."""
    documents, leaves = np.divmod(np.arange(LEAVES, dtype=np.uint64), LEAVES_PER_DOCUMENT)
    return (
        documents << 20 | leaves,
        (leaves // LEAVES_PER_ANCESTOR).astype(np.uint32),
        (np.random.default_rng(1).random(LEAVES) >= 0.02).astype(np.uint8),
    )


def hits(count):
    """Returns the rows and scores of `count` leaves in random order, which have few ancestors."""
    random = np.random.default_rng(count)
    group_count = round(count / HITS_PER_GROUP)
    ancestors = random.choice(LEAVES // LEAVES_PER_ANCESTOR, group_count, replace=False)
    leaves = (ancestors[:, None] * LEAVES_PER_ANCESTOR + np.arange(LEAVES_PER_ANCESTOR)).ravel()
    rows = random.choice(leaves, count, replace=False).astype(np.uint32)
    return rows, random.random(count, dtype=np.float32)


def seconds(function, arguments, calls):
    """Returns the mean seconds of a call over `calls` calls."""
    started = time.perf_counter()
    for _ in range(calls):
        function(*arguments)
    return (time.perf_counter() - started) / calls


@pytest.mark.parametrize("kernels", [hrag_fast, twins], ids=["kernel", "twin"])
@pytest.mark.parametrize("hit_count", [100, 1000])
def test_climb(benchmark, index, kernels, hit_count):
    groups = benchmark(kernels.climb, *hits(hit_count), *index, MAX)
    assert len(groups.keys) < hit_count / 3


@pytest.mark.parametrize("hit_count", [100, 1000])
def test_ratio_of_climb_to_its_twin(index, hit_count, report):
    """Kernel and twin run in turn in one process, so a slow period of the machine affects both."""
    arguments = (*hits(hit_count), *index, MAX)
    took = interleaved(
        [
            lambda _: seconds(hrag_fast.climb, arguments, 20_000 // hit_count),
            lambda _: seconds(twins.climb, arguments, 1_000 // hit_count),
        ],
        ROUNDS,
    )
    report.parameters(seed=hit_count, hits=hit_count, leaves=LEAVES)
    key = f"kernels.climb.{hit_count}.ratio_to_twin"
    description = f"climb, speedup over its Python twin, k = {hit_count:,}"
    report.at_least(key, ratio(took, 1, 0), description, "x", MIN_SPEEDUP[hit_count])
    assert report.missed == []


@pytest.mark.parametrize("kernels", [hrag_fast, twins], ids=["kernel", "twin"])
@pytest.mark.parametrize(
    "sentence",
    ["The end of a line, and more. ", "一行的结尾，还有更多。"],
    ids=["English", "Chinese"],
)
def test_boundary_ranks(benchmark, kernels, sentence):
    """The text has 1,000 cuts, one every 4 bytes, which is the mean length of a token."""
    text = (sentence * 1000).encode()
    ends = np.arange(4, 4004, 4, dtype=np.uint32)
    ranks = benchmark(kernels.boundary_ranks, text, ends)
    assert len(set(ranks.tolist())) >= 3


@pytest.fixture(scope="module")
def query():
    """The postings of the query's terms, and the arguments of `best` except the count."""
    random = np.random.default_rng(1)
    ids = np.sort(random.integers(1 << 56, size=len(SHARES_OF_ROWS), dtype=np.uint64))
    has = random.random((ROWS, len(ids))) < SHARES_OF_ROWS
    frequencies = random.integers(1, 5, has.shape).astype(np.uint64)
    starts = np.concatenate([[0], np.cumsum(has.sum(axis=1))])
    buffer = hrag_fast.postings_of(starts, (ids << np.uint64(8) | frequencies)[has], ROWS)
    idf = np.log(1 / np.array(SHARES_OF_ROWS))
    lengths = random.integers(100, 200, ROWS).astype(np.uint32)
    arguments = (ids, (idf / idf.sum()).astype(np.float32), 0.3, 0.006, lengths, None)
    return buffer, arguments


@pytest.mark.parametrize("count", [100, 1000])
def test_ratio_of_bm25_to_its_twin(query, count, report):
    buffer, arguments = query
    kernel, twin = (kernels.Postings(buffer) for kernels in (hrag_fast, twins))
    rows, _ = kernel.best(*arguments, count)
    assert rows.tolist() == twin.best(*arguments, count)[0].tolist()
    took = interleaved(
        [
            lambda _: seconds(kernel.best, (*arguments, count), 20),
            lambda _: seconds(twin.best, (*arguments, count), 1),
        ],
        FEWER_ROUNDS,
    )
    report.parameters(seed=1, rows=ROWS, count=count)
    key = f"kernels.bm25.{count}.ratio_to_twin"
    description = f"BM25, speedup over its Python twin, {ROWS:,} rows, the best {count:,}"
    report.at_least(key, ratio(took, 1, 0), description, "x", MIN_SPEEDUP[count])
    assert report.missed == []


@pytest.mark.parametrize("language", ANALYSED)
def test_ratio_of_analysis_to_its_twin(language, report):
    text = ANALYSED[language]()
    cuts = range(0, len(text), len(text) // ANALYSED_LEAVES)
    leaves = [text[cut : cut + cuts.step] for cut in cuts]
    stem = Stemmer.Stemmer("english", 0).stemWord
    kernel, twin = (kernels.TermExtractor(stem, ascii_only=True) for kernels in (hrag_fast, twins))
    assert kernel.leaf_terms(leaves).entries.tolist() == twin.leaf_terms(leaves).entries.tolist()
    took = interleaved(
        [
            lambda _: seconds(kernel.leaf_terms, (leaves,), 10),
            lambda _: seconds(twin.leaf_terms, (leaves,), 1),
        ],
        FEWER_ROUNDS,
    )
    size_bytes = len(text.encode())
    report.parameters(seed=1, bytes=size_bytes)
    key = f"kernels.analysis.{language.lower()}"
    description = f"analysis of {size_bytes:,} bytes of {language}"
    rate = measured(took[:, 0], lambda rounds: size_bytes / 1e6 / float(np.median(rounds)))
    report.record(f"{key}.rate", rate, f"{description}, in a second", "MB")
    description = f"{description}, speedup over its Python twin"
    report.at_least(f"{key}.ratio_to_twin", ratio(took, 1, 0), description, "x", MIN_SPEEDUP[100])
    assert report.missed == []
