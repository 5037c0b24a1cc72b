"""Measures searches in process: one thread, and eight threads at the same time.

A search is what the retriever does for a call, from the request to the encoded reply, without gRPC.
The leaves are in one segment, and queries are vectors. Each thread sends one request after the
other, and all threads search the same reader. The thread switches of Python are as frequent as in
the retriever.

While a search follows links between vectors, another thread may run Python. All other steps hold
Python's global lock (GIL), so eight threads cannot use two cores completely. A missed target is
reported and does not fail the run.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

from benchmarks import corpus
from benchmarks.peers.scale.callers import Callers
from benchmarks.report import interleaved, measured, ratio
from benchmarks.sealed_store import sealed_store
from hrag.types import DEFAULT_LIMIT
from hrag.v1 import retriever_pb2 as pb
from hrag.values.deadline import NEVER
from hrag.wire.encoded_results import encoded_response
from hrag.wire.retriever import search_request
from retriever_svc.search_requests import SearchRequests

LEAVES = 100_000
LEAVES_EACH = 100
DIMENSION = 384
SEED = 41
QUERIES = 2000
ROUND_S = 1.0
ROUNDS = 15
THREADS = (1, 8)
# The retriever's switch interval; see `retriever_svc/app.py`.
SWITCH_S = 0.0002
MIN_RATIO = 1.6


def test_searches_of_eight_threads(report):
    with (
        sealed_store(LEAVES, LEAVES_EACH, DIMENSION, SEED, QUERIES) as (folder, vectors),
        corpus.reading(folder) as reader,
        switch_interval(SWITCH_S),
    ):
        pipeline = corpus.search_over(reader, DIMENSION)
        searches = [corpus.dense_query(vector.tolist()) for vector in vectors]
        requests = [search_request(search).SerializeToString() for search in searches]
        processor_ms = {threads: [] for threads in THREADS}
        parse = SearchRequests()

        def search(request: bytes) -> bytes:
            return encoded_response(pipeline.encoded(parse(request), NEVER))

        def per_second(threads: int, _round: int) -> float:
            began_s = time.process_time()
            load = Callers([search] * threads, requests, ROUND_S)()
            count = len(load.took_s)
            processor_ms[threads].append((time.process_time() - began_s) / count * 1e3)
            return count / load.elapsed_s

        assert len(pb.SearchResponse.FromString(search(requests[0])).passages) == DEFAULT_LIMIT
        measures = [partial(per_second, threads) for threads in THREADS]
        interleaved(measures, 1)  # This is the warm-up.
        rates = interleaved(measures, ROUNDS)
    report.parameters(seed=SEED, leaves=LEAVES, dimension=DIMENSION)
    where = f"in process, {LEAVES:,} x {DIMENSION}, k = {corpus.DENSE_CANDIDATES}"
    for column, threads in enumerate(THREADS):
        name = "one thread" if threads == 1 else f"{threads} threads"
        rate = measured(rates[:, column], np.median)
        report.record(f"threads.{threads}.rate", rate, f"searches {where}, {name}", "calls/s")
        took = measured(np.array(processor_ms[threads][1:]), np.median)
        description = f"search {where}, {name}: processor time"
        report.record(f"threads.{threads}.processor", took, description, "ms")
    description = f"searches a second {where}, {THREADS[1]} threads, ratio to one"
    report.at_least("threads.ratio", ratio(rates, 1, 0), description, "x", MIN_RATIO)


@contextmanager
def switch_interval(seconds: float) -> Iterator[None]:
    """Sets how often Python switches threads, until the context ends."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
