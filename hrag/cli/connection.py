"""A client for one command, whose unreachable service says how to start it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hrag.errors import ServiceUnavailable

if TYPE_CHECKING:  # gRPC takes a moment to import; commands that need none never do.
    from hrag.client import Client


@contextmanager
def connected(indexer: str = "", retriever: str = "") -> Iterator["Client"]:
    """A client of the services named; an address left empty is not used.

    Raises ServiceUnavailable with the addresses and the command that starts the services.
    """
    from hrag.client import Client  # noqa: PLC0415

    addresses = {name: value for name, value in (("indexer", indexer), ("retriever", retriever))}
    given = {name: value for name, value in addresses.items() if value}
    try:
        with Client(**given) as client:
            yield client
    except ServiceUnavailable as error:
        raise unreachable(given, error) from error


def unreachable(addresses: dict[str, str], error: ServiceUnavailable) -> ServiceUnavailable:
    """The error as a reader of the command line can act on it."""
    places = " and ".join(f"the {name} at {address}" for name, address in addresses.items())
    return ServiceUnavailable(
        f"cannot reach {places}; start the services with: hrag serve ({error.message})"
    )
