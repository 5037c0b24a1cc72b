"""The services, the limits and the conversions that every call through the gateway uses."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any

from starlette.requests import Request

from hrag.config import MAX_SEARCH_BYTES, GatewaySettings
from hrag.gateway.http import call_headers
from hrag.gateway.http.reply import CountedReply
from hrag.gateway.http.request_body import read_body
from hrag.gateway.protojson.conversion import Conversion
from hrag.gateway.services.channels import Metadata, ServiceChannels
from hrag.gateway.services.methods import INDEXER, ServiceMethod, method_named
from hrag.server.admission.byte_budget import ByteBudget, Share


class Exchange:
    """Sends requests to the services, and turns their responses into HTTP replies."""

    def __init__(self, settings: GatewaySettings, services: ServiceChannels) -> None:
        self.services = services
        self.budget = ByteBudget(
            settings.max_buffered_bytes,
            "buffered requests and replies",
            "HRAG_HTTP_MAX_BUFFERED_BYTES",
            by_credential=True,
        )
        self.conversion = Conversion()
        self.stream_idle_s = settings.stream_idle_timeout_s
        self._settings = settings

    def max_bytes(self, method: ServiceMethod) -> int:
        """Returns the maximum size in bytes of a request of the method."""
        is_write = method.service == INDEXER
        return self._settings.max_request_bytes if is_write else MAX_SEARCH_BYTES

    def share(self, request: Request) -> AbstractContextManager[Share]:
        """Returns a context manager that yields the request's share of the byte budget.

        The byte budget limits the bytes of all requests and replies that are in memory. The bytes
        of the share no longer count after the `with` block.
        """
        return self.budget.share(call_headers.caller(request))

    async def reply(
        self,
        request: Request,
        start: Callable[[Share], Awaitable[Any]],
        media_type: str,
        convert: Callable[[bytes], bytes] | None = None,
    ) -> CountedReply:
        """Starts a call with `start`, waits for its response, and returns the response as a reply.

        `start` gets the request's share of the byte budget, and returns the running call. `convert`
        makes the reply's body from the response. If `convert` is None, the response is the body.
        The bytes of the request and of the reply count in the gateway's byte budget until the
        client has read the reply. Raises the errors of `start` and of the call.
        """
        with ExitStack() as shares:
            share = shares.enter_context(self.share(request))
            response = await (await start(share))
            request.state.connection.accept()
            share.take(len(response))
            body = await self.converted(request, convert, response) if convert else response
            share.hold(len(body))
            return CountedReply(body, media_type, shares.pop_all())

    async def converted(
        self, request: Request, convert: Callable[[bytes], bytes], response: bytes
    ) -> bytes:
        """Converts a response of a service for the caller of `request` with `convert`."""
        caller = call_headers.caller_or_address(request)
        return await self.conversion.of_response(convert, response, caller)

    async def started(
        self,
        method: ServiceMethod,
        request: Request,
        share: Share,
        *,
        is_json: bool,
        message_in: Callable[[bytes], bytes] = lambda body: body,
    ) -> Any:
        """Starts the call that a request of the Connect protocol describes; returns the call.

        `message_in` extracts the message from the request's body; by default, the whole body is the
        message. If `is_json` is True, the message is then converted from JSON to protobuf. The
        bytes of the body count in `share`, the request's share of the byte budget. Raises HragError
        for an invalid request, and the errors of `authorize`.
        """
        call_headers.check_version(request)
        time_left_s = call_headers.time_left_s(request)
        metadata = call_headers.metadata(request)
        message = message_in(await self.body(method, request, share, metadata))
        if is_json:
            caller = call_headers.caller_or_address(request)
            message = await self.conversion.encoded(method.request, message, caller)
        return self.services.call(method, message, metadata, time_left_s())

    async def body(
        self, method: ServiceMethod, request: Request, share: Share, metadata: Metadata
    ) -> bytes:
        """Returns the body of a request.

        A large body is read only after a service has accepted the caller's credential. The bytes of
        the body count in `share`, the request's share of the byte budget. Raises the errors of
        `read_body` and of `authorize`.
        """
        authorize = partial(self.authorize, request, metadata)
        arrival_s = self._settings.arrival_timeout_s
        return await read_body(request, self.max_bytes(method), arrival_s, share, authorize)

    async def authorize(self, request: Request, metadata: Metadata) -> None:
        """Checks the caller's credential with a call of GetServerInfo.

        Raises `grpc.aio.AioRpcError` if the service refuses the credential or cannot be reached.
        """
        await self.services.call(method_named("GetServerInfo"), b"", metadata, None)
        request.state.connection.accept()
