"""Some refusals are logged. Beyond a limit, refusals are only counted."""

import threading
from collections import Counter
from collections.abc import Mapping
from typing import NoReturn

import pytest

from hrag.observe.refusal_limiter import Refusal, RefusalLimiter


def test_of_many_equal_refusals_a_few_are_logged_and_the_others_counted() -> None:
    now, counted = [0.0], Counter[Refusal]()
    limiter = RefusalLimiter(counted.update, lambda: now[0], window_s=3600)
    stranger, tenant = Refusal("UNAUTHENTICATED", "Search", ""), Refusal("RATE", "Search", "1")
    assert [limiter.allows(stranger) for _ in range(1000)].count(True) == 5
    assert limiter.allows(tenant)  # The flood does not suppress lines of another caller.
    limiter.flush()
    assert counted == {stranger: 995}
    now[0] = 3600
    assert limiter.allows(stranger)


def test_the_lines_for_refusals_of_many_credentials_together_are_limited() -> None:
    counted: list[dict[Refusal, int]] = []
    limiter = RefusalLimiter(lambda counts: counted.append(dict(counts)), lambda: 0.0, 3600)
    refusals = [Refusal("RATE", "Search", str(credential)) for credential in range(5000)]
    assert sum(map(limiter.allows, refusals)) == 100
    limiter.flush()
    (counts,) = counted
    assert len(counts) <= 101
    assert sum(counts.values()) == 4900


def test_counts_are_kept_if_the_thread_that_writes_them_cannot_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: Counter[Refusal] = Counter()
    written = threading.Event()

    def write(counts: Mapping[Refusal, int]) -> None:
        counted.update(counts)
        written.set()

    def no_thread(_: threading.Thread) -> NoReturn:
        raise RuntimeError("can't start new thread")

    limiter = RefusalLimiter(write, window_s=0.01)
    refusal = Refusal("TOO_BUSY", "Search", "")
    with monkeypatch.context() as exhausted:
        exhausted.setattr(threading.Timer, "start", no_thread)
        limiter.count(refusal)
    limiter.count(refusal)
    assert written.wait(10)
    assert counted == {refusal: 2}
