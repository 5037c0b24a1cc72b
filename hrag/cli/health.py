"""`hrag health`: whether the services serve, told by the exit code."""

from enum import StrEnum
from typing import Annotated

import typer

from hrag.cli.console import output
from hrag.cli.options import DEFAULT_INDEXER, DEFAULT_RETRIEVER, Indexer, Retriever


class Named(StrEnum):
    """A service, as the command line names it."""

    INDEXER = "indexer"
    RETRIEVER = "retriever"


def health(
    services: Annotated[
        list[Named] | None, typer.Argument(help="Which services; both unless named.")
    ] = None,
    indexer: Indexer = DEFAULT_INDEXER,
    retriever: Retriever = DEFAULT_RETRIEVER,
) -> None:
    """Ask the services whether they serve; for health checks of containers.

    Each is asked once, for two seconds at most. Exit code 0: all that were asked serve;
    1: one does not, be it still starting, stopping or gone.

    \b
    Examples:
      hrag health
      hrag health retriever --retriever 127.0.0.1:50052
    """
    from hrag.cli import running  # noqa: PLC0415

    asked = {
        Named.INDEXER: (running.INDEXER, indexer),
        Named.RETRIEVER: (running.RETRIEVER, retriever),
    }
    ill = False
    for named in services or Named:
        service, address = asked[named]
        serves = running.is_serving(service, address)
        ill = ill or not serves
        says, style = ("serves", "green") if serves else ("does not serve", "red")
        output().print(
            f"{service.name} {says} at {address}", style=style, markup=False, soft_wrap=True
        )
    if ill:
        raise typer.Exit(1)
