"""Serves the health checks: is the gateway alive, and are both services serving?"""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from hrag.gateway.http.reply import json_reply
from hrag.gateway.http.routes import Route
from hrag.gateway.protojson.json_writer import dumped
from hrag.gateway.services.channels import ServiceChannels
from hrag.gateway.services.methods import SERVICE_NAMES

_UNAVAILABLE = 503


def health_routes(services: ServiceChannels) -> dict[str, Route]:
    """Returns the routes of the liveness check and of the readiness check.

    The liveness check succeeds if the gateway answers. The readiness check succeeds if both
    services report that they are serving.
    """

    async def ready(_request: Request) -> Response:
        serving = await asyncio.gather(*map(services.is_serving, SERVICE_NAMES))
        reply = json_reply(dumped(dict(zip(SERVICE_NAMES, serving, strict=True))))
        if not all(serving):
            reply.status_code = _UNAVAILABLE
        return reply

    return {"/healthz/live": Route(_live), "/healthz/ready": Route(ready)}


async def _live(_request: Request) -> Response:
    return json_reply(b"{}")
