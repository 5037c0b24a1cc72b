"""The MCP server: one tool, over stdio or streamable HTTP.

Standard output carries nothing but the protocol; what goes wrong is told to the model and,
in one line, on standard error.
"""

import os
import signal
import socket
from dataclasses import asdict
from importlib.metadata import version
from typing import Annotated, Any

import anyio
import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from rich.console import Console

from hrag.cli.connection import Credentials
from hrag.cli.console import Failure, show_error
from hrag.client import AsyncClient
from hrag.client.tools import AsyncSearch, Findings, Limit, Query, async_knowledge_base
from hrag.net.addresses import dial_address

_INSTRUCTIONS = "Call search_knowledge_base and cite the headings of the passages that you use."
_PATH = "/mcp"
_DRAIN_S = 5  # How long running searches may finish at a stop.


def run(
    retriever: str,
    credentials: Credentials,
    place: tuple[str, int] | None,
    tenant_id: str,
    *,
    limit: int,
    **how: Any,
) -> None:
    """Serves one knowledge base at a place by HTTP, or else over stdio, until told to stop."""
    _exit_on_signals()
    listening = None if place is None else _listening(*place)

    async def serve() -> None:
        address = dial_address(retriever)
        async with AsyncClient(address, address, **asdict(credentials)) as client:
            search = async_knowledge_base(client, tenant_id, limit=limit, **how)
            server = built(search, limit)
            if listening is None:
                await _serve_stdio(server)
            else:
                await _serve_http(server, listening)

    anyio.run(serve)


def built(search: AsyncSearch, limit: int) -> MCPServer:
    """A server whose one tool is `search`; `limit` is for a model that does not say."""

    async def search_knowledge_base(
        query: Query, limit: Limit = limit
    ) -> Annotated[CallToolResult, Findings]:
        found = await search(query, limit)
        if found.error:
            show_error(found.error)
        return CallToolResult(
            content=[TextContent(text=str(found))],
            structured_content=asdict(found),
            is_error=bool(found.error),
        )

    # Its messages below warnings repeat what the model is told.
    server = MCPServer(
        "hrag",
        title="Knowledge base",
        instructions=_INSTRUCTIONS,
        version=version("hrag"),
        log_level="WARNING",
    )
    server.add_tool(
        search_knowledge_base,
        title="Search the knowledge base",
        description=search.__doc__,
        annotations=ToolAnnotations(
            read_only_hint=True, idempotent_hint=True, destructive_hint=False, open_world_hint=False
        ),
    )
    return server


async def _serve_stdio(server: MCPServer) -> None:
    try:
        await server.run_stdio_async()
    except* BrokenPipeError:  # The host is gone; a call was under way.
        pass


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise Failure(f"cannot listen on {host}:{port}: {error.strerror}") from None


async def _serve_http(server: MCPServer, listening: socket.socket) -> None:
    host, port = listening.getsockname()[:2]
    # A search needs no session: any process can answer any request, also after a restart.
    app = server.streamable_http_app(
        streamable_http_path=_PATH, stateless_http=True, json_response=True, host=host
    )
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=_DRAIN_S
    )
    shown = f"[{host}]" if ":" in host else host
    Console(stderr=True).print(f"serves at http://{shown}:{port}{_PATH}", markup=False)
    await uvicorn.Server(config).serve(sockets=[listening])


def _exit_on_signals() -> None:
    """Ends the process at once; only uvicorn, which drains first, puts itself before this.

    The SDK reads standard input in a thread that Python would wait for, until a line comes.
    Nothing is lost: a server that only reads has nothing to keep.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: os._exit(0))
