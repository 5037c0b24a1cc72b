"""The MCP tools `get_document` and `expand_chunk` return documents and larger chunks."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp import Client
from mcp.types import CallToolResult

from hrag.cli.mcp_server import MAX_PART_BYTES, DocumentTools, build_server
from hrag.client import AsyncClient
from hrag.client.tools import async_knowledge_base
from hrag.filters import Match
from hrag.types import Document, Page, SettingsRequest
from tests.e2e.mcp_servers import text
from tests.support.servers.processes import Running

TENANT = "mcp-documents"
OPEN = Match("metadata.team", ("open",))
GUIDE = "".join(f"Step {number}: rotate the key of the door. 钥匙。\n" for number in range(900))
LONG = "x " * 30_000
PAGES = (Page("Cats sleep all day."), Page("Dogs bark at night."))


@pytest.fixture(scope="module")
def stored(services: Running) -> Running:
    client, shown = services.client, {"team": "open"}
    client.ingest(TENANT, Document(PAGES, "pets", "Pets [1]", "pets.pdf", metadata=shown))
    client.ingest(TENANT, Document(GUIDE, "guide", "Guide", metadata=shown))
    client.ingest(TENANT, Document("Secret.", "secret", metadata={"team": "board"}))
    client.ingest("mcp-foreign", Document("Foreign.", "foreign"))
    wide = SettingsRequest(level_sizes=(256, 32_768), return_level=1)
    client.create_collection(TENANT, "wide", wide)
    client.ingest(TENANT, Document(LONG, "long", metadata=shown), collection="wide")
    return services


def server_of(client: AsyncClient, collection: str) -> Any:
    options = {"collection": collection, "filter": OPEN}
    search = async_knowledge_base(client, TENANT, **options)
    return build_server(search, 5, DocumentTools(client, TENANT, **options))


@asynccontextmanager
async def agent_of(stored: Running, collection: str = "default") -> AsyncIterator[Client]:
    """Yields a client of a server whose filter shows only the documents of the team `open`.

    The server has no connection to an indexer.
    """
    addresses = stored.retriever.address, stored.retriever.address
    async with (
        AsyncClient(*addresses) as client,
        Client(server_of(client, collection)) as agent,
    ):
        yield agent


def content_of(result: CallToolResult) -> dict[str, Any]:
    assert not result.is_error, text(result)
    assert result.structured_content is not None
    return result.structured_content


async def test_a_document_is_read_in_parts(stored: Running) -> None:
    async with agent_of(stored) as agent:
        parts, start = [], 0
        while start or not parts:
            arguments = {"document_id": "guide", "start": start}
            part = content_of(await agent.call_tool("get_document", arguments))
            assert len(part["text"].encode()) <= MAX_PART_BYTES
            assert (part["heading"], part["start"]) == ("[Guide]", start)
            parts.append(part["text"])
            start = part["next_start"]
        assert "".join(parts) == GUIDE
        assert len(parts) > 1


async def test_the_model_gets_a_quoted_document_and_the_start_of_the_next_part(
    stored: Running,
) -> None:
    async with agent_of(stored) as agent:
        whole = await agent.call_tool("get_document", {"document_id": "pets"})
        assert text(whole).startswith("[Pets (1)]\n> Cats sleep all day.")
        shown = content_of(whole)
        assert (shown["source"], shown["page_count"]) == ("pets.pdf", 2)
        assert (shown["metadata"], shown["next_start"]) == ({"team": "open"}, 0)
        part = await agent.call_tool("get_document", {"document_id": "guide"})
        assert text(part).endswith(f"The next part has start={content_of(part)['next_start']}.")


async def test_a_chunk_is_expanded_step_by_step_until_the_largest(stored: Running) -> None:
    async with agent_of(stored) as agent:
        chunk_id, texts = "guide#0.5", []
        for level in (1, 2, 3):
            result = await agent.call_tool("expand_chunk", {"chunk_id": chunk_id})
            around = content_of(result)
            texts.append(around["text"])
            chunk_id = around["chunk_id"]
            assert chunk_id.startswith(f"guide#{level}.")
            assert text(result).startswith("[Guide]\n> ")
            assert text(result).count("\n> ") >= 5
        assert texts[0] in texts[1]
        assert texts[1] in texts[2]
        last = await agent.call_tool("expand_chunk", {"chunk_id": chunk_id})
        assert last.is_error
        assert "is one of the largest chunks; get_document with start=" in text(last)


async def test_the_size_of_an_expanded_chunk_is_bounded(stored: Running) -> None:
    async with agent_of(stored, "wide") as agent:
        result = await agent.call_tool("expand_chunk", {"chunk_id": "long#0.0"})
        assert result.is_error
        says = f"at most {MAX_PART_BYTES} are returned; get_document with start=0 reads it in parts"
        assert says in text(result)


_REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("get_document", {"document_id": "secret"}, "no document 'secret'"),
    ("get_document", {"document_id": "foreign"}, "no document 'foreign'"),
    ("get_document", {"document_id": "none"}, "no document 'none'"),
    ("get_document", {"document_id": ""}, "document_id is ''"),
    ("get_document", {"document_id": "a\ud800"}, "document_id is"),
    ("get_document", {"document_id": "x" * 1_000}, "document_id is"),
    ("get_document", {"document_id": 5}, "valid string"),
    ("get_document", {}, "Field required"),
    ("get_document", {"document_id": "pets", "start": 10_000}, "text_range"),
    ("get_document", {"document_id": "pets", "start": -1}, "greater than or equal to 0"),
    ("get_document", {"document_id": "pets", "start": 1 << 40}, "less than or equal to"),
    ("get_document", {"document_id": "pets", "start": "x"}, "valid integer"),
    ("expand_chunk", {"chunk_id": "secret#0.0"}, "no document 'secret'"),
    ("expand_chunk", {"chunk_id": "foreign#0.0"}, "no document 'foreign'"),
    ("expand_chunk", {"chunk_id": "guide#0.9999"}, "guide#0.9999"),
    ("expand_chunk", {"chunk_id": "guide"}, "guide"),
    ("expand_chunk", {"chunk_id": "#"}, "document_id is '#'"),
    ("expand_chunk", {"chunk_id": ""}, "document_id is ''"),
    ("expand_chunk", {"chunk_id": "pets#0.0"}, "pets#0.0 is the whole document"),
    ("expand_chunk", {"chunk_id": None}, "valid string"),
    ("expand_chunk", {}, "Field required"),
]


async def test_unreadable_documents_are_reported_and_hidden_documents_seem_missing(
    stored: Running,
) -> None:
    """All calls are made in one session, which continues after each error."""
    async with agent_of(stored) as agent:
        for tool, arguments, says in _REFUSED:
            result = await agent.call_tool(tool, arguments)
            assert result.is_error, arguments
            assert says in text(result)
            assert "Traceback" not in text(result)
            assert "Secret." not in text(result)
        assert content_of(await agent.call_tool("get_document", {"document_id": "pets"}))


async def test_an_unreachable_service_is_reported() -> None:
    nobody = "127.0.0.1:1"
    async with (
        AsyncClient(nobody, nobody, timeout_s=0.2) as client,
        Client(server_of(client, "default")) as agent,
    ):
        result = await agent.call_tool("get_document", {"document_id": "pets"})
    assert result.is_error
    assert text(result).startswith("The document cannot be read: ")
