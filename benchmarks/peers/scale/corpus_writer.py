"""Writes a corpus of one size. Only a part of the vectors is in memory at a time."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks import corpus as seeded
from benchmarks.peers.scale import corpus as files
from benchmarks.peers.vectors import DIMENSION

SEED = 107
QUERY_COUNT = 500
_LEAVES_EACH = 100
_LEAVES_PER_TOPIC = 100
# The number of vectors that are generated at a time. They take 100 MB.
_ROWS_AT_ONCE = 50_000


def write_corpus(folder: Path, leaf_count: int, dimension: int = DIMENSION) -> int:
    """Writes a corpus of at least `leaf_count` leaves; returns the count of its leaves."""
    bodies = seeded.bodies(_LEAVES_EACH)
    documents = range(len(seeded.first_rows(leaf_count, _LEAVES_EACH)))
    count = sum(bodies[number % len(bodies)].leaf_count for number in documents)
    _write_texts(folder, documents)
    trees = [np.frombuffer(body.tree.to_bytes(), np.uint8) for body in bodies]
    np.savez(folder / files.TREES, *trees)
    vectors = _write_vectors(folder / files.VECTORS, count, dimension)
    queries = seeded.queries_near(vectors, QUERY_COUNT, SEED + 1)
    np.save(folder / files.QUERIES, queries)
    np.save(folder / files.NEAREST, np.array(seeded.nearest_10(vectors, queries)))
    return count


def _write_texts(folder: Path, numbers: range) -> None:
    with (folder / files.TEXTS).open("wb") as file:
        for text in seeded.varied_texts(_LEAVES_EACH, SEED, numbers):
            file.write(text.encode("ascii"))
        total_bytes = file.tell()
    about = {"text_bytes": total_bytes // len(numbers)}
    (folder / files.ABOUT).write_text(json.dumps(about), "utf-8")


def _write_vectors(path: Path, count: int, dimension: int) -> NDArray[np.float32]:
    """Writes the vectors to a file; returns them, mapped from the file."""
    written = np.lib.format.open_memmap(path, "w+", np.float32, (count, dimension))
    start = 0
    for rows in vector_parts(count, _ROWS_AT_ONCE, dimension):
        written[start : start + len(rows)] = rows
        start += len(rows)
    written.flush()
    mapped: NDArray[np.float32] = np.load(path, mmap_mode="r")
    return mapped


def vector_parts(
    count: int, rows_at_once: int, dimension: int = DIMENSION
) -> Iterator[NDArray[np.float32]]:
    """Yields `count` clustered unit vectors in parts. All parts share their topics."""
    random = np.random.default_rng(SEED)
    topics = random.standard_normal((-(-count // _LEAVES_PER_TOPIC), dimension), np.float32)
    for start in range(0, count, rows_at_once):
        rows = min(rows_at_once, count - start)
        yield seeded.clustered_vectors(rows, dimension, SEED + 2 + start, topics)
