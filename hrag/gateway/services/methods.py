"""The methods of both services, from their descriptors: a new one is served without more code."""

from dataclasses import dataclass

from google.protobuf import message_factory
from google.protobuf.descriptor import FileDescriptor, MethodDescriptor
from google.protobuf.message import Message

from hrag.v1 import indexer_pb2, retriever_pb2

INDEXER, RETRIEVER = "indexer", "retriever"


@dataclass(frozen=True, slots=True)
class Method:
    """A method, with the service that has it and the classes of its messages."""

    service: str
    """INDEXER or RETRIEVER."""
    path: str
    descriptor: MethodDescriptor
    request: type[Message]
    response: type[Message]

    @property
    def name(self) -> str:
        """The name within the service."""
        return str(self.descriptor.name)


def _methods_of(service: str, file: FileDescriptor) -> list[Method]:
    return [
        Method(
            service,
            f"/{each.full_name}/{method.name}",
            method,
            message_factory.GetMessageClass(method.input_type),
            message_factory.GetMessageClass(method.output_type),
        )
        for each in file.services_by_name.values()
        for method in each.methods
    ]


METHODS = (
    *_methods_of(INDEXER, indexer_pb2.DESCRIPTOR),
    *_methods_of(RETRIEVER, retriever_pb2.DESCRIPTOR),
)
SERVICE_NAMES = {
    INDEXER: "hrag.v1.IndexerService",
    RETRIEVER: "hrag.v1.RetrieverService",
}


def method_named(name: str) -> Method:
    """Returns the method of that name; KeyError if there is none."""
    return _BY_NAME[name]


_BY_NAME = {each.name: each for each in METHODS}
