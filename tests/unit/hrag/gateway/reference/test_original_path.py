"""The OpenAPI document has every path that a program may call, also the download of an original."""

import asyncio
from collections.abc import Mapping
from importlib.resources import files

from hrag.config import GatewaySettings
from hrag.gateway.app import routes
from hrag.gateway.calls.exchange import Exchange
from hrag.gateway.health_route import health_routes
from hrag.gateway.http.routes import Route
from hrag.gateway.http.static_files import static_routes
from hrag.gateway.reference.openapi import document
from hrag.gateway.reference.original_path import ORIGINAL, ORIGINAL_PARAMETERS
from hrag.gateway.reference.proto_comments import read_comments
from hrag.gateway.services.channels import ServiceChannels
from hrag.gateway.services.methods import METHODS


async def _routes() -> tuple[Mapping[str, Route], Mapping[str, Route]]:
    """Returns all routes of a gateway, and those that tell its health."""
    settings = GatewaySettings()
    exchange = Exchange(settings, ServiceChannels(settings))
    try:
        return routes(exchange), health_routes(exchange.services)
    finally:
        await exchange.services.close()
        exchange.conversion.close()


def test_every_path_that_a_program_may_call_is_in_the_document() -> None:
    """Left out are the files of the pages, health, and the path whose protocol Dify defines."""
    served, health = asyncio.run(_routes())
    pages = {*health, "/openapi.json", "/retrieval"}
    for folder, index in (("explorer", "/"), ("docs", "/docs")):
        pages |= set(static_routes(files("hrag.gateway") / folder, index))
    described = document(METHODS, read_comments())["paths"]
    assert set(served) - pages == set(described)
    for path, operations in described.items():
        assert {method.upper() for method in operations} == set(served[path].methods)


def test_the_download_says_what_it_takes_and_returns() -> None:
    operation = document(METHODS, read_comments())["paths"][ORIGINAL]["get"]
    parameters = {one["name"]: one for one in operation["parameters"]}
    query = {name for name, one in parameters.items() if one["in"] == "query"}
    assert query == set(ORIGINAL_PARAMETERS)
    assert {name for name in query if parameters[name]["required"]} == {"tenant_id", "document_id"}
    assert {name for name in parameters if name not in query} == {"Range", "If-Range"}
    replies = operation["responses"]
    assert list(replies) == ["200", "206", "404", "416", "default"]
    for status in ("200", "206"):
        schema = replies[status]["content"]["application/octet-stream"]["schema"]
        assert schema == {"type": "string", "format": "binary"}
    assert "content-range" in replies["206"]["headers"]
    assert "content-range" in replies["416"]["headers"]
