"""`hrag mcp`: a Model Context Protocol server whose tools search and read documents."""

from typing import Annotated

import typer

from hrag.cli.extras import module_of_extra
from hrag.cli.option_values import parse_filters
from hrag.cli.options import (
    DEFAULT_RETRIEVER,
    DEFAULT_TENANT,
    CollectionName,
    Conditions,
    Credentials,
    MinScore,
    Mode,
    Retriever,
    Tenant,
    TokenBudget,
    connection_options,
    warn_of_unused,
)
from hrag.host.addresses import MAX_PORT
from hrag.values.limits import DEFAULT_COLLECTION, DEFAULT_TOOL_PASSAGES, MAX_LIMIT
from hrag.values.search import SearchMode

# If the server listens at one of these hosts, the MCP SDK checks the Host header of requests. The
# check prevents DNS rebinding.
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


@connection_options
def mcp(
    credentials: Credentials,
    tenant: Tenant = DEFAULT_TENANT,
    collection: CollectionName = DEFAULT_COLLECTION,
    description: Annotated[
        str, typer.Option(help="What the documents are about. The model reads it.")
    ] = "",
    mode: Mode = SearchMode.CONTEXT,
    limit: Annotated[
        int,
        typer.Option(
            min=1,
            max=MAX_LIMIT,
            help="Maximum number of passages, unless the model asks for another number.",
        ),
    ] = DEFAULT_TOOL_PASSAGES,
    token_budget: TokenBudget = 0,
    min_score: MinScore = None,
    filter: Conditions = None,
    http: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve streamable HTTP at this address, under /mcp, instead of stdio.",
        ),
    ] = "",
    expose: Annotated[
        bool,
        typer.Option(
            "--expose",
            help="Allow --http on an address that other machines reach, without authentication.",
        ),
    ] = False,
    retriever: Retriever = DEFAULT_RETRIEVER,
) -> None:
    """Run an MCP server that lets agents search documents and read them.

    An agent's host starts this command and talks to it over standard input and output; the
    command ends when its input ends. With --http it runs as a server until Ctrl-C.

    The tool search_knowledge_base takes a query and an optional limit; it returns passages, each
    with a heading to cite. expand_chunk returns the larger chunk around a chunk, and
    get_document returns a document in parts. The options alone decide which documents the tools
    search and how: a model cannot change them.

    Requires the extra mcp.

    \b
    Examples:
      hrag mcp --tenant acme --description "the staff handbook of Acme"
      hrag mcp --tenant acme --mode auto_merge --token-budget 4000
      hrag mcp --tenant acme --http 127.0.0.1:8000
    """
    if http:
        _check_address(http, expose)
    else:
        warn_of_unused("without --http", {"--expose": expose})
    mcp_server = module_of_extra("hrag.cli.mcp_server", "mcp", "hrag mcp")
    mcp_server.run(
        retriever,
        credentials,
        http,
        tenant,
        collection=collection,
        description=description,
        mode=mode,
        limit=limit,
        token_budget=token_budget,
        min_score=min_score,
        filter=parse_filters(filter),
    )


def _check_address(address: str, expose: bool) -> None:
    """Raises BadParameter if the address is malformed.

    Without `expose`, also raises BadParameter if other machines can reach the address.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > MAX_PORT:
        raise _refusal(address, "it must be HOST:PORT, as in 127.0.0.1:8000")
    if host not in _LOOPBACK and not expose:
        raise _refusal(
            address,
            "other machines could search without a credential; use "
            f"{', '.join(_LOOPBACK[:-1])} or {_LOOPBACK[-1]}, or add --expose if a proxy in "
            "front of it authenticates",
        )


def _refusal(address: str, reason: str) -> typer.BadParameter:
    return typer.BadParameter(f"{address!r}: {reason}", param_hint="--http")
