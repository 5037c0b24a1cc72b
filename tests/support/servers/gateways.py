"""A gateway in the test's process, in a thread with a separate event loop, and its client."""

import json
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any

from hrag.config import GatewaySettings
from hrag.gateway.app import serve
from tests.support.until import PATIENCE_S

JSON = {"content-type": "application/json"}
SEARCH = "/hrag.v1.RetrieverService/Search"
INGEST = "/hrag.v1.IndexerService/IngestDocument"
INGEST_MANY = "/hrag.v1.IndexerService/IngestDocuments"
ANSWER = "/hrag.v1.RetrieverService/Answer"


@dataclass(frozen=True)
class Reply:
    """An HTTP response that has been read."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def field(self) -> str:
        """The name of the request's field that an error reports."""
        (field,) = (
            detail["debug"]["fieldViolations"][0]["field"]
            for detail in self.json["details"]
            if detail["type"] == "google.rpc.BadRequest"
        )
        return str(field)

    @property
    def reason(self) -> str:
        """The reason of an error, which is stable because clients depend on it."""
        return str(self.json["details"][0]["debug"]["reason"])


@dataclass(frozen=True)
class Gateway:
    """A gateway that serves at a port of 127.0.0.1."""

    port: int
    ca_file: Path | None = None
    """The authority that issued the gateway's certificate; None if the gateway has no TLS."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http{'s' if self.ca_file else ''}://{self.address}"

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Reply:
        """Posts `body` and returns the reply. A body that is not bytes is encoded as JSON."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.send("POST", path, raw, {**JSON, **(headers or {})})

    def send(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Reply:
        with self.connection() as connection:
            connection.request(method, path, body, headers or {})
            return _read(connection.getresponse())

    @contextmanager
    def connection(self) -> Iterator[HTTPConnection]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        if self.ca_file:
            tls = ssl.create_default_context(cafile=self.ca_file)
            connection = HTTPSConnection("127.0.0.1", self.port, timeout=PATIENCE_S, context=tls)
        try:
            yield connection
        finally:
            connection.close()


def _read(response: HTTPResponse) -> Reply:
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Reply(response.status, headers, response.read())


def gateway_settings(indexer: str, retriever: str, **variables: object) -> GatewaySettings:
    """Returns settings from `variables` and defaults for tests; ignores the environment."""
    defaults = {
        "HRAG_HTTP_ADDRESS": "127.0.0.1:0",
        "HRAG_INDEXER_ADDRESS": indexer,
        "HRAG_RETRIEVER_ADDRESS": retriever,
        "HRAG_DRAIN_S": 2.0,
        # The machine may stand still while a request arrives.
        "HRAG_ARRIVAL_TIMEOUT_S": PATIENCE_S,
    }
    return GatewaySettings(**defaults | variables)


@contextmanager
def gateway_to(
    indexer: str, retriever: str, ca_file: Path | None = None, **variables: object
) -> Iterator[Gateway]:
    """Runs a gateway to the services at these addresses; fails if it ends with an error.

    If the gateway has a certificate, its clients trust the authority in `ca_file`.
    """
    stopping = threading.Event()
    port: Future[int] = Future()
    settings = gateway_settings(indexer, retriever, **variables)
    with ThreadPoolExecutor(1) as thread:
        serving = thread.submit(serve, settings, stopping, port.set_result)
        serving.add_done_callback(lambda _: port.cancel())
        try:
            yield Gateway(port.result(PATIENCE_S), ca_file)
        finally:
            stopping.set()
        serving.result(PATIENCE_S)
