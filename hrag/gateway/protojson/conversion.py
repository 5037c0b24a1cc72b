"""Runs conversions between JSON and messages: small ones at once, large ones in a thread.

A large conversion in the event loop would delay all other requests until it ends.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from google.protobuf.message import Message

from hrag.gateway.protojson import json_reader

# Requests and responses that are larger than these limits are converted in a thread. Converting 8
# KiB of a request takes at most 5 ms, for the slowest request that a client can send. Converting 64
# KiB of a service's response takes 1 ms.
_SMALL_REQUEST_BYTES = 8 * 1024
_SMALL_RESPONSE_BYTES = 64 * 1024
_THREADS = 2  # The threads share the interpreter lock, so more threads would not be faster.

Converted = TypeVar("Converted")


class Conversion:
    """Converts the messages of all requests of a gateway; has threads for large messages."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, "conversion")

    async def of_request(self, convert: Callable[[bytes], Converted], raw: bytes) -> Converted:
        """Converts the body of a request with `convert`, in a thread if the body is large.

        Raises the errors of `convert`.
        """
        return await self._run(len(raw) <= _SMALL_REQUEST_BYTES, convert, raw)

    async def of_response(self, convert: Callable[[bytes], Converted], encoded: bytes) -> Converted:
        """Converts the encoded response of a service with `convert`, in a thread if it is large."""
        return await self._run(len(encoded) <= _SMALL_RESPONSE_BYTES, convert, encoded)

    async def encoded(self, message_class: type[Message], raw: bytes) -> bytes:
        """Returns the encoded message that a JSON document describes; raises InvalidArgument."""
        return await self.of_request(partial(_encode, message_class), raw)

    async def _run(
        self, is_small: bool, convert: Callable[[bytes], Converted], content: bytes
    ) -> Converted:
        if is_small:
            return convert(content)
        return await asyncio.get_running_loop().run_in_executor(self._threads, convert, content)

    def close(self) -> None:
        """Accepts no more conversions in threads, and returns at once.

        The threads end when the conversions that were already submitted are finished.
        """
        self._threads.shutdown(wait=False)


def _encode(message_class: type[Message], raw: bytes) -> bytes:
    return json_reader.read(message_class, raw).SerializeToString()
