"""The SDK: `Client` for threads, `AsyncClient` for asyncio.

Results are the frozen values of `hrag.types`, failures the classes of `hrag.errors`. It
needs neither LMDB nor hnswlib.

    with Client() as client:
        client.ingest("acme", Document("Cats sleep. Dogs bark.", document_id="pets"))
        for passage in client.search("acme", "what do dogs do?").passages:
            print(passage.score, passage.chunk.content)
"""

from hrag.client.aio import AsyncClient
from hrag.client.sync import Client

__all__ = ["AsyncClient", "Client"]
