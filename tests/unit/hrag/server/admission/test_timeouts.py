"""One thread watches the timeouts of many entries."""

import threading
import time

from structlog.testing import capture_logs

from hrag.server.admission.timeouts import Timeouts


def test_an_entry_expires_once_and_not_before_its_timeout() -> None:
    expired: list[tuple[str, float]] = []
    done = threading.Event()

    def expire(entry: str) -> None:
        expired.append((entry, time.monotonic()))
        done.set()

    timeouts = Timeouts[str](0.1, expire, "test")
    began = time.monotonic()
    timeouts.add("late")
    assert done.wait(60)
    timeouts.close()
    ((entry, at_s),) = expired
    assert entry == "late"
    assert at_s - began >= 0.1
    assert not timeouts.remove("late")


def test_a_removed_entry_does_not_expire() -> None:
    """Entries expire oldest first. After a later entry, the removed entry can no longer expire."""
    expired: list[str] = []
    has_expired = threading.Event()

    def expire(entry: str) -> None:
        expired.append(entry)
        has_expired.set()

    timeouts = Timeouts[str](0.05, expire, "test")
    timeouts.add("in time")
    assert timeouts.remove("in time")
    assert not timeouts.remove("in time")
    timeouts.add("late")
    assert has_expired.wait(60)
    assert timeouts.close() == []
    assert expired == ["late"]


def test_the_oldest_matching_entry_is_removed_first() -> None:
    timeouts = Timeouts[str](60, lambda _: None, "test")
    for entry in ("a", "b", "c"):
        timeouts.add(entry)
    assert timeouts.remove("a")
    assert timeouts.pop_oldest(lambda entry: entry != "b") == "c"
    assert timeouts.entries() == ["b"]
    assert timeouts.pop_oldest(lambda entry: entry != "b") is None
    assert timeouts.close() == ["b"]
    assert timeouts.pop_oldest(lambda entry: True) is None


def test_an_error_of_the_callback_is_logged_and_the_next_entry_expires() -> None:
    done = threading.Event()

    def expire(entry: str) -> None:
        if entry == "bad":
            raise ValueError(entry)
        done.set()

    with capture_logs() as logs:
        timeouts = Timeouts[str](0.05, expire, "test")
        timeouts.add("bad")
        timeouts.add("good")
        assert done.wait(60)
        timeouts.close()
    # Lines of the audit log are ignored, because other tests may write them at the same time.
    events = [line["event"] for line in logs if line["event"] != "audit"]
    assert events == ["timeout_failed"]
