"""The MCP server: it offers tools that search and read, over stdio or streamable HTTP.

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
    "expand_chunk reads the text around a passage, get_document reads the document it is from."
)
_READ_ONLY = ToolAnnotations(
    read_only_hint=True, idempotent_hint=True, destructive_hint=False, open_world_hint=False
)
_PATH = "/mcp"
_DRAIN_S = 5  # At shutdown, running searches have this many seconds to finish.


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
    """Serves one knowledge base until the process is stopped.

    Serves over HTTP at `address`, or over stdio if `address` is empty. Raises Failure if it
    cannot listen at the address.
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
    """Returns a server with three tools: `search`, and the two tools of `documents`.

    `limit` is the number of passages of a search if the model gives none.
    """

    async def search_knowledge_base(
        query: Query, limit: Limit = limit
    ) -> Annotated[CallToolResult, Findings]:
        findings = await search(query, limit)
        return _failed(findings.error, findings) if findings.error else _result(findings)

    async def get_document(
        document_id: DocumentId, start: Start = 0
    ) -> Annotated[CallToolResult, DocumentPart]:
        return await _outcome(documents.get_document(document_id, start))

    async def expand_chunk(chunk_id: ChunkId) -> Annotated[CallToolResult, ExpandedChunk]:
        return await _outcome(documents.expand_chunk(chunk_id))

    # Messages below warnings only repeat what the server returns to the model.
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


def _result(value: Findings | DocumentPart | ExpandedChunk) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=str(value))], structured_content=asdict(value))


def _failed(message: str, findings: Findings | None = None) -> CallToolResult:
    show_error(message)
    return CallToolResult(
        content=[TextContent(text=message)],
        structured_content=asdict(findings) if findings else None,
        is_error=True,
    )


async def _serve_stdio(server: MCPServer) -> None:
    try:
        await server.run_stdio_async()
    except* BrokenPipeError:
        # The agent's host ended during a call.
        pass


async def _serve_http(server: MCPServer, listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    # The server is stateless, so any process can answer any request, also after a restart.
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
    """Makes signals end the process at once.

    The SDK reads standard input in a thread. Without these handlers, Python would wait at exit
    until that thread has read another line. Nothing is lost, because the server only reads.
    Over HTTP, uvicorn replaces these handlers and lets running requests finish first.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: os._exit(0))
