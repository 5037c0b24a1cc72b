"""Runs conversions between JSON and messages: small ones at once, large ones in a thread.

A large one would hold up the requests of others for as long as it takes.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from google.protobuf.message import Message

from hrag.gateway.protojson import reader, writer

SMALL_BYTES = 64 * 1024  # About a millisecond.
_THREADS = 2  # They share the interpreter lock, so more would not be faster.

Converted = TypeVar("Converted")


class Conversion:
    """Converts messages for all requests of a gateway."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, "conversion")

    async def run(
        self, size_bytes: int, convert: Callable[..., Converted], *values: Any
    ) -> Converted:
        """Returns what `convert` returns; `size_bytes` is that of its input."""
        if size_bytes <= SMALL_BYTES:
            return convert(*values)
        return await asyncio.get_running_loop().run_in_executor(self._threads, convert, *values)

    async def encoded(self, message_class: type[Message], raw: bytes) -> bytes:
        """Returns the encoded message that a JSON document describes; raises InvalidArgument."""
        return await self.run(len(raw), _encoded, message_class, raw)

    async def written(self, message_class: type[Message], encoded: bytes) -> bytes:
        """Returns the JSON document of an encoded message."""
        return await self.run(len(encoded), writer.write, message_class, encoded)

    def close(self) -> None:
        """Ends the threads; a conversion that runs goes on to its end."""
        self._threads.shutdown(wait=False)


def _encoded(message_class: type[Message], raw: bytes) -> bytes:
    return reader.read(message_class, raw).SerializeToString()
