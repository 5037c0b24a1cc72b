"""All methods of hrag's services, from their descriptors, and how to call them."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message

from hrag.v1 import indexer_pb2, retriever_pb2

SERVICES = {
    service.full_name: service
    for module in (indexer_pb2, retriever_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
}
METHODS: dict[str, MethodDescriptor] = {
    f"/{service.full_name}/{method.name}": method
    for service in SERVICES.values()
    for method in service.methods
}
# Messages of filters and metadata may contain themselves. So `_fill` stops at this depth.
_MAX_DEPTH = 4


def servicer_of(service: str) -> Any:
    """Returns a servicer of a service; it answers every request with an empty response."""
    handlers = {method.name: _handler(method) for method in SERVICES[service].methods}
    return type("Servicer", (), handlers)()


def _handler(method: MethodDescriptor) -> Any:
    response = message_factory.GetMessageClass(method.output_type)

    def unary(_self: Any, request: Any, context: Any) -> Any:
        return response()

    def stream(_self: Any, requests: Any, context: Any) -> Iterator[Any]:
        for _ in requests if method.client_streaming else [requests]:
            yield response()

    return stream if method.server_streaming else unary


def request_of(method: MethodDescriptor, *tenants: str) -> Message:
    """Returns a request of the method. Its fields `tenant_id` get the tenants in this order."""
    names = iter(tenants)
    message = message_factory.GetMessageClass(method.input_type)()
    if method.name == "BatchSearch":
        for tenant in names:
            message.searches.add(tenant_id=tenant)  # type: ignore[attr-defined]
    else:
        _fill(message, names, _MAX_DEPTH)
    return message


def marked(method: MethodDescriptor) -> tuple[Message, set[str]]:
    """Returns a request whose fields `tenant_id` all have distinct values, and the set of these."""
    message = message_factory.GetMessageClass(method.input_type)()
    names_used: set[str] = set()

    def names() -> Iterator[str]:
        for index in count():
            names_used.add(f"t{index}")
            yield f"t{index}"

    _fill(message, names(), _MAX_DEPTH)
    return message, names_used


def _fill(message: Message, names: Iterator[str], depth: int) -> None:
    for field in message.DESCRIPTOR.fields:
        if field.name == "tenant_id":
            message.tenant_id = next(names)  # type: ignore[attr-defined]
        elif field.type == FieldDescriptor.TYPE_MESSAGE and depth and _names_tenants(field, depth):
            inner = getattr(message, field.name)
            for inner_message in [inner.add(), inner.add()] if field.is_repeated else [inner]:
                _fill(inner_message, names, depth - 1)


def _names_tenants(field: FieldDescriptor, depth: int) -> bool:
    """True if a field `tenant_id` is reachable through this message field."""
    if field.message_type.GetOptions().map_entry:
        return False
    return any(
        inner.name == "tenant_id"
        or (
            inner.type == FieldDescriptor.TYPE_MESSAGE
            and depth
            and _names_tenants(inner, depth - 1)
        )
        for inner in field.message_type.fields
    )


def code_of(
    channel: grpc.Channel, path: str, requests: list[Message], *headers: tuple[str, str]
) -> grpc.StatusCode:
    """Calls the method with this path; returns the status code of the call."""
    method = METHODS[path]
    response = message_factory.GetMessageClass(method.output_type)
    kind = f"{_kind(method.client_streaming)}_{_kind(method.server_streaming)}"
    send = getattr(channel, kind)(
        path, lambda message: message.SerializeToString(), response.FromString
    )
    request = iter(requests) if method.client_streaming else requests[0]
    try:
        result = send(request, timeout=60, metadata=headers)
        if method.server_streaming:
            list(result)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def _kind(streaming: bool) -> str:
    return "stream" if streaming else "unary"
