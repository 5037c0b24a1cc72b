"""A model server that does nothing but take its time, as servers of embedding models do.

    python -m benchmarks.model_server AT_ONCE REQUEST_MS TEXT_MS DIMENSION

Speaks OpenAI's `POST /v1/embeddings` on a free port of loopback, which it prints, and answers
the same vector to every text. A request takes REQUEST_MS, and TEXT_MS more for each text; AT_ONCE
of them run at once, and others wait for their turn. Stops when standard input ends.
"""

import asyncio
import base64
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_LENGTH = b"content-length:"


@dataclass(frozen=True, slots=True)
class Model:
    """How long it takes, and its one vector, as it is sent."""

    turns: asyncio.Semaphore
    request_s: float
    text_s: float
    vector: str

    async def answer(self, texts: int) -> bytes:
        async with self.turns:
            await asyncio.sleep(self.request_s + texts * self.text_s)
        rows = [{"index": number, "embedding": self.vector} for number in range(texts)]
        return json.dumps({"data": rows}).encode()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, to its end."""
        while head := await _head(reader):
            request = json.loads(await reader.readexactly(_length(head)))
            body = await self.answer(len(request["input"]))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
            writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        writer.close()


async def _head(reader: asyncio.StreamReader) -> bytes:
    """A request's head; nothing where the client has gone."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


def _length(head: bytes) -> int:
    (line,) = [line for line in head.lower().split(b"\r\n") if line.startswith(_LENGTH)]
    return int(line.removeprefix(_LENGTH))


async def main(arguments: Sequence[str]) -> None:
    at_once, request_ms, text_ms, dimension = map(float, arguments)
    one = np.eye(1, int(dimension), dtype="<f4").tobytes()
    model = Model(
        asyncio.Semaphore(int(at_once)),
        request_ms / 1e3,
        text_ms / 1e3,
        base64.b64encode(one).decode(),
    )
    server = await asyncio.start_server(model.serve, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    os._exit(0)  # There is nothing to finish.


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
