"""Kernels that get no memory: they raise MemoryError, and the process goes on.

Each case runs in a process of its own, whose address space is limited once its arrays exist.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
POSTINGS = """
from hrag_fast import Postings, forward_matches, postings_of, write_postings

ROWS = 1_000_000  # All have the terms 2 and 3, one in five has 1 too.
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
MODEL = """
from hrag.embedding.builtin_weights import load

tokenizer, encoder = load()
text = "word " * 100_000
ids, starts = tokenizer.encode([text[:25_000]])
"""
RUN = """
import pathlib, resource, sys
import numpy as np
{prepare}
_, unlimited = resource.getrlimit(resource.RLIMIT_AS)

def limit(size_bytes):
    resource.setrlimit(resource.RLIMIT_AS, (size_bytes, unlimited))

def call():
    return {call}

pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
limit(pages * resource.getpagesize() + {spare_bytes})
try:
    call()
except MemoryError as error:
    assert type(error) is MemoryError, "numpy's own"
else:
    sys.exit("there was enough memory")
limit(unlimited)
{then}
"""
CALLS = {
    "best": (POSTINGS, "postings.best(*query, None, ROWS)"),
    "scores": (POSTINGS, "postings.scores(*query, rows)"),
    "rows_with_all": (POSTINGS, "postings.rows_with_all(ids)"),
    "forward_matches": (POSTINGS, "forward_matches(starts, entries, 0, ROWS, ids)"),
    "postings_of": (POSTINGS, "postings_of(starts, entries, ROWS)"),
    "tokens": (MODEL, "tokenizer.encode([text])"),
    "vectors": (MODEL, "encoder.encode(ids, starts)"),
}
SPARE_BYTES = 5_000_000  # For small objects and for `scores`' result, not for 8 bytes a row.
NO_POSTINGS = """
try:
    Postings(path.read_bytes())
except ValueError:
    sys.exit()
sys.exit("the file holds postings")
"""


def run(prepare, call, then, path):
    """Asserts that the call raises MemoryError in a new process, and that the rest succeeds."""
    script = RUN.format(prepare=prepare, call=call, then=then, spare_bytes=SPARE_BYTES)
    # Large blocks come from the system, not from what was freed before.
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


@pytest.mark.parametrize("name", CALLS)
def test_kernels_without_memory_raise_and_can_be_called_again(name, tmp_path):
    run(*CALLS[name], "call()", tmp_path / "unused")


def test_a_file_whose_merge_got_no_memory_holds_no_postings(tmp_path):
    path = tmp_path / "merged"
    run(POSTINGS, "write_postings(path, [(postings, rows)])", NO_POSTINGS, path)
    assert path.stat().st_size > 0
