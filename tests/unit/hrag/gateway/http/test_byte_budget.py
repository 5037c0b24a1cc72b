"""What the gateway holds is bounded, in all and for each caller, until it was read."""

import asyncio
from contextlib import ExitStack
from typing import Any

import pytest

from hrag.errors import TooBusy
from hrag.gateway.http.byte_budget import ByteBudget
from hrag.gateway.http.reply import JSON, CountedReply


def test_a_caller_may_hold_half_of_the_bytes() -> None:
    budget = ByteBudget(100)
    with budget.share("a") as first, budget.share("a") as second:
        first.take(40)
        second.take(10)
        with pytest.raises(TooBusy, match="this caller's"):
            second.take(1)
        with budget.share("b") as other:
            other.take(50)
            with pytest.raises(TooBusy, match="holds 100 bytes"):
                other.take(1)
    with budget.share("a") as share:
        share.take(50)
        share.hold(20)
        share.hold(30)
        assert share.size_bytes == 30


def test_those_without_a_credential_share_all() -> None:
    with ByteBudget(100).share("") as share:
        share.take(100)


def test_a_reply_is_held_until_it_is_read() -> None:
    asyncio.run(_reply_is_held())


async def _reply_is_held() -> None:
    budget, read, sent = ByteBudget(400_000), asyncio.Event(), []

    async def send(message: dict[str, Any]) -> None:
        await read.wait()
        sent.append(message)

    with ExitStack() as stack:
        share = stack.enter_context(budget.share("a"))
        share.take(200_000)
        reply = CountedReply(b"x" * 200_000, JSON, stack.pop_all())
    sending = asyncio.ensure_future(reply({}, None, send))
    await asyncio.sleep(0)
    with budget.share("a") as share, pytest.raises(TooBusy):
        share.take(1)
    read.set()
    await sending
    assert b"".join(each.get("body", b"") for each in sent) == b"x" * 200_000
    assert [each.get("more_body") for each in sent] == [None, True, True, True, False]
    with budget.share("a") as share:
        share.take(200_000)
