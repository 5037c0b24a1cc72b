"""`hrag mcp`: the tool `search_knowledge_base` for agents, by the Model Context Protocol."""

from typing import Annotated

import typer

from hrag.cli import filters
from hrag.cli.connection import Credentials, connecting
from hrag.cli.console import Failure
from hrag.cli.options import (
    DEFAULT_RETRIEVER,
    DEFAULT_TENANT,
    CollectionName,
    Conditions,
    MinScore,
    Mode,
    Retriever,
    Tenant,
    TokenBudget,
)
from hrag.net.addresses import MAX_PORT
from hrag.types import DEFAULT_COLLECTION, DEFAULT_LIMIT, MAX_LIMIT, SearchMode

# Where the protocol's SDK checks the Host header, against web pages that pose as local.
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


@connecting
def mcp(
    credentials: Credentials,
    tenant: Tenant = DEFAULT_TENANT,
    collection: CollectionName = DEFAULT_COLLECTION,
    description: Annotated[
        str, typer.Option(help="What the documents are, for the model to know.")
    ] = "",
    mode: Mode = SearchMode.SMALL_TO_BIG,
    limit: Annotated[
        int,
        typer.Option(min=1, max=MAX_LIMIT, help="Passages of a search whose model does not say."),
    ] = DEFAULT_LIMIT,
    token_budget: TokenBudget = 0,
    min_score: MinScore = None,
    filter: Conditions = None,
    http: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT", help="Serve streamable HTTP there, at /mcp, instead of stdio."
        ),
    ] = "",
    expose: Annotated[
        bool,
        typer.Option(
            "--expose", help="Let --http listen where other machines reach it, unauthenticated."
        ),
    ] = False,
    retriever: Retriever = DEFAULT_RETRIEVER,
) -> None:
    """Give agents the tool search_knowledge_base, as an MCP server.

    An agent's host starts this command and speaks with it over standard input and output;
    it ends when its input does. With --http it serves by itself until Ctrl-C. The tool
    takes a query and, if the model likes, a limit; it returns passages, each under a
    heading to cite. Whose documents it searches, and how, only these options say.

    Needs the package mcp: pip install 'hrag\\[mcp]'.

    \b
    Examples:
      hrag mcp --tenant acme --description "the staff handbook of Acme"
      hrag mcp --tenant acme --mode auto_merge --token-budget 4000
      hrag mcp --tenant acme --http 127.0.0.1:8000
    """
    place = _place(http, expose) if http else None
    try:
        from hrag.cli import mcp_server  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise Failure(
            f"hrag mcp needs a package that is missing ({error}); "
            "install it with: pip install 'hrag[mcp]'"
        ) from None
    mcp_server.run(
        retriever,
        credentials,
        place,
        tenant,
        collection=collection,
        description=description,
        mode=mode,
        limit=limit,
        token_budget=token_budget,
        min_score=min_score,
        filter=filters.filter_of(filter or []),
    )


def _place(address: str, expose: bool) -> tuple[str, int]:
    """Host and port of an address where it is safe, or wanted, to listen."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > MAX_PORT:
        raise _refused(address, "it must be HOST:PORT, as in 127.0.0.1:8000")
    if host not in _LOOPBACK and not expose:
        raise _refused(
            address,
            "whoever reaches it could search, for it asks for no credential; use "
            f"{', '.join(_LOOPBACK[:-1])} or {_LOOPBACK[-1]}, or add --expose if something "
            "in front authenticates",
        )
    return host.strip("[]"), int(port)


def _refused(address: str, why: str) -> typer.BadParameter:
    return typer.BadParameter(f"{address!r}: {why}", param_hint="--http")
