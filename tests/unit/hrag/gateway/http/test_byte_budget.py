"""The gateway limits the bytes of calls in its memory, for each caller and for all callers."""

import asyncio
from contextlib import ExitStack
from typing import Any

import pytest

from hrag.errors import TooBusy
from hrag.gateway.http.reply import JSON, CountedReply
from hrag.server.admission.byte_budget import ByteBudget


def budget_of(max_bytes: int) -> ByteBudget:
    return ByteBudget(max_bytes, "requests", "SETTING", by_credential=True)


def test_one_caller_may_use_half_of_the_bytes() -> None:
    budget = budget_of(100)
    with budget.share("a") as first, budget.share("a") as second:
        first.take(40)
        second.take(10)
        with pytest.raises(TooBusy, match="of this caller have 50 bytes"):
            second.take(1)
        with budget.share("b") as other:
            other.take(50)
            with pytest.raises(TooBusy, match="all callers have 100"):
                other.take(1)
    with budget.share("a") as share:
        share.take(50)
        share.hold(20)
        share.hold(30)
        assert share.size_bytes == 30


def test_callers_without_a_credential_may_use_all_bytes_together() -> None:
    with budget_of(100).share("") as share:
        share.take(100)
        with pytest.raises(TooBusy, match="callers without a credential have 100"):
            share.take(1)


def test_the_bytes_of_a_reply_count_until_its_client_has_read_them() -> None:
    asyncio.run(_check_that_a_reply_counts_until_it_is_read())


async def _check_that_a_reply_counts_until_it_is_read() -> None:
    budget, messages = budget_of(400_000), []
    is_sending, may_send = asyncio.Event(), asyncio.Event()

    async def send(message: dict[str, Any]) -> None:
        is_sending.set()
        await may_send.wait()
        messages.append(message)

    with ExitStack() as stack:
        share = stack.enter_context(budget.share("a"))
        share.take(200_000)
        reply = CountedReply(b"x" * 200_000, JSON, stack.pop_all())
    sending = asyncio.ensure_future(reply({}, None, send))
    await is_sending.wait()
    with budget.share("a") as share, pytest.raises(TooBusy):
        share.take(1)
    may_send.set()
    await sending
    assert b"".join(message.get("body", b"") for message in messages) == b"x" * 200_000
    assert [message.get("more_body") for message in messages] == [None, True, True, True, False]
    with budget.share("a") as share:
        share.take(200_000)
