"""`hrag health`: reports the health of the services, as output and exit code."""

from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hrag.cli.options.connection import Credentials, connection_options
from hrag.cli.options.shared import (
    DEFAULT_INDEXER,
    DEFAULT_RETRIEVER,
    AsJson,
    Indexer,
    Retriever,
)
from hrag.cli.terminal.console import print_json, print_line
from hrag.host.addresses import dial_address

if TYPE_CHECKING:  # The command imports gRPC only when it runs.
    from hrag.cli.services.processes import Service
    from hrag.client.credentials import Access

_TIMEOUT_S = 2.0


class ServiceName(StrEnum):
    """The name of a service on the command line."""

    INDEXER = "indexer"
    RETRIEVER = "retriever"


@connection_options
def health(
    credentials: Credentials,
    services: Annotated[
        list[ServiceName] | None, typer.Argument(help="The services to check. Default: both.")
    ] = None,
    indexer: Indexer = DEFAULT_INDEXER,
    retriever: Retriever = DEFAULT_RETRIEVER,
    as_json: AsJson = False,
) -> None:
    """Check whether the services are ready, for example as a container's health check.

    Each service is asked once and has two seconds to answer. The exit code is 0 if all of them
    serve. It is 1 if at least one does not, because it is starting, stopping or not running.

    \b
    Examples:
      hrag health
      hrag health retriever --retriever 127.0.0.1:50052
    """
    from hrag.cli.services import processes  # noqa: PLC0415
    from hrag.client.credentials import Access  # noqa: PLC0415

    access = Access(**asdict(credentials))
    targets = {
        ServiceName.INDEXER: (processes.INDEXER, indexer),
        ServiceName.RETRIEVER: (processes.RETRIEVER, retriever),
    }
    states = {}
    for name in services or ServiceName:
        service, address = targets[name]
        serves = is_serving(service, address, access)
        states[name.value] = {"address": address, "serves": serves}
        verb, style = ("serves", "green") if serves else ("does not serve", "red")
        if not as_json:
            print_line(f"{service.name} {verb} at {address}", style)
    if as_json:
        print_json(states)
    if not all(state["serves"] for state in states.values()):
        raise typer.Exit(1)


def is_serving(service: "Service", address: str, access: "Access") -> bool:
    """Returns True if the service at `address` reports SERVING; False also if it is unreachable."""
    import grpc  # noqa: PLC0415
    from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: PLC0415

    from hrag.client.calls import channel_options  # noqa: PLC0415

    target = dial_address(address)
    request = health_pb2.HealthCheckRequest(service=service.health_name)
    with access.channel(target, channel_options(target)) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)  # The stub has no type hints.
        try:
            reply = stub.Check(request, timeout=_TIMEOUT_S)
        except grpc.RpcError:
            return False
        return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)
