"""The rate limiter admits or refuses calls by the time of a clock, which is fake here."""

import threading
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.errors import RateQuotaExceeded
from hrag.server.calls.rate_limiter import RateLimiter
from hrag.values.quotas import Quota, unlimited

SECOND = 1_000_000_000


class Clock:
    """A fake clock in nanoseconds."""

    def __init__(self) -> None:
        self.now = 12_345_678_901_234_567

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def _limiter(
    clock: Clock, per_s: float | None, burst: int | None = None, max_tenants: int = 100
) -> RateLimiter:
    return RateLimiter(lambda _tenant: Quota(calls_per_s=per_s, burst=burst), clock, max_tenants)


def _admitted(limiter: RateLimiter, tenant: str = "a", limit: int = 1000) -> int:
    """Returns how many calls are admitted before the first refusal, at most `limit`."""
    return next(
        count for count in range(limit + 1) if count == limit or limiter.try_acquire([tenant])
    )


@pytest.mark.parametrize(
    ("per_s", "burst", "burst_calls"),
    [
        (3, None, 3),
        (3, 10, 10),
        (0.5, None, 1),
        (0.1, 2, 2),
        (1e6, 7, 7),
        (7, 1, 1),
        (2.5, None, 3),
    ],
)
def test_the_burst_is_admitted_and_then_exactly_the_rate(clock, per_s, burst, burst_calls):
    limiter = _limiter(clock, per_s, burst)
    assert _admitted(limiter) == burst_calls
    interval = round(SECOND / per_s)
    for _ in range(5):
        clock.now += interval - 1
        assert _admitted(limiter) == 0
        clock.now += 1
        assert _admitted(limiter) == 1
    clock.now += 1000 * SECOND
    assert _admitted(limiter) == burst_calls


def test_the_reported_wait_is_exact(clock):
    limiter = _limiter(clock, 3, 5)
    _admitted(limiter)
    clock.now += 100
    wait_ns = round(limiter.try_acquire(["a"]).retry_s * SECOND)
    assert wait_ns == 333_333_333 - 100
    clock.now += wait_ns - 1
    assert limiter.try_acquire(["a"]) is not None
    clock.now += 1
    assert limiter.try_acquire(["a"]) is None


@pytest.mark.parametrize(("before", "after"), [(0.01, 500), (500, 0.01), (3, 7)])
def test_a_tenant_owes_as_many_calls_after_its_rate_changes_as_before(clock, before, after):
    """After its rate is raised, a tenant does not wait as long as it would have at the old rate."""
    rate = before
    limiter = RateLimiter(lambda _tenant: Quota(calls_per_s=rate, burst=60), clock)
    assert _admitted(limiter) == 60
    rate = after
    assert _admitted(limiter) == 0
    clock.now += round(2 * SECOND / after)
    assert _admitted(limiter) == 2


def test_a_refusal_names_tenant_limit_settings_and_wait(clock):
    limiter = _limiter(clock, 0.5, 1)
    limiter.try_acquire(["acme"])
    refusal = limiter.try_acquire(["acme"])
    assert isinstance(refusal, RateQuotaExceeded)
    assert (refusal.field, refusal.tenant_id, refusal.retry_s) == ("calls", "acme", 2.0)
    for part in ("'acme'", "0.5 calls a second", "burst 1", "retry in 2.000 s"):
        assert part in refusal.message
    for setting in ("HRAG_TENANT_CALLS_PER_S", "HRAG_TENANT_BURST", "HRAG_TENANT_QUOTAS_FILE"):
        assert setting in refusal.message


def test_refused_calls_do_not_count(clock):
    limiter = _limiter(clock, 10, 1)
    _admitted(limiter)
    for _ in range(1000):
        assert limiter.try_acquire(["a"])
    clock.now += SECOND // 10
    assert limiter.try_acquire(["a"]) is None


def test_each_tenant_has_its_own_rate(clock):
    limiter = _limiter(clock, 1, 2)
    assert (_admitted(limiter, "a"), _admitted(limiter, "b"), _admitted(limiter, "a")) == (2, 2, 0)


def test_without_a_rate_nothing_is_counted_or_stored(clock):
    limiter = _limiter(clock, None)
    assert _admitted(limiter) == 1000
    assert RateLimiter(unlimited, clock).try_acquire(["a"]) is None
    assert len(limiter) == 0


def test_a_call_without_a_tenant_is_not_counted(clock):
    limiter = _limiter(clock, 1, 1)
    assert all(limiter.try_acquire([]) is None for _ in range(10))


def test_each_search_of_a_batch_counts(clock):
    limiter = _limiter(clock, 1, 10)
    assert limiter.try_acquire(["a"] * 7) is None
    refusal = limiter.try_acquire(["a"] * 7)
    assert refusal.retry_s == 4
    assert _admitted(limiter) == 3


def test_a_batch_larger_than_the_burst_needs_a_full_bucket_and_owes_the_difference(clock):
    limiter = _limiter(clock, 1, 4)
    limiter.try_acquire(["a"])
    assert limiter.try_acquire(["a"] * 10).retry_s == 1
    clock.now += SECOND
    assert limiter.try_acquire(["a"] * 10) is None
    assert limiter.try_acquire(["a"]).retry_s == 7
    clock.now += 7 * SECOND
    assert _admitted(limiter) == 1


def test_a_batch_of_two_tenants_counts_for_both_or_for_neither(clock):
    limiter = _limiter(clock, 1, 2)
    _admitted(limiter, "b")
    refusal = limiter.try_acquire(["a", "b"])
    assert "'b'" in refusal.message
    assert _admitted(limiter, "a") == 2


def test_a_changed_quota_applies_immediately(clock):
    quota = Quota(calls_per_s=1, burst=1)
    limiter = RateLimiter(lambda _tenant: quota, clock)
    assert _admitted(limiter) == 1
    quota = Quota(calls_per_s=1, burst=4)
    assert _admitted(limiter) == 3
    quota = Quota()
    assert _admitted(limiter) == 1000


@given(st.lists(st.tuples(st.integers(0, 3 * SECOND), st.integers(1, 9)), max_size=50))
def test_no_more_calls_are_admitted_in_any_interval_than_rate_and_burst_allow(steps):
    clock, rate, burst = Clock(), 3, 5
    limiter = _limiter(clock, rate, burst)
    admissions = []
    for pause, attempts in steps:
        clock.now += pause
        admitted = sum(limiter.try_acquire(["a"]) is None for _ in range(attempts))
        admissions.append((clock.now, admitted))
    for start, (begin, _) in enumerate(admissions):
        calls = 0
        for end, admitted in admissions[start:]:
            calls += admitted
            assert calls <= burst + (end - begin) * rate / SECOND + 1e-6


def test_concurrent_threads_are_admitted_exactly_as_often_as_one_thread(clock):
    limiter = _limiter(clock, 1, 500)
    admitted: Counter[int] = Counter()
    start = threading.Barrier(8)

    def acquire(number: int) -> None:
        start.wait()
        admitted[number] = sum(limiter.try_acquire(["a"]) is None for _ in range(500))

    threads = [threading.Thread(target=acquire, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert admitted.total() == 500


def test_only_tenants_with_recent_calls_are_stored(clock):
    limiter = _limiter(clock, 10, 10, max_tenants=10_000)
    largest = 0
    for number in range(50_000):
        # Each millisecond a new tenant calls once. Its bucket is full again after 0.1 s and is then
        # no longer needed, so about 100 buckets are needed at a time.
        clock.now += SECOND // 1000
        limiter.try_acquire([f"t{number}"])
        largest = max(largest, len(limiter))
    assert largest < 250


def test_active_tenants_are_not_evicted_for_new_ones(clock):
    limiter = _limiter(clock, 0.01, 1, max_tenants=10_000)
    assert _admitted(limiter, "slow") == 1
    for number in range(5000):
        limiter.try_acquire([f"t{number}"])
    assert _admitted(limiter, "slow") == 0


def test_tenants_beyond_the_capacity_are_evicted(clock):
    limiter = _limiter(clock, 0.001, 1, max_tenants=50)
    for number in range(1000):
        assert limiter.try_acquire([f"t{number}"]) is None
        assert len(limiter) <= 50


def test_invalid_tenant_ids_are_not_stored(clock):
    limiter = _limiter(clock, 1, 1)
    for name in ("", "a b", "x" * 100_000, "\0"):
        assert _admitted(limiter, name) == 1000
    assert len(limiter) == 0
