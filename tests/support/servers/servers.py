"""A gRPC server in the test's process, with a servicer that the test provides."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import grpc

from hrag.config import CommonSettings
from hrag.server.serving import grpc_server
from hrag.server.serving.grpc_server import DEFAULT_CONNECTION_POLICY, ConnectionPolicy, Server
from hrag.server.serving.protection import open_protection
from hrag.v1 import indexer_pb2_grpc, retriever_pb2_grpc

INDEXER = "hrag.v1.IndexerService"
RETRIEVER = "hrag.v1.RetrieverService"
_REGISTER: dict[str, Callable[..., None]] = {
    INDEXER: indexer_pb2_grpc.add_IndexerServiceServicer_to_server,
    RETRIEVER: retriever_pb2_grpc.add_RetrieverServiceServicer_to_server,
}


def settings(**variables: object) -> CommonSettings:
    """Returns settings from `variables` and defaults for tests; ignores the environment."""
    return CommonSettings(**{"HRAG_THREADS": 4, "HRAG_EMBEDDER": "hash:8"} | variables)


def built(
    servicer: object,
    service: str = RETRIEVER,
    address: str = "127.0.0.1:0",
    *,
    connections: ConnectionPolicy = DEFAULT_CONNECTION_POLICY,
    **variables: object,
) -> Server:
    """Returns a server that has bound its port and is not started."""
    register = partial(_REGISTER[service], servicer)
    common = settings(**variables)
    protection = open_protection(common, address)
    return grpc_server.build(
        common, protection, address, service, register, connections=connections
    )


@contextmanager
def serving(
    servicer: object,
    service: str = RETRIEVER,
    *,
    connections: ConnectionPolicy = DEFAULT_CONNECTION_POLICY,
    **variables: object,
) -> Iterator[str]:
    """Runs a server with `servicer`; yields its address."""
    listening = built(servicer, service, connections=connections, **variables)
    listening.start()
    try:
        yield f"127.0.0.1:{listening.port}"
    finally:
        listening.stop(0)


@contextmanager
def connected(
    servicer: object, service: str = RETRIEVER, **variables: object
) -> Iterator[grpc.Channel]:
    """Runs a server with `servicer`; yields a channel to it."""
    with (
        serving(servicer, service, **variables) as address,
        grpc.insecure_channel(address) as channel,
    ):
        yield channel
