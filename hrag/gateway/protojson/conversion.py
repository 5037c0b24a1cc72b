"""Runs conversions between JSON and messages: small ones at once, large ones in a thread.

A large conversion in the event loop would delay all other requests until it ends. Each caller has
at most one conversion in a thread at a time; its others wait. So a caller with many large requests
leaves a thread to the others.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from google.protobuf.message import Message

from hrag.gateway.protojson import json_reader

# Requests and responses that are larger than these limits are converted in a thread. Converting 8
# KiB of a request takes at most 5 ms, for the slowest request that a client can send. Converting 64
# KiB of a service's response takes 0.03 ms for common texts, 1 ms for control characters alone and
# 4 ms for metadata of many small values.
_SMALL_REQUEST_BYTES = 8 * 1024
_SMALL_RESPONSE_BYTES = 64 * 1024
_THREADS = 2  # The threads share the interpreter lock, so more threads would not be faster.

Converted = TypeVar("Converted")


class Conversion:
    """Converts the messages of all requests of a gateway; has threads for large messages.

    `caller` identifies who sent a request, by its credential or address.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, "conversion")
        # Whoever holds the lock of a caller may use a thread. A lock that nobody uses is deleted.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def of_request(
        self, convert: Callable[[bytes], Converted], raw: bytes, caller: str
    ) -> Converted:
        """Converts the body of a request with `convert`, in a thread if the body is large.

        Raises the errors of `convert`.
        """
        return await self._run(len(raw) <= _SMALL_REQUEST_BYTES, convert, raw, caller)

    async def of_response(
        self, convert: Callable[[bytes], Converted], encoded: bytes, caller: str
    ) -> Converted:
        """Converts the encoded response of a service with `convert`, in a thread if it is large."""
        return await self._run(len(encoded) <= _SMALL_RESPONSE_BYTES, convert, encoded, caller)

    async def encoded(self, message_class: type[Message], raw: bytes, caller: str) -> bytes:
        """Returns the encoded message that a JSON document describes; raises InvalidArgument."""
        return await self.of_request(partial(_encode, message_class), raw, caller)

    async def _run(
        self, is_small: bool, convert: Callable[[bytes], Converted], content: bytes, caller: str
    ) -> Converted:
        if is_small:
            return convert(content)
        turn = self._turns.setdefault(caller, asyncio.Lock())
        await turn.acquire()
        release = partial(_release, asyncio.get_running_loop(), turn)
        try:
            running = self._threads.submit(convert, content)
        except BaseException:
            turn.release()
            raise
        # The turn ends with the conversion, not with the request: a caller that disconnects does
        # not get a second thread while the first one still works for it.
        running.add_done_callback(release)
        return await asyncio.wrap_future(running)

    def close(self) -> None:
        """Accepts no more conversions in threads, and returns at once.

        The threads end when the conversions that were already submitted are finished.
        """
        self._threads.shutdown(wait=False)


def _release(loop: asyncio.AbstractEventLoop, turn: asyncio.Lock, _: Future[Any]) -> None:
    """Releases a lock of the event loop `loop` from any thread."""
    with suppress(RuntimeError):  # The gateway has stopped, and its event loop is closed.
        loop.call_soon_threadsafe(turn.release)


def _encode(message_class: type[Message], raw: bytes) -> bytes:
    return json_reader.read(message_class, raw).SerializeToString()
