"""A kernel that gets no memory raises MemoryError, and can be called again in the same process.

Each case runs in a new process, whose address space is limited after its arrays are allocated.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.parameters import slow

ROOT = Path(__file__).resolve().parents[3]
POSTINGS = """
from hrag_fast import Postings, forward_matches, postings_of, write_postings

ROWS = 1_000_000  # All rows have the terms 2 and 3. One row in five also has the term 1.
has = np.ones((ROWS, 3), bool)
has[:, 0] = np.arange(ROWS) % 5 == 0
starts = np.concatenate([[0], np.cumsum(has.sum(axis=1))])
entries = np.broadcast_to(np.array([257, 513, 769], np.uint64), has.shape)[has]
postings = Postings(postings_of(starts, entries, ROWS))
ids = np.array([2, 3], np.uint64)
query = ids, np.array([0.5, 0.5], np.float32), 0.3, 0.01, np.ones(ROWS, np.uint32)
rows = np.arange(ROWS, dtype=np.uint32)
path = pathlib.Path(sys.argv[1])
"""
LABELS = """
from hrag_fast import rows_of_documents

labels = np.arange(4_000_000, dtype=np.uint64) << np.uint64(20)
ordinals = np.array([0, 15_000_000], np.uint64)
"""
MODEL = """
from hrag.models.embedding.builtin_weights import load

tokenizer, encoder = load()
text = "word " * 100_000
ids, starts = tokenizer.encode([text[:25_000]])
"""
GRAPH = """
import hnswlib
from hrag_fast import DenseSearch, Graph, SegmentVectors

ITEMS = 20_000
numbers = np.random.default_rng(5).standard_normal((ITEMS, 4)).astype(np.float32)
numbers /= np.linalg.norm(numbers, axis=1, keepdims=True)
index = hnswlib.Index("ip", 4)
index.init_index(ITEMS, M=4, ef_construction=10)
index.add_items(numbers, num_threads=1)
index.save_index(sys.argv[1])
graph = Graph(pathlib.Path(sys.argv[1]).read_bytes())
items = np.tile(np.arange(ITEMS, dtype=np.uint32), 5)
none = np.empty(0, np.uint32)
vectors = SegmentVectors(graph, items[:ITEMS], none, none, 10)
labels, alive = np.arange(ITEMS, dtype=np.uint64), np.ones(ITEMS, np.uint8)
dense = DenseSearch(numbers[0], [vectors], numbers[:0], alive, ITEMS, ITEMS, 0)

def dense_climb():
    found, groups = dense.climb(ITEMS // 2, labels, items[:ITEMS], 0)
    return [*found[:2], *groups]
"""
LIMIT = """
import pathlib, resource, sys
import numpy as np
{prepare}
_, unlimited = resource.getrlimit(resource.RLIMIT_AS)

def limit(size_bytes):
    resource.setrlimit(resource.RLIMIT_AS, (size_bytes, unlimited))

def limit_to_spare(size_bytes):
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
    limit(pages * resource.getpagesize() + size_bytes)
"""
RUN = """
def call():
    return {call}

limit_to_spare({spare_bytes})
try:
    call()
except MemoryError as error:
    assert type(error) is MemoryError, "numpy raised it, not the kernel"
else:
    sys.exit("there was enough memory")
limit(unlimited)
{then}
"""
RUN_WITH_INCREASING_MEMORY = """
def call():
    return {call}

search = graph.search(numbers[0], 10)
expected = call()
result, spare_bytes = None, 0
while result is None:
    search = graph.search(numbers[0], 10)
    limit_to_spare(spare_bytes)
    try:
        result = call()
    except MemoryError:
        spare_bytes += {step_bytes}
    limit(unlimited)
    assert all(map(np.array_equal, result or call(), expected))
assert spare_bytes >= {least_steps} * {step_bytes}, spare_bytes
"""
CALLS = {
    "best": (POSTINGS, "postings.best(*query, None, ROWS)"),
    "best and scores": (POSTINGS, "postings.best_and_scores(*query, None, ROWS, rows)"),
    "rows_with_all": (POSTINGS, "postings.rows_with_all(ids)"),
    "forward_matches": (POSTINGS, "forward_matches(starts, entries, 0, ROWS, ids)"),
    "postings_of": (POSTINGS, "postings_of(starts, entries, ROWS)"),
    "rows_of_documents": (LABELS, "rows_of_documents(labels, ordinals)"),
    "documents far apart": (LABELS, "rows_of_documents(labels[:1_000_000], ordinals)"),
    "tokens": (MODEL, "tokenizer.encode([text])"),
    "vectors": (MODEL, "encoder.encode(ids, starts)"),
}
GRAPH_CALLS = {
    "best": "graph.best(numbers[0], items, 10)",
    "best of few": "graph.best(numbers[0], items, len(items) // 4)",
    "dense": "dense_climb()",
    "nearest": "search.nearest(ITEMS)",
    "nearest, deeper": "[search.nearest(count) for count in (10, ITEMS)][-1]",
}
STEP_BYTES = 1 << 14  # After each failure, the call gets this much more memory.
# A call must fail at least this often: it needs 0.6 MB or more, in many blocks.
LEAST_STEPS = 20
LONG_QUERY = """
ids = np.arange(54_000, dtype=np.int32)
starts = np.array([0, len(ids)])
limit_to_spare(50_000_000)
encoder.encode(ids, starts)
"""
# A call gets this much memory. It is enough for small objects and for 4 bytes per row, but not for
# 8 bytes per row.
SPARE_BYTES = 5_000_000
NO_POSTINGS = """
try:
    Postings(path.read_bytes())
except ValueError:
    sys.exit()
sys.exit("the file has valid postings")
"""


def run(prepare, call, then, path):
    """Asserts that the call raises MemoryError in a new process, and that `then` succeeds later.

    `prepare`, `call` and `then` are Python code. `path` is the argument of the process.
    """
    run_limited(prepare, RUN.format(call=call, then=then, spare_bytes=SPARE_BYTES), path)


def run_limited(prepare, script, path):
    """Asserts that a new process runs `prepare` and `script` to the end and writes no error."""
    script = LIMIT.format(prepare=prepare) + script
    # Large blocks come from the system, not from memory that was freed before.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script, path],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


_FIRST_CALL, *_OTHER_CALLS = CALLS
_FIRST_GRAPH_CALL, *_OTHER_GRAPH_CALLS = GRAPH_CALLS


@pytest.mark.parametrize("name", [_FIRST_CALL, *slow(*_OTHER_CALLS)])
def test_kernels_without_memory_raise_memory_error_and_can_be_called_again(name, tmp_path):
    run(*CALLS[name], "call()", tmp_path / "unused")


def test_a_query_of_32_kb_is_encoded_in_50_mb(tmp_path):
    """A query of 32 KB has up to 54,000 tokens, if all its characters are U+FDFA."""
    run_limited(MODEL, LONG_QUERY, tmp_path / "unused")


def test_a_merge_that_got_no_memory_leaves_a_file_without_valid_postings(tmp_path):
    path = tmp_path / "merged"
    run(POSTINGS, "write_postings(path, [(postings, rows)])", NO_POSTINGS, path)
    assert path.stat().st_size > 0


@pytest.mark.parametrize("name", [_FIRST_GRAPH_CALL, *slow(*_OTHER_GRAPH_CALLS)])
def test_a_graph_raises_memory_error_at_each_allocation_and_then_finds_the_same_items(
    name, tmp_path
):
    """Each call has 16 KB more memory than the last one, until it succeeds.

    A search can continue after a failure.
    """
    script = RUN_WITH_INCREASING_MEMORY.format(
        call=GRAPH_CALLS[name], step_bytes=STEP_BYTES, least_steps=LEAST_STEPS
    )
    run_limited(GRAPH, script, tmp_path / "index")
