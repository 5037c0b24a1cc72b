"""A service's gRPC server inside the test's own process, around a servicer of the test."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import grpc

from hrag.config import CommonSettings
from hrag.rpc import server
from hrag.rpc.protection import open_protection
from hrag.rpc.server import Server
from hrag.v1 import indexer_pb2_grpc, retriever_pb2_grpc

INDEXER = "hrag.v1.IndexerService"
RETRIEVER = "hrag.v1.RetrieverService"
_REGISTER: dict[str, Callable[..., None]] = {
    INDEXER: indexer_pb2_grpc.add_IndexerServiceServicer_to_server,
    RETRIEVER: retriever_pb2_grpc.add_RetrieverServiceServicer_to_server,
}


def settings(**variables: object) -> CommonSettings:
    """Settings from variables, whatever the environment says."""
    return CommonSettings(**{"HRAG_THREADS": 4, "HRAG_EMBEDDER": "hash:8"} | variables)


def built(
    servicer: object, service: str = RETRIEVER, address: str = "127.0.0.1:0", **variables: object
) -> Server:
    """A server that is bound, and not started yet."""
    register = partial(_REGISTER[service], servicer)
    own = settings(**variables)
    return server.build(own, open_protection(own, address), address, service, register)


@contextmanager
def serving(servicer: object, service: str = RETRIEVER, **variables: object) -> Iterator[str]:
    """The address of a server that answers with `servicer`."""
    listening = built(servicer, service, **variables)
    listening.start()
    try:
        yield f"127.0.0.1:{listening.port}"
    finally:
        listening.stop(0)


@contextmanager
def connected(
    servicer: object, service: str = RETRIEVER, **variables: object
) -> Iterator[grpc.Channel]:
    """A channel to such a server."""
    with serving(servicer, service, **variables) as address, grpc.insecure_channel(address) as one:
        yield one
