"""`hrag health`: whether the services serve, told by the exit code."""

from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hrag.cli.connection import Credentials, connecting
from hrag.cli.console import output
from hrag.cli.options import DEFAULT_INDEXER, DEFAULT_RETRIEVER, Indexer, Retriever
from hrag.net.addresses import dial_address

if TYPE_CHECKING:  # gRPC is imported when the command runs.
    from hrag.cli.processes import Service
    from hrag.client.access import Access

_TIMEOUT_S = 2.0


class Named(StrEnum):
    """A service, as the command line names it."""

    INDEXER = "indexer"
    RETRIEVER = "retriever"


@connecting
def health(
    credentials: Credentials,
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
    from hrag.cli import processes  # noqa: PLC0415
    from hrag.client.access import Access  # noqa: PLC0415

    access = Access(**asdict(credentials))
    asked = {
        Named.INDEXER: (processes.INDEXER, indexer),
        Named.RETRIEVER: (processes.RETRIEVER, retriever),
    }
    ill = False
    for named in services or Named:
        service, address = asked[named]
        serves = is_serving(service, address, access)
        ill = ill or not serves
        says, style = ("serves", "green") if serves else ("does not serve", "red")
        output().print(
            f"{service.name} {says} at {address}", style=style, markup=False, soft_wrap=True
        )
    if ill:
        raise typer.Exit(1)


def is_serving(service: "Service", address: str, access: "Access") -> bool:
    """Asks the service at `address` once; one that cannot be reached does not serve."""
    import grpc  # noqa: PLC0415
    from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: PLC0415

    from hrag.client.calls import channel_options  # noqa: PLC0415

    place = dial_address(address)
    request = health_pb2.HealthCheckRequest(service=service.health_name)
    with access.channel(place, channel_options(place)) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)  # Its methods have no types.
        try:
            reply = stub.Check(request, timeout=_TIMEOUT_S)
        except grpc.RpcError:
            return False
        return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)
