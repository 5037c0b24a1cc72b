"""A simulated server of an embedding model, which sleeps instead of computing.

    python -m benchmarks.model_server CONCURRENCY REQUEST_MS TEXT_MS DIMENSION

The server implements OpenAI's `POST /v1/embeddings` on a free loopback port, which it prints. Every
text gets the same vector. A request takes REQUEST_MS, plus TEXT_MS for each text. CONCURRENCY
requests run at the same time, and other requests are queued. The server stops when standard input
ends.
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
    """A simulated model: the times of a request, and the vector of every text, in base64.

    `slots` limits the number of requests that run at the same time.
    """

    slots: asyncio.Semaphore
    request_s: float
    text_s: float
    vector: str

    async def answer(self, texts: int) -> bytes:
        """Returns the body of a response, after the time that the request takes."""
        async with self.slots:
            await asyncio.sleep(self.request_s + texts * self.text_s)
        rows = [{"index": number, "embedding": self.vector} for number in range(texts)]
        return json.dumps({"data": rows}).encode()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection until the client closes it."""
        while head := await _read_head(reader):
            request = json.loads(await reader.readexactly(_length(head)))
            body = await self.answer(len(request["input"]))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
            writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        writer.close()


async def _read_head(reader: asyncio.StreamReader) -> bytes:
    """Returns the head of a request; empty if the client has closed the connection."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


def _length(head: bytes) -> int:
    (line,) = [line for line in head.lower().split(b"\r\n") if line.startswith(_LENGTH)]
    return int(line.removeprefix(_LENGTH))


async def main(arguments: Sequence[str]) -> None:
    """Serves until standard input ends."""
    concurrency, request_ms, text_ms, dimension = map(float, arguments)
    vector = np.eye(1, int(dimension), dtype="<f4").tobytes()
    model = Model(
        asyncio.Semaphore(int(concurrency)),
        request_ms / 1e3,
        text_ms / 1e3,
        base64.b64encode(vector).decode(),
    )
    server = await asyncio.start_server(model.serve, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    # The process ends at once, because there is nothing to save or to close.
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
