"""Replies that clients do not read use a limited number of bytes, for a limited time."""

from collections.abc import Callable
from typing import Any

import pytest

from hrag.errors import TooBusy
from hrag.observe import metrics
from hrag.server.admission.unread_replies import UnreadReplies
from tests.support.until import until


class Context:
    """A fake server context of a call that ends when the test calls `end`."""

    def __init__(self, *, is_active: bool = True) -> None:
        self._is_active = is_active
        self._callbacks: list[Callable[[], None]] = []
        self.is_cancelled = False

    def add_callback(self, callback: Callable[[], None]) -> bool:
        self._callbacks.append(callback)
        return self._is_active

    def cancel(self) -> None:
        self.is_cancelled = True

    def end(self) -> None:
        for callback in self._callbacks:
            callback()


def _cancelled() -> float:
    return metrics.INSTRUMENTS.get_sample_value("hrag_unread_calls_cancelled_total") or 0.0


def _replies(max_bytes: int = 100) -> UnreadReplies:
    return UnreadReplies(max_bytes, 60)


def _send(replies: UnreadReplies, tenant: str, size: int, **options: Any) -> Context:
    context = Context(**options)
    replies.send(context, tenant, size)  # type: ignore[arg-type]
    return context


def test_one_tenant_may_use_at_most_half_of_the_bytes() -> None:
    replies = _replies()
    _send(replies, "a", 40)
    with pytest.raises(TooBusy, match=r"tenant 'a' have 40 bytes.*HRAG_MAX_UNREAD_BYTES"):
        _send(replies, "a", 11)
    _send(replies, "b", 50)
    assert replies.unread_bytes == 90


def test_the_bytes_of_all_tenants_together_are_limited() -> None:
    replies = _replies()
    _send(replies, "a", 50)
    _send(replies, "b", 50)
    with pytest.raises(TooBusy, match=r"unread replies of all tenants have 100 bytes"):
        _send(replies, "c", 1)


def test_a_reply_counts_until_its_call_ends() -> None:
    replies = _replies()
    context = _send(replies, "a", 50)
    context.end()
    assert replies.unread_bytes == 0
    _send(replies, "a", 50)


def test_a_reply_to_a_client_that_has_left_does_not_count() -> None:
    replies = _replies()
    _send(replies, "a", 50, is_active=False)
    assert replies.unread_bytes == 0


def test_a_call_whose_reply_is_not_read_in_time_is_cancelled() -> None:
    replies = UnreadReplies(100, 0.05)
    before = _cancelled()
    slow = _send(replies, "a", 1)
    until(lambda: slow.is_cancelled)
    assert _cancelled() == before + 1
    slow.end()
    assert replies.unread_bytes == 0
    replies.close()
