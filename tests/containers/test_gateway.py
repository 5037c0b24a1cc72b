"""In the profile `http`, the gateway finds both services and forwards its callers' keys."""

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

from hrag.cli.processes import free_addresses
from hrag.types import Document
from tests.containers.engine import eventually
from tests.containers.stack import Stack

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900)]

Ask = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def ask(stack: Stack) -> Iterator[Ask]:
    """A function that sends a request to the gateway, which runs as with `--profile http`."""
    (address,) = free_addresses(1)
    settings = {"COMPOSE_PROFILES": "http", "HRAG_HTTP_PORT": address.rpartition(":")[2]}
    engine = stack.engine.extended(**settings)

    def ask(path: str, token: str = "", **values: Any) -> dict[str, Any]:
        headers = {"content-type": "application/json"}
        if token:
            headers["authorization"] = f"Bearer {token}"
        body = json.dumps(values).encode() if values else None
        with urlopen(Request(f"http://{address}{path}", body, headers), timeout=60) as reply:
            answer: dict[str, Any] = json.load(reply)
            return answer

    def is_ready() -> bool:
        try:
            return all(ask("/healthz/ready").values())
        except (URLError, ConnectionError):
            # The gateway is starting.
            return False

    engine.up("gateway")
    try:
        eventually(is_ready, "the gateway is ready")
        yield ask
    finally:
        engine.stop("gateway")


def test_a_search_over_http_finds_documents_of_the_services(stack: Stack, ask: Ask) -> None:
    with stack.client() as client:
        client.ingest("http", Document("Cats sleep. Dogs bark.", "pets"))
    search = "/hrag.v1.RetrieverService/Search"
    result = ask(search, stack.token, tenantId="http", text="dogs", limit=1)
    assert result["passages"][0]["chunk"]["content"] == "Cats sleep. Dogs bark."
    with pytest.raises(HTTPError, match="401"):
        ask(search, tenantId="http", text="dogs", limit=1)
