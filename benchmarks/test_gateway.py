"""Compares a search through the HTTP gateway with the gRPC call that the gateway makes for it.

One caller with one connection of each kind searches both ways alternately, with the same services
on one machine. All queries are searched once before, so that their vectors are cached and no
measured time includes an embedding. Replies are not decoded. The gateway shares the processor with
the services and the caller.
"""

import json
import random
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path

import grpc
import pytest

from benchmarks.report import Report, interleaved, ratio, seconds
from hrag.cli.processes import GATEWAY, ServiceProcesses, free_addresses
from hrag.client import Client
from hrag.types import Document, SearchQuery
from hrag.wire.retriever import search_request
from tests.support.documents.vocabulary import question, sentence

SEED = 83
DOCUMENTS = 60
SENTENCES = 200
QUERIES = 100
WARM_UP = 100
ROUNDS = 500
LIMITS = (5, 20)
MAX_RATIO = 1.6
TENANT = "acme"
SEARCH = "/hrag.v1.RetrieverService/Search"


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """The texts of the documents: sentences with a small vocabulary."""
    draw = random.Random(SEED)
    return ["".join(sentence(draw) for _ in range(SENTENCES)) for _ in range(DOCUMENTS)]


def test_latency_of_one_caller(texts: list[str], tmp_path: Path, report: Report) -> None:
    indexer, retriever, http = free_addresses(3)
    settings = {"HRAG_EMBEDDER": "hash:384"}
    services = ServiceProcesses(
        tmp_path / "store", indexer, retriever, http=http, logs=tmp_path, settings=settings
    )
    with services, Client(indexer, retriever) as client, grpc.insecure_channel(retriever) as direct:
        services.wait_until_serving(timeout_s=60)
        documents = [Document(text, f"d{number}") for number, text in enumerate(texts)]
        for outcome in client.ingest_many(TENANT, documents):
            assert not isinstance(outcome, Exception)
        assert services.addresses[GATEWAY] == http
        for limit in LIMITS:
            compare(direct, http, limit, report)


def compare(direct: grpc.Channel, http: str, limit: int, report: Report) -> None:
    """Measures searches with this limit through gRPC and through HTTP."""
    draw = random.Random(SEED)
    queries = [question(draw) for _ in range(QUERIES)]
    host, _, port = http.rpartition(":")
    call = direct.unary_unary(SEARCH)
    requests = [
        search_request(SearchQuery(TENANT, text, limit=limit)).SerializeToString()
        for text in queries
    ]
    bodies = [json.dumps({"tenantId": TENANT, "text": text, "limit": limit}) for text in queries]
    for request in requests:
        assert call(request)
    connection = HTTPConnection(host, int(port))
    measures: list[Callable[[int], float]] = [
        lambda number: seconds(lambda: call(requests[number % QUERIES])),
        lambda number: seconds(lambda: post(connection, bodies[number % QUERIES])),
    ]
    interleaved(measures, WARM_UP)
    took = interleaved(measures, ROUNDS) * 1e3
    connection.close()
    report.parameters(seed=SEED, documents=DOCUMENTS, limit=limit)
    key = f"gateway.limit_{limit}"
    report.percentiles(f"{key}.grpc", took[:, 0], f"Search by gRPC, limit {limit}")
    report.percentiles(f"{key}.http", took[:, 1], f"Search by HTTP, limit {limit}")
    description = f"Search by HTTP, ratio to gRPC, limit {limit}, p50"
    report.at_most(f"{key}.ratio", ratio(took, 1, 0), description, "x", MAX_RATIO)


def post(connection: HTTPConnection, body: str) -> bytes:
    """Sends a search to the gateway and returns the body of its response."""
    connection.request("POST", SEARCH, body, {"content-type": "application/json"})
    response = connection.getresponse()
    assert response.status == 200
    return response.read()
