"""What callers who ask at once gain by sharing requests to a model, and what it costs one.

Each caller is a thread that asks for one text after another, as a search's does. The endpoint
is a process of its own that takes 20 ms a request and 0.2 ms more a text, and runs one request
at a time, four, or as many as come; the builtin model is the real one. How long a text is kept
is measured without either: from the moment it is asked for until the model gets it.
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

from benchmarks.report import Figures, Report, interleaved, interleaved_ms, measured, ratio, seconds
from hrag.deadline import NEVER, Deadline
from hrag.embedding import Embedder, Vectors
from hrag.embedding.builtin import BuiltinEmbedder
from hrag.embedding.coalescer import MAX_DELAY_S, CoalescingEmbedder
from hrag.embedding.openai import OpenAIEmbedder
from hrag.endpoint.access import Access

DIMENSION = 384
REQUEST_MS = 20
TEXT_MS = 0.2
CALLERS = 64
TEXTS = 4 * CALLERS  # Of a round.
ROUNDS = 2
CORES = 2
ALONE = 2_000
HELD = 1_000
MOST_HELD_MS = 1.0
SWITCH_S = 0.0005  # As the retriever has it.


@pytest.fixture(autouse=True)
def _threads_take_turns() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    yield
    sys.setswitchinterval(before)


class Counted:
    """Another embedder, whose requests are counted."""

    max_tokens = 8191

    def __init__(self, embedder: Embedder) -> None:
        self.name, self.dimension = embedder.name, embedder.dimension
        self.requests = 0
        self._embedder = embedder

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        self.requests += 1
        return self._embedder.embed(texts, deadline)


class Ready:
    """A model that answers at once, and notes when it got each text."""

    name, dimension, max_tokens = "ready", 1, 8191

    def __init__(self) -> None:
        self.got: dict[str, float] = {}

    def embed(self, texts: Sequence[str], _deadline: Deadline = NEVER) -> Vectors:
        now = time.perf_counter()
        self.got.update((text, now) for text in texts)
        return np.ones((len(texts), 1), np.float32)


@contextmanager
def endpoint(at_once: int) -> Iterator[Embedder]:
    numbers = map(str, (at_once, REQUEST_MS, TEXT_MS, DIMENSION))
    command = [sys.executable, "-m", "benchmarks.model_server", *numbers]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        access = Access(f"http://127.0.0.1:{int(process.stdout.readline())}/v1", "none")
        yield OpenAIEmbedder(model="none", access=access, dimensions=DIMENSION)
        process.stdin.close()


@pytest.mark.parametrize("at_once", [1, 4, CALLERS])
def test_an_endpoint_shared_by_many_callers(at_once, monkeypatch, report):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with endpoint(at_once) as model:
        compare(model, 1, f"endpoint_{at_once}", f"an endpoint that runs {at_once} at once", report)
    assert report.missed == []


def test_the_builtin_model_shared_by_many_callers(report):
    compare(BuiltinEmbedder(), CORES, "builtin", "the builtin model", report)
    assert report.missed == []


def compare(model: Embedder, busy_at: int, name: str, title: str, report: Report) -> None:
    alone, shared = Counted(model), Counted(model)
    asked = [alone, CoalescingEmbedder(shared, busy_at)]
    with ThreadPoolExecutor(CALLERS) as callers:
        measures = [crowd(embedder, callers) for embedder in asked]
        interleaved(measures, 1)
        alone.requests = shared.requests = 0
        cost_ms = [processor_ms(measure) for measure in measures]
        took = interleaved(measures, ROUNDS)
    assert alone.requests == TEXTS * (ROUNDS + 1)
    report.of(callers=CALLERS)
    key, what = f"together.{name}", f"{CALLERS} callers, {title}"
    for place, (how, told) in enumerate((("apart", "each alone"), ("shared", "sharing requests"))):
        rate = measured(took[:, place], lambda rounds: TEXTS / float(np.median(rounds)))
        report.tell(f"{key}.{how}", rate, f"{what}, {told}: texts", "calls/s")
        report.tell(f"{key}.{how}_processor", cost_ms[place], f"{what}, {told}: a text", "ms")
    texts = alone.requests / shared.requests
    report.tell(f"{key}.texts", texts, f"{what}: texts in a shared request", "x")
    gained = ratio(took, 0, 1)
    report.at_least(f"{key}.to_apart", gained, f"{what}: sharing to each alone", "x", 1)


def crowd(embedder: Embedder, callers: ThreadPoolExecutor) -> Callable[[int], float]:
    def ask(number: int) -> None:
        embedder.embed([f"What does clause {number} say about late delivery?"], Deadline.after(60))

    return lambda _: seconds(lambda: list(callers.map(ask, range(TEXTS))))


def processor_ms(measure: Callable[[int], float]) -> float:
    """Of this process, for each text."""
    before = time.process_time()
    measure(0)
    return (time.process_time() - before) / TEXTS * 1e3


def test_what_a_caller_alone_pays(report):
    model = Ready()
    searches = [one(embedder) for embedder in (model, CoalescingEmbedder(model, 1))]
    took_ms = interleaved_ms(searches, ALONE // 10, ALONE)
    for percent in (50, 99):
        more = measured(took_ms, partial(difference, percent))
        what = f"one caller alone pays, p{percent}"
        report.at_most(f"together.alone.p{percent}", more, what, "ms", MOST_HELD_MS)
    assert report.missed == []


def difference(percent: int, took_ms: Figures) -> float:
    own, shared = np.percentile(took_ms, percent, axis=0)
    return float(shared - own)


def one(embedder: Embedder) -> Callable[[int], object]:
    return lambda number: embedder.embed([str(number)])


def test_how_long_a_text_is_kept_for_company(report):
    model, release = Ready(), threading.Event()

    class Busy(Ready):
        def embed(self, texts: Sequence[str], _deadline: Deadline = NEVER) -> Vectors:
            if texts == ["busy"]:
                release.wait()
            return model.embed(texts)

    together = CoalescingEmbedder(Busy(), 1)
    measures = [lambda _: seconds(lambda: time.sleep(MAX_DELAY_S)), kept(together, model)]
    with ThreadPoolExecutor(1) as other:
        other.submit(together.embed, ["busy"])
        took = interleaved(measures, HELD) * 1e3
        release.set()
    report.percentiles("together.sleep", took[:, 0], "a sleep as long as texts are kept")
    for percent in (50, 99):
        figure = measured(took[:, 1], lambda rounds, at=percent: float(np.percentile(rounds, at)))
        what = f"kept for company, p{percent}"
        report.at_most(f"together.kept.p{percent}", figure, what, "ms", MOST_HELD_MS)
    assert np.median(took[:, 1]) <= MOST_HELD_MS  # What else runs is in the p99.


def kept(together: CoalescingEmbedder, model: Ready) -> Callable[[int], float]:
    def until_sent(number: int) -> float:
        asked_at = time.perf_counter()
        together.embed([str(number)])
        return model.got[str(number)] - asked_at

    return until_sent
