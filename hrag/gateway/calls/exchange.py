"""What every call through the gateway shares: the services, the bounds, the conversions."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any

from starlette.requests import Request

from hrag.config import MAX_SEARCH_BYTES, GatewaySettings
from hrag.gateway.http import call_headers
from hrag.gateway.http.byte_budget import ByteBudget, Share
from hrag.gateway.http.reply import CountedReply
from hrag.gateway.http.request_body import read_body
from hrag.gateway.protojson.conversion import Conversion
from hrag.gateway.services.channels import Metadata, Services
from hrag.gateway.services.methods import INDEXER, Method, method_named


class Exchange:
    """Carries requests to the services."""

    def __init__(self, settings: GatewaySettings, services: Services) -> None:
        self.services = services
        self.budget = ByteBudget(settings.max_buffered_bytes)
        self.conversion = Conversion()
        self.stream_idle_s = settings.stream_idle_timeout_s
        self._settings = settings

    def max_bytes(self, method: Method) -> int:
        """Returns the size in bytes that a request of the method may have."""
        is_write = method.service == INDEXER
        return self._settings.max_request_bytes if is_write else MAX_SEARCH_BYTES

    def share(self, request: Request) -> AbstractContextManager[Share]:
        """Returns the share of a request in what the gateway holds, which ends with its context."""
        return self.budget.share(call_headers.caller(request))

    async def reply(
        self,
        request: Request,
        start: Callable[[Share], Awaitable[Any]],
        media_type: str,
        convert: Callable[[bytes], bytes] | None = None,
    ) -> CountedReply:
        """Returns the reply with the response of the call that `start` returns.

        `convert` makes its body from the response; without it they are the same. Request and
        reply count as held until the reply is read. Raises what `start` and the call raise.
        """
        with ExitStack() as held:
            share = held.enter_context(self.share(request))
            response = await (await start(share))
            request.state.connection.accept()
            share.take(len(response))
            body = await self.conversion.of_response(convert, response) if convert else response
            share.hold(len(body))
            return CountedReply(body, media_type, held.pop_all())

    async def started(
        self,
        method: Method,
        request: Request,
        share: Share,
        *,
        is_json: bool,
        message_in: Callable[[bytes], bytes] = lambda body: body,
    ) -> Any:
        """Returns the call that a request of the Connect protocol asks for.

        `message_in` finds the message in the body. Raises HragError for what is wrong with the
        request, and what `authorize` raises.
        """
        call_headers.check_version(request)
        time_left_s = call_headers.time_left_s(request)
        metadata = call_headers.metadata(request)
        message = message_in(await self.body(method, request, share, metadata))
        if is_json:
            message = await self.conversion.encoded(method.request, message)
        return self.services.call(method, message, metadata, time_left_s())

    async def body(
        self, method: Method, request: Request, share: Share, metadata: Metadata
    ) -> bytes:
        """Returns the body of a request; large ones only of callers that the services accept.

        Raises what `read_body` and `authorize` raise.
        """
        authorize = partial(self.authorize, request, metadata)
        arrival_s = self._settings.arrival_timeout_s
        return await read_body(request, self.max_bytes(method), arrival_s, share, authorize)

    async def authorize(self, request: Request, metadata: Metadata) -> None:
        """Raises `grpc.aio.AioRpcError` if the services do not accept the credential."""
        await self.services.call(method_named("GetServerInfo"), b"", metadata, None)
        request.state.connection.accept()
