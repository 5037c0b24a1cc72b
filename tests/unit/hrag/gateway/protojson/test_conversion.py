"""Large conversions run in threads, of which each caller has at most one at a time."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from hrag.gateway.protojson.conversion import Conversion

LARGE = b"x" * (64 * 1024)
_PATIENCE_S = 30.0


class Held:
    """A conversion that runs until it is released. It counts how many run at the same time."""

    def __init__(self) -> None:
        self.started = threading.Semaphore(0)
        self.go_on = threading.Event()
        self.running = self.most = 0

    def __call__(self, raw: bytes) -> bytes:
        self.running += 1
        self.most = max(self.most, self.running)
        self.started.release()
        assert self.go_on.wait(_PATIENCE_S)
        self.running -= 1
        return raw


def in_loop(test: Callable[[Conversion], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        conversion = Conversion()
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await test(conversion)
        finally:
            conversion.close()

    asyncio.run(run())


def test_a_caller_with_many_large_requests_leaves_a_thread_to_others() -> None:
    held = Held()

    async def test(conversion: Conversion) -> None:
        many = [
            asyncio.ensure_future(conversion.of_request(held, LARGE, "greedy")) for _ in range(8)
        ]
        await asyncio.to_thread(held.started.acquire)
        assert await conversion.of_request(bytes.upper, LARGE, "other") == LARGE.upper()
        held.go_on.set()
        assert await asyncio.gather(*many) == [LARGE] * 8

    in_loop(test)
    assert held.most == 1


def test_a_caller_that_disconnects_gets_no_second_thread() -> None:
    held = Held()

    async def test(conversion: Conversion) -> None:
        first = asyncio.ensure_future(conversion.of_request(held, LARGE, "greedy"))
        await asyncio.to_thread(held.started.acquire)
        first.cancel()
        second = asyncio.ensure_future(conversion.of_request(held, LARGE, "greedy"))
        assert await conversion.of_request(bytes.upper, LARGE, "other") == LARGE.upper()
        held.go_on.set()
        assert await second == LARGE

    in_loop(test)
    assert held.most == 1


def test_an_error_ends_the_turn_of_its_caller() -> None:
    def fail(_: bytes) -> bytes:
        raise ValueError("no")

    async def test(conversion: Conversion) -> None:
        for _ in range(3):
            with pytest.raises(ValueError, match="no"):
                await conversion.of_request(fail, LARGE, "c")

    in_loop(test)
