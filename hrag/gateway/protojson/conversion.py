"""Runs conversions between JSON and messages: small ones at once, large ones in a thread.

A large one would hold up the requests of others for as long as it takes.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from google.protobuf.message import Message

from hrag.gateway.protojson import json_reader

# Five milliseconds for the worst that strangers can send, one for what the services answer.
_SMALL_REQUEST_BYTES = 8 * 1024
_SMALL_RESPONSE_BYTES = 64 * 1024
_THREADS = 2  # They share the interpreter lock, so more would not be faster.

Converted = TypeVar("Converted")


class Conversion:
    """Converts messages for all requests of a gateway."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, "conversion")

    async def of_request(self, convert: Callable[[bytes], Converted], raw: bytes) -> Converted:
        """Returns what `convert` makes of a request's body, and raises what it raises."""
        return await self._run(len(raw) <= _SMALL_REQUEST_BYTES, convert, raw)

    async def of_response(self, convert: Callable[[bytes], Converted], encoded: bytes) -> Converted:
        """Returns what `convert` makes of a service's response."""
        return await self._run(len(encoded) <= _SMALL_RESPONSE_BYTES, convert, encoded)

    async def encoded(self, message_class: type[Message], raw: bytes) -> bytes:
        """Returns the encoded message that a JSON document describes; raises InvalidArgument."""
        return await self.of_request(partial(_encoded, message_class), raw)

    async def _run(
        self, is_small: bool, convert: Callable[[bytes], Converted], given: bytes
    ) -> Converted:
        if is_small:
            return convert(given)
        return await asyncio.get_running_loop().run_in_executor(self._threads, convert, given)

    def close(self) -> None:
        """Ends the threads; a conversion that runs goes on to its end."""
        self._threads.shutdown(wait=False)


def _encoded(message_class: type[Message], raw: bytes) -> bytes:
    return json_reader.read(message_class, raw).SerializeToString()
