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

    try:
        # An address that is not used is never dialled; gRPC still wants a valid one.
        with Client(indexer or retriever, retriever or indexer) as client:
            yield client
    except ServiceUnavailable as error:
        named = {"indexer": indexer, "retriever": retriever}
        places = " or ".join(f"the {name} at {where}" for name, where in named.items() if where)
        raise ServiceUnavailable(
            f"cannot reach {places}; start both services with: hrag serve ({error.message})"
        ) from error
