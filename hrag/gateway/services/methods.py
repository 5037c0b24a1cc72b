"""The methods of both services, read from their descriptors.

A method that is added to a .proto file is served without a change in the gateway.
"""

from dataclasses import dataclass

from google.protobuf import message_factory
from google.protobuf.descriptor import FileDescriptor, MethodDescriptor
from google.protobuf.message import Message

from hrag.v1 import indexer_pb2, retriever_pb2

INDEXER, RETRIEVER = "indexer", "retriever"


@dataclass(frozen=True, slots=True)
class ServiceMethod:
    """A method of a service, and the classes of its request and its response."""

    service: str
    """INDEXER or RETRIEVER."""
    path: str
    descriptor: MethodDescriptor
    request: type[Message]
    response: type[Message]

    @property
    def name(self) -> str:
        """The name of the method, without the name of its service."""
        return str(self.descriptor.name)


def _methods_of(service: str, file: FileDescriptor) -> list[ServiceMethod]:
    return [
        ServiceMethod(
            service,
            f"/{descriptor.full_name}/{method.name}",
            method,
            message_factory.GetMessageClass(method.input_type),
            message_factory.GetMessageClass(method.output_type),
        )
        for descriptor in file.services_by_name.values()
        for method in descriptor.methods
    ]


METHODS = (
    *_methods_of(INDEXER, indexer_pb2.DESCRIPTOR),
    *_methods_of(RETRIEVER, retriever_pb2.DESCRIPTOR),
)
SERVICE_NAMES = {
    INDEXER: "hrag.v1.IndexerService",
    RETRIEVER: "hrag.v1.RetrieverService",
}


def method_named(name: str) -> ServiceMethod:
    """Returns the method with this name; raises KeyError if there is none."""
    return _BY_NAME[name]


_BY_NAME = {method.name: method for method in METHODS}
