"""The Python SDK: `Client` for threads, `AsyncClient` for asyncio, with the same methods.

Requests and results are the frozen dataclasses of `hrag.types`, filters are those of
`hrag.filters`, and errors are the classes of `hrag.errors`. Importing this package loads no
server code: neither LMDB nor hnswlib nor numpy.

    from hrag.client import Client
    from hrag.types import Document

    with Client() as client:
        client.ingest("acme", Document("Cats sleep. Dogs bark.", document_id="pets"))
        for passage in client.search("acme", "what do dogs do?").passages:
            print(passage.score, passage.chunk.content)

    async with AsyncClient() as client:
        result = await client.search("acme", "what do dogs do?")
        async for outcome in client.ingest_many("acme", documents):
            ...

Methods return complete values. Only `answer` and `ingest_many` stream: these two methods are
generators (asynchronous generators in `AsyncClient`).

`hrag.client.context` makes the context of a prompt from passages. `hrag.client.tools` makes a
function that searches, which an agent can call as a tool.
"""

from hrag.client.aio import AsyncClient
from hrag.client.sync import Client

__all__ = ["AsyncClient", "Client"]
