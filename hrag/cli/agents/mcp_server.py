"""The MCP server: tools that search and read, over stdio or streamable HTTP.

Standard output carries the protocol and nothing else. Errors are returned to the model and
written to standard error, one line each.
"""

import os
import signal
import socket
from collections.abc import Awaitable
from dataclasses import asdict
from importlib.metadata import version
from typing import Annotated, Any

import anyio
import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from rich.console import Console

from hrag.cli.agents.document_tools import (
    EXPAND_CHUNK,
    GET_DOCUMENT,
    ChunkId,
    DocumentId,
    DocumentPart,
    DocumentTools,
    ExpandedChunk,
    Start,
)
from hrag.cli.options.connection import Credentials
from hrag.cli.terminal.console import Failure, show_error
from hrag.client import AsyncClient
from hrag.client.tools import (
    AsyncSearch,
    Findings,
    Limit,
    Query,
    async_knowledge_base,
    failure_text,
)
from hrag.host.addresses import dial_address
from hrag.host.listener import listen
from hrag.values.errors import HragError, ServiceUnavailable

_INSTRUCTIONS = (
    "Call search_knowledge_base and cite the headings of the passages that you use. "
    "expand_chunk reads what is around a passage, get_document the document it is from."
)
_READ_ONLY = ToolAnnotations(
    read_only_hint=True, idempotent_hint=True, destructive_hint=False, open_world_hint=False
)
_PATH = "/mcp"
_DRAIN_S = 5  # Time for running searches to finish at shutdown.


def run(
    indexer: str,
    retriever: str,
    credentials: Credentials,
    address: str,
    tenant_id: str,
    *,
    limit: int,
    **options: Any,
) -> None:
    """Serves one knowledge base over HTTP at `address`, or else over stdio, until stopped.

    Raises Failure if it cannot listen there.
    """
    _exit_on_signals()
    try:
        listener = listen(address) if address else None
    except ServiceUnavailable as error:
        raise Failure(error.message) from None

    async def serve() -> None:
        targets = dial_address(indexer), dial_address(retriever)
        async with AsyncClient(*targets, **asdict(credentials)) as client:
            search = async_knowledge_base(client, tenant_id, limit=limit, **options)
            documents = DocumentTools(client, tenant_id, options["collection"], options["filter"])
            server = build_server(search, limit, documents)
            if listener is None:
                await _serve_stdio(server)
            else:
                await _serve_http(server, listener)

    anyio.run(serve)


def build_server(search: AsyncSearch, limit: int, documents: DocumentTools) -> MCPServer:
    """Returns a server whose tools are `search` and those that read `documents`.

    `limit` applies if the model gives none.
    """

    async def search_knowledge_base(
        query: Query, limit: Limit = limit
    ) -> Annotated[CallToolResult, Findings]:
        found = await search(query, limit)
        return _failed(found.error, found) if found.error else _result(found)

    async def get_document(
        document_id: DocumentId, start: Start = 0
    ) -> Annotated[CallToolResult, DocumentPart]:
        return await _outcome(documents.get_document(document_id, start))

    async def expand_chunk(chunk_id: ChunkId) -> Annotated[CallToolResult, ExpandedChunk]:
        return await _outcome(documents.expand_chunk(chunk_id))

    # Below warnings, the server only logs what it also returns to the model.
    server = MCPServer(
        "hrag",
        title="Knowledge base",
        instructions=_INSTRUCTIONS,
        version=version("hrag"),
        log_level="WARNING",
    )
    for tool, title, description in (
        (search_knowledge_base, "Search the knowledge base", search.__doc__),
        (expand_chunk, "Read around a passage", EXPAND_CHUNK),
        (get_document, "Read a document", GET_DOCUMENT),
    ):
        server.add_tool(tool, title=title, description=description, annotations=_READ_ONLY)
    return server


async def _outcome(reading: Awaitable[DocumentPart | ExpandedChunk]) -> CallToolResult:
    try:
        return _result(await reading)
    except HragError as error:
        return _failed(failure_text("The document cannot be read", error))


def _result(found: Findings | DocumentPart | ExpandedChunk) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=str(found))], structured_content=asdict(found))


def _failed(message: str, found: Findings | None = None) -> CallToolResult:
    show_error(message)
    return CallToolResult(
        content=[TextContent(text=message)],
        structured_content=asdict(found) if found else None,
        is_error=True,
    )


async def _serve_stdio(server: MCPServer) -> None:
    try:
        await server.run_stdio_async()
    except* BrokenPipeError:  # The host ended during a call.
        pass


async def _serve_http(server: MCPServer, listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    # Stateless: any process can answer any request, also after a restart.
    app = server.streamable_http_app(
        streamable_http_path=_PATH, stateless_http=True, json_response=True, host=host
    )
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=_DRAIN_S
    )
    shown = f"[{host}]" if ":" in host else host
    Console(stderr=True).print(f"serves at http://{shown}:{port}{_PATH}", markup=False)
    await uvicorn.Server(config).serve(sockets=[listener])


def _exit_on_signals() -> None:
    """Makes signals end the process at once. uvicorn installs its own handlers and drains first.

    The SDK reads standard input in a thread, and Python would wait for its next line. Nothing
    is lost, because the server only reads.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: os._exit(0))
