"""A collection of millions of leaves on one machine: the resources it needs, and its limits.

    python -m benchmarks.one_machine FOLDER --leaves 1000000,5000000 --dimension 128

The program grows one collection from size to size in an empty folder on a disk. At each size it
measures three things and prints them as lines of JSON:

- It measures the bulk load. Documents are committed without maintenance. Then one segment is built,
  which resumes from the segment of the previous size.
- It measures the retriever: its memory, the searches of one caller, and their recall. It also
  measures the time from a start, with no file in the page cache, to serving and to the first
  response.
- With `--merge`, it streams an eighth more leaves, committed as the indexer commits them. The
  stream ends in a merge with the largest segment. Meanwhile a caller searches at a rate that leaves
  the cores to the merge.

Searches are by vector, through gRPC, with default settings. Five million leaves of 128 dimensions
and a merge took 20 GB of memory, 15 GB of disk and 50 minutes on two cores.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import AbstractContextManager, closing
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

import grpc
import numpy as np

from benchmarks import corpus
from benchmarks.engines import bytes_on_disk, commit
from benchmarks.machine import machine
from benchmarks.report import Samples, seconds
from hrag.cli.processes import RETRIEVER
from hrag.client.calls import channel_options
from hrag.engine import CollectionHandle, PreparedDocument, Writer
from hrag.engine.embedded.maintenance import build_plan, merge_policy, segment_build
from hrag.engine.embedded.store import environment
from hrag.errors import CollectionNotFound
from hrag.models.embedding import Vectors
from hrag.types import SearchMode
from hrag.v1 import retriever_pb2 as pb
from hrag.wire.retriever import search_request
from tests.endurance.processes import memory_of, memory_of_pid
from tests.support.servers.processes import Process, fresh, started

SEED = 101
LEAVES_EACH = 100
BATCH_LEAVES = 100_000
SEGMENT_MIN_LEAVES = 8192  # The default of HRAG_SEGMENT_MIN_LEAVES.
# A transaction of the bulk load has this many documents.
LOADED_AT_ONCE = 64
QUERIES_PER_BATCH = 20
WARM_UP = 200
# The caller makes this many searches a second during a merge.
PACED = 20.0
NICENESS = 10  # The default of HRAG_INDEXER_NICENESS.
START_S = 900.0
CALL_S = 60.0
METHOD = "/hrag.v1.RetrieverService/Search"
MEMORY_BYTES = str(1 << 40)
# Two cosines are treated as equal if they differ by at most this value.
TOLERANCE = 1e-5

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A bulk load: the leaves added, and the seconds to commit them and to build the segment."""

    leaves: int
    commit_s: float
    build_s: float


@dataclass(frozen=True, slots=True)
class Served:
    """The retriever with one segment: its start, its memory, and searches of one caller."""

    serving_s: float
    response_s: float
    anon_bytes: int
    p50_ms: float
    p99_ms: float
    recall: float


@dataclass(frozen=True, slots=True)
class Merged:
    """Searches while leaves are streamed and merged.

    `merge_s` counts from the last commit until the merge has ended.
    """

    leaves: int
    stream_s: float
    merge_s: float
    p50_ms: float
    p99_ms: float
    most_ms: float
    retriever_bytes: int
    builder_bytes: int


# These functions make the corpus.


def documents_of(batchs: range, dimension: int) -> Iterator[PreparedDocument]:
    """Yields the documents of these batchs of the corpus. All ids are different."""
    for batch in batchs:
        for document in _batch(batch, dimension)[0]:
            yield replace(document, document_id=f"{batch}-{document.document_id}")


def batch_vectors(batch: int, dimension: int) -> Vectors:
    """Returns the vectors of one batch of the corpus, which is a group of documents."""
    return _batch(batch, dimension)[1]


def _batch(batch: int, dimension: int) -> tuple[Iterator[PreparedDocument], Vectors]:
    return corpus.documents(BATCH_LEAVES, LEAVES_EACH, dimension, SEED + batch)


def queries_and_bounds(batchs: int, dimension: int) -> tuple[Vectors, Samples]:
    """Returns queries near leaves of at least ten batchs, and the tenth best cosine of each query.

    A leaf is one of the ten nearest to a query if its cosine is at least this bound.
    """
    queries_of_batchs = [
        corpus.queries_near(batch_vectors(batch, dimension), QUERIES_PER_BATCH, SEED + batch)
        for batch in range(0, batchs, max(1, batchs // 10))
    ]
    queries = np.concatenate(queries_of_batchs)
    best = np.full((len(queries), 10), -1, np.float32)
    for batch in range(batchs):
        scores = queries @ batch_vectors(batch, dimension).T
        scores = np.concatenate([best, scores], axis=1)
        best = -np.partition(-scores, 9, axis=1)[:, :10]
    return queries, best.min(axis=1)


# These functions write the store. Each call runs in a new process.


def load(folder: Path, batchs: range, dimension: int) -> Loaded:
    """Commits documents without maintenance and builds one segment of all leaves."""
    with corpus.engine(folder) as engine:
        writer = engine.writer()
        collection = collection_of(writer, dimension)
        before = writer.status(collection).leaf_count
        documents = documents_of(batchs, dimension)
        commit_s = seconds(lambda: commit(writer, collection, documents, LOADED_AT_ONCE))
        leaves = writer.status(collection).leaf_count - before
    with closing(environment.open_for_writing(folder)) as store:
        (number,) = segment_build.all_collections(store)
        plan = build_plan.seal_plan(store, number, threshold=1)
        assert plan is not None
        build_s = seconds(lambda: segment_build.build(store, plan))
    return Loaded(leaves, commit_s, build_s)


def stream(folder: Path, batchs: range, dimension: int) -> tuple[int, float, float]:
    """Commits documents while maintenance runs.

    Returns the count of leaves added, the seconds of the commits, and the seconds from the last
    commit until all leaves are merged.
    """
    os.nice(NICENESS)
    with corpus.engine(folder, segment_min_leaves=SEGMENT_MIN_LEAVES) as engine:
        writer = engine.writer()
        collection = collection_of(writer, dimension)
        before = writer.status(collection).leaf_count
        engine.maintenance().start()
        documents = documents_of(batchs, dimension)
        stream_s = seconds(lambda: commit(writer, collection, documents))
        leaves = writer.status(collection).leaf_count - before
        merge_s = seconds(lambda: wait_until_merged(writer, collection))
        return leaves, stream_s, merge_s


def collection_of(writer: Writer, dimension: int) -> CollectionHandle:
    """Opens the collection, or creates it if there is none; returns its handle."""
    try:
        return writer.open(corpus.TENANT, corpus.COLLECTION)
    except CollectionNotFound:
        return corpus.create_collection(writer, dimension)


def wait_until_merged(writer: Writer, collection: CollectionHandle) -> None:
    """Waits until the tail is too short for a segment and no merge is due."""
    while True:
        status = writer.status(collection).embedded
        assert status is not None
        stats = [merge_policy.SegmentStats(segment.leaf_count) for segment in status.segments]
        is_short = status.tail_leaf_count < SEGMENT_MIN_LEAVES
        if is_short and merge_policy.plan_merge(stats) is None:
            return
        time.sleep(0.5)


# These functions measure the store and the retriever.


def in_new_process(
    between: Callable[[], object], function: Callable[..., Result], *arguments: object
) -> tuple[Result, int]:
    """Calls a function in a new process; returns its result and the peak memory of the process.

    Calls `between` again and again until the function returns.
    """
    peak_bytes = 0
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        pid = pool.submit(os.getpid).result()
        running: Future[Result] = pool.submit(function, *arguments)
        while not running.done():
            between()
            peak_bytes = max(peak_bytes, memory_of_pid(pid).anon_bytes)
        return running.result(), peak_bytes


def forget_files(folder: Path) -> None:
    """Removes the files from the page cache, so that they are read from the disk again."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


class Caller:
    """A caller of a retriever, which sends its requests in turn, again and again."""

    def __init__(self, channel: grpc.Channel, queries: Vectors, mode: SearchMode) -> None:
        self._send: Callable[..., bytes] = channel.unary_unary(METHOD)
        searches = [corpus.dense_query(query.tolist(), mode) for query in queries]
        self._requests = [
            search_request(replace(search, limit=10)).SerializeToString() for search in searches
        ]
        self._next = 0
        self.took_ms: list[float] = []

    def search(self) -> list[float]:
        """Searches with the next query and returns the scores of the passages."""
        request = self._requests[self._next % len(self._requests)]
        self._next += 1
        began = time.perf_counter()
        reply = self._send(request, timeout=CALL_S)
        self.took_ms.append(1e3 * (time.perf_counter() - began))
        return [passage.score for passage in pb.SearchResponse.FromString(reply).passages]

    def paced(self) -> None:
        """Searches, then waits until the next search is due."""
        due = time.perf_counter() + 1 / PACED
        self.search()
        time.sleep(max(0.0, due - time.perf_counter()))


def started_retriever(folder: Path, dimension: int) -> AbstractContextManager[Process]:
    """Starts a new retriever on the folder; the context manager stops it."""
    settings = {"HRAG_EMBEDDER": f"hash:{dimension}", "HRAG_MEMORY_BYTES": MEMORY_BYTES}
    return started(RETRIEVER, folder, {**settings, "HRAG_LOG_LEVEL": "info"}, start=fresh)


def serve(folder: Path, dimension: int, queries: Vectors, bounds: Samples) -> Served:
    """Starts the retriever and measures it. `bounds` come from `queries_and_bounds`."""
    forget_files(folder)
    began = time.perf_counter()
    with started_retriever(folder, dimension) as process:
        process.wait_until_serving(START_S)
        serving_s = time.perf_counter() - began
        with connected(process) as channel:
            leaves = Caller(channel, queries, SearchMode.STANDARD)
            scores = [leaves.search()]
            response_s = time.perf_counter() - began
            scores += [leaves.search() for _ in queries[1:]]
            caller = Caller(channel, queries, SearchMode.SMALL_TO_BIG)
            for _ in range(WARM_UP):
                caller.search()
            caller.took_ms.clear()
            for _ in range(5 * len(queries)):
                caller.search()
        p50, p99 = np.percentile(caller.took_ms, (50, 99)).tolist()
        recalls = [
            np.count_nonzero(np.array(query_scores) >= bound - TOLERANCE) / 10
            for query_scores, bound in zip(scores, bounds, strict=True)
        ]
        memory = memory_of(process).anon_bytes
    return Served(serving_s, response_s, memory, p50, p99, float(np.mean(recalls)))


def connected(process: Process) -> grpc.Channel:
    return grpc.insecure_channel(process.address, channel_options(process.address))


def merge(folder: Path, batchs: range, dimension: int, queries: Vectors) -> Merged:
    """Streams leaves until they are merged, and searches meanwhile."""
    retriever_bytes = 0
    with started_retriever(folder, dimension) as process:
        process.wait_until_serving(START_S)
        with connected(process) as channel:
            caller = Caller(channel, queries, SearchMode.SMALL_TO_BIG)
            for _ in range(WARM_UP):
                caller.search()
            caller.took_ms.clear()

            def between() -> None:
                nonlocal retriever_bytes
                caller.paced()
                retriever_bytes = max(retriever_bytes, memory_of(process).anon_bytes)

            streamed, builder_bytes = in_new_process(between, stream, folder, batchs, dimension)
            # Meanwhile the retriever loads the merged segment.
            for _ in range(int(10 * PACED)):
                between()
    p50, p99, largest = np.percentile(caller.took_ms, (50, 99, 100)).tolist()
    return Merged(*streamed, p50, p99, largest, retriever_bytes, builder_bytes)


def show(kind: str, values: Loaded | Served | Merged, **more: float) -> None:
    """Prints measurements as one line of JSON."""
    print(json.dumps({"what": kind, **asdict(values), **more}), flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Grows the collection from size to size and measures it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="an empty or new folder, on a disk")
    parser.add_argument(
        "--leaves",
        default="1000000,5000000",
        help="sizes in leaves, ascending, separated by commas",
    )
    parser.add_argument("--dimension", type=int, default=128)
    parser.add_argument("--merge", default="5000000", help="sizes at which a merge is measured")
    options = parser.parse_args(arguments)
    folder: Path = options.folder
    folder.mkdir(exist_ok=True)
    print(json.dumps(machine()), flush=True)
    batchs = 0
    for size in map(int, options.leaves.split(",")):
        until = -(-size // BATCH_LEAVES)
        loaded, builder_bytes = in_new_process(
            lambda: time.sleep(1), load, folder, range(batchs, until), options.dimension
        )
        batchs = until
        show("loaded", loaded, builder_bytes=builder_bytes, disk_bytes=bytes_on_disk(folder))
        queries, bounds = queries_and_bounds(batchs, options.dimension)
        show("served", serve(folder, options.dimension, queries, bounds), leaves=size)
        if str(size) in options.merge.split(","):
            until = batchs + -(-batchs // 8) + 1
            added = range(batchs, until)
            show("merged", merge(folder, added, options.dimension, queries))
            batchs = until


if __name__ == "__main__":
    main()
