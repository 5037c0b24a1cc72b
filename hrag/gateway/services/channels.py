"""Calls methods of both services, over one channel to each service."""

from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from hrag.client.calls import channel_options
from hrag.client.credentials import ClientCredentials
from hrag.config import PLAINTEXT_WORDS, GatewaySettings, SettingsError
from hrag.gateway.services.methods import INDEXER, METHODS, RETRIEVER, SERVICE_NAMES, ServiceMethod
from hrag.host.addresses import dial_address, is_loopback
from hrag.server.serving.protection import require_acknowledgement
from hrag.values.errors import InvalidArgument

_HEALTH = "/grpc.health.v1.Health/Check"
_HEALTH_S = 2.0

Metadata = list[tuple[str, str]]


class ServiceChannels:
    """Channels to both services, for one event loop."""

    def __init__(self, settings: GatewaySettings) -> None:
        """Creates the channels, which connect at the first call.

        Raises SettingsError if a certificate file or the address of a service cannot be used.
        """
        try:
            access = ClientCredentials(
                ca_file=settings.ca_file,
                cert_file=settings.cert_file,
                key_file=settings.key_file,
            )
        except InvalidArgument as error:
            raise SettingsError(f"HRAG_CA_FILE, HRAG_CERT_FILE, HRAG_KEY_FILE: {error}") from None
        self._channels = {}
        for service, address in ((INDEXER, settings.indexer), (RETRIEVER, settings.retriever)):
            _require_tls(settings, address)
            target = dial_address(address)
            self._channels[service] = access.aio_channel(target, channel_options(target))
        self._calls = {method.path: self._callable(method) for method in METHODS}

    def call(
        self, method: ServiceMethod, request: Any, metadata: Metadata, timeout_s: float | None
    ) -> Any:
        """Starts a call of a method, and returns the running call.

        `request` is an encoded message, an iterator of encoded messages, or None for a stream whose
        requests are written later. The responses are encoded messages. If the call fails, awaiting
        it raises `grpc.aio.AioRpcError`.
        """
        return self._calls[method.path](request, timeout=timeout_s, metadata=metadata)

    async def is_serving(self, service: str) -> bool:
        """Returns True if a service reports SERVING.

        Returns False if the service reports another state, or does not answer within two seconds.
        """
        check = self._channels[service].unary_unary(
            _HEALTH,
            health_pb2.HealthCheckRequest.SerializeToString,
            health_pb2.HealthCheckResponse.FromString,
        )
        request = health_pb2.HealthCheckRequest(service=SERVICE_NAMES[service])
        try:
            reply = await check(request, timeout=_HEALTH_S)
        except grpc.aio.AioRpcError:
            return False
        return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)

    async def close(self) -> None:
        """Closes the channels and cancels running calls."""
        for channel in self._channels.values():
            await channel.close()

    def _callable(self, method: ServiceMethod) -> Any:
        requests = "stream" if method.descriptor.client_streaming else "unary"
        responses = "stream" if method.descriptor.server_streaming else "unary"
        kind = getattr(self._channels[method.service], f"{requests}_{responses}")
        return kind(method.path)


def _require_tls(settings: GatewaySettings, address: str) -> None:
    """Raises SettingsError if callers' credentials would leave this machine in plaintext."""
    if is_loopback(dial_address(address)) or settings.ca_file or settings.cert_file:
        return
    require_acknowledgement(
        f"HRAG_CA_FILE is not set, and {address} is on another machine",
        "set it",
        "HRAG_INSECURE_PLAINTEXT",
        PLAINTEXT_WORDS,
        acknowledgement=settings.insecure_plaintext,
    )
