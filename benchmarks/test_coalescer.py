"""Measures what the coalescer changes: throughput of many callers, and latency of a single one.

Each caller is a thread that embeds one text after another, as the thread of a search does. The
endpoint runs in another process. It takes 20 ms for a request, and 0.2 ms more for each text. It
runs one, four or 64 requests at the same time. The delay of a text is measured without the
endpoint: from the call until the model receives the text.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest

from benchmarks.report import Report, Samples, interleaved, interleaved_ms, measured, ratio, seconds
from hrag.models.embedding import Embedder, Vectors
from hrag.models.embedding.coalescer import MAX_DELAY_S, CoalescingEmbedder
from hrag.models.embedding.openai_embedder import OpenAIEmbedder
from hrag.models.endpoint.endpoint_access import EndpointAccess
from hrag.values.deadline import NEVER, Deadline

DIMENSION = 384
REQUEST_MS = 20
TEXT_MS = 0.2
CALLERS = 64
# The number of texts in a round.
TEXTS = 4 * CALLERS
ROUNDS = 2
SINGLE_ROUNDS = 2_000
DELAY_ROUNDS = 1_000
MAX_DELAY_MS = 1.0
# The retriever has the same switch interval.
SWITCH_S = 0.0002


@pytest.fixture(autouse=True)
def _switch_interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    yield
    sys.setswitchinterval(before)


class CountingEmbedder:
    """An embedder that counts the requests to another embedder."""

    max_tokens = 8191

    def __init__(self, embedder: Embedder) -> None:
        self.name, self.dimension = embedder.name, embedder.dimension
        self.lowest_cosine = embedder.lowest_cosine
        self.requests = 0
        self._embedder = embedder

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        self.requests += 1
        return self._embedder.embed(texts, deadline)


class InstantEmbedder:
    """An embedder that returns at once, and records when it received each text."""

    name, dimension, max_tokens = "instant", 1, 8191
    lowest_cosine = -1.0

    def __init__(self) -> None:
        self.received: dict[str, float] = {}

    def embed(self, texts: Sequence[str], _deadline: Deadline = NEVER) -> Vectors:
        now = time.perf_counter()
        self.received.update((text, now) for text in texts)
        return np.ones((len(texts), 1), np.float32)


@contextmanager
def endpoint(concurrency: int) -> Iterator[Embedder]:
    """Runs `benchmarks.model_server` and yields an embedder that calls it."""
    numbers = map(str, (concurrency, REQUEST_MS, TEXT_MS, DIMENSION))
    command = [sys.executable, "-m", "benchmarks.model_server", *numbers]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        access = EndpointAccess(f"http://127.0.0.1:{int(process.stdout.readline())}/v1", "none")
        yield OpenAIEmbedder(model="none", access=access, dimensions=DIMENSION)
        process.stdin.close()


@pytest.mark.parametrize("concurrency", [1, 4, CALLERS])
def test_an_endpoint_shared_by_many_callers(concurrency, monkeypatch, report):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with endpoint(concurrency) as model:
        title = f"endpoint of concurrency {concurrency}"
        compare(model, f"endpoint_{concurrency}", title, report)
    assert report.missed == []


def compare(model: Embedder, name: str, title: str, report: Report) -> None:
    """Measures many callers of a model with and without the coalescer."""
    direct, coalesced = CountingEmbedder(model), CountingEmbedder(model)
    embedders = [direct, CoalescingEmbedder(coalesced, 1)]
    with ThreadPoolExecutor(CALLERS) as callers:
        measures = [crowd(embedder, callers) for embedder in embedders]
        interleaved(measures, 1)
        direct.requests = coalesced.requests = 0
        cpu_ms = [cpu_ms_per_text(measure) for measure in measures]
        took = interleaved(measures, ROUNDS)
    assert direct.requests == TEXTS * (ROUNDS + 1)
    report.parameters(callers=CALLERS)
    key, description = f"coalescer.{name}", f"{CALLERS} callers, {title}"
    for column, kind in enumerate(("direct", "coalesced")):
        title = "with coalescer" if column else "without coalescer"
        rate = measured(took[:, column], lambda rounds: TEXTS / float(np.median(rounds)))
        report.record(f"{key}.{kind}.rate", rate, f"{description}, {title}: texts", "calls/s")
        cpu = f"{description}, {title}: CPU time per text"
        report.record(f"{key}.{kind}.cpu", cpu_ms[column], cpu, "ms")
    batch_size = direct.requests / coalesced.requests
    report.record(f"{key}.batch_size", batch_size, f"{description}: texts per request", "x")
    description = f"{description}: texts a second with coalescer, ratio to without"
    report.at_least(f"{key}.ratio", ratio(took, 0, 1), description, "x", 1)


def crowd(embedder: Embedder, callers: ThreadPoolExecutor) -> Callable[[int], float]:
    """Returns a measure: the seconds in which all callers together embed TEXTS texts."""

    def embed(number: int) -> None:
        embedder.embed([f"What does clause {number} say about late delivery?"], Deadline.after(60))

    return lambda _: seconds(lambda: list(callers.map(embed, range(TEXTS))))


def cpu_ms_per_text(measure: Callable[[int], float]) -> float:
    """Returns this process's milliseconds of CPU time per text."""
    before = time.process_time()
    measure(0)
    return (time.process_time() - before) / TEXTS * 1e3


def test_latency_of_a_single_caller(report):
    model = InstantEmbedder()
    searches = [embed_one(embedder) for embedder in (model, CoalescingEmbedder(model, 1))]
    took_ms = interleaved_ms(searches, SINGLE_ROUNDS // 10, SINGLE_ROUNDS)
    for percent in (50, 99):
        added = measured(took_ms, partial(difference, percent))
        description = f"coalescer, latency added to a single caller, p{percent}"
        report.at_most(
            f"coalescer.single_caller.p{percent}", added, description, "ms", MAX_DELAY_MS
        )
    assert report.missed == []


def difference(percent: int, took_ms: Samples) -> float:
    """Returns the percentile with the coalescer minus the percentile without it."""
    direct, coalesced = np.percentile(took_ms, percent, axis=0)
    return float(coalesced - direct)


def embed_one(embedder: Embedder) -> Callable[[int], object]:
    """Returns a function that embeds one text."""
    return lambda number: embedder.embed([str(number)])


def test_delay_of_a_text(report):
    model, release = InstantEmbedder(), threading.Event()

    class Busy(InstantEmbedder):
        def embed(self, texts: Sequence[str], _deadline: Deadline = NEVER) -> Vectors:
            if texts == ["busy"]:
                release.wait()
            return model.embed(texts)

    coalescer = CoalescingEmbedder(Busy(), 1)
    measures = [lambda _: seconds(lambda: time.sleep(MAX_DELAY_S)), delay(coalescer, model)]
    with ThreadPoolExecutor(1) as executor:
        executor.submit(coalescer.embed, ["busy"])
        took = interleaved(measures, DELAY_ROUNDS) * 1e3
        release.set()
    report.percentiles("coalescer.sleep", took[:, 0], "sleep of MAX_DELAY_S")
    for percent in (50, 99):
        figure = measured(took[:, 1], lambda rounds, at=percent: float(np.percentile(rounds, at)))
        description = f"coalescer, delay of a text, p{percent}"
        report.at_most(f"coalescer.delay.p{percent}", figure, description, "ms", MAX_DELAY_MS)
    # The p99 includes delays by other processes, so only the median is asserted.
    assert np.median(took[:, 1]) <= MAX_DELAY_MS


def delay(coalescer: CoalescingEmbedder, model: InstantEmbedder) -> Callable[[int], float]:
    """Returns a measure: the seconds from the call until the model receives the text."""

    def one_text(number: int) -> float:
        began = time.perf_counter()
        coalescer.embed([str(number)])
        return model.received[str(number)] - began

    return one_text
