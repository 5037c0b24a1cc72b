"""`hrag health` says why a service does not serve."""

from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from hrag.cli.processes import INDEXER as INDEXER_SERVICE
from hrag.cli.status import health_problem
from hrag.client.credentials import ClientCredentials
from tests.support.methods import servicer_of
from tests.support.servers.pki import Authority
from tests.support.servers.servers import INDEXER, RETRIEVER, serving


def problem(address: str, **credentials: object) -> str:
    """Returns what `hrag health` says about the indexer at the address."""
    return health_problem(INDEXER_SERVICE, address, ClientCredentials(**credentials))


def test_a_service_that_serves_has_no_problem():
    with serving(servicer_of(INDEXER), INDEXER) as address:
        assert problem(address) == ""


def test_no_service_and_the_other_service_are_told_apart():
    assert "refused" in problem("127.0.0.1:9")
    assert "TLS" not in problem("127.0.0.1:9")
    with serving(servicer_of(RETRIEVER), RETRIEVER) as address:
        assert problem(address) == "the other service of hrag listens there"


def test_a_service_with_tls_and_one_without_are_named(tmp_path):
    authority = Authority(tmp_path, "ours")
    pair = authority.issue()
    files = {"HRAG_TLS_CERT_FILE": pair.cert_file, "HRAG_TLS_KEY_FILE": pair.key_file}
    with serving(servicer_of(INDEXER), INDEXER, **files) as address:
        assert "if it serves with TLS, give ca_file" in problem(address)
        assert problem(address, ca_file=authority.ca_file) == ""
    with serving(servicer_of(INDEXER), INDEXER) as address:
        assert "it may serve without TLS" in problem(address, ca_file=authority.ca_file)


@pytest.mark.parametrize("name", ["NOT_SERVING", "UNKNOWN", "SERVICE_UNKNOWN"])
def test_a_service_that_is_up_and_not_ready_refers_to_its_log(name):
    states = health.HealthServicer()
    status = health_pb2.HealthCheckResponse.ServingStatus.Value(name)
    states.set(INDEXER_SERVICE.health_name, status)
    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool)
        health_pb2_grpc.add_HealthServicer_to_server(states, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            assert problem(f"127.0.0.1:{port}").endswith("cannot use its store, as its log says")
        finally:
            server.stop(0).wait()
