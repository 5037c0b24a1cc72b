"""The MCP server: one tool, over stdio or streamable HTTP.

Standard output carries the protocol and nothing else. Errors are returned to the model and
written to standard error, one line each.
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
_DRAIN_S = 5  # Time for running searches to finish at shutdown.


def run(
    retriever: str,
    credentials: Credentials,
    address: tuple[str, int] | None,
    tenant_id: str,
    *,
    limit: int,
    **options: Any,
) -> None:
    """Serves one knowledge base over HTTP at `address`, or else over stdio, until stopped."""
    _exit_on_signals()
    listener = None if address is None else _listen(*address)

    async def serve() -> None:
        target = dial_address(retriever)
        async with AsyncClient(target, target, **asdict(credentials)) as client:
            search = async_knowledge_base(client, tenant_id, limit=limit, **options)
            server = build_server(search, limit)
            if listener is None:
                await _serve_stdio(server)
            else:
                await _serve_http(server, listener)

    anyio.run(serve)


def build_server(search: AsyncSearch, limit: int) -> MCPServer:
    """Returns a server whose one tool is `search`; `limit` applies if the model gives none."""

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

    # Below warnings, the server only logs what it also returns to the model.
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
    except* BrokenPipeError:  # The host ended during a call.
        pass


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise Failure(f"cannot listen on {host}:{port}: {error.strerror}") from None


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
