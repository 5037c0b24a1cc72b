"""Services and commands work with TLS and client certificates."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hrag.cli.app import app
from hrag.cli.processes import ServiceFailed, ServiceProcesses, free_addresses
from hrag.client import Client
from hrag.errors import ServiceUnavailable
from hrag.server.auth import Role
from hrag.types import Document
from tests.support.servers.credentials import TENANT, new_key
from tests.support.servers.pki import Authority
from tests.support.servers.processes import FAST, START_S


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


@pytest.fixture
def secured(authority: Authority, tmp_path: Path):
    """Settings of services with two retriever processes, and the credentials of a client."""
    pair, client_pair = authority.issue(), authority.issue("client")
    token = new_key(tmp_path / "keys.json", role=Role.WRITE)
    settings = {
        **FAST,
        "HRAG_TLS_CERT_FILE": str(pair.cert_file),
        "HRAG_TLS_KEY_FILE": str(pair.key_file),
        "HRAG_TLS_CLIENT_CA_FILE": str(authority.ca_file),
        "HRAG_AUTH": "api_key",
        "HRAG_API_KEYS_FILE": str(tmp_path / "keys.json"),
        "HRAG_WORKERS": "2",
    }
    access = {
        "token": token,
        "ca_file": authority.ca_file,
        "cert_file": client_pair.cert_file,
        "key_file": client_pair.key_file,
    }
    return settings, access


def test_services_on_all_addresses_serve_clients_with_certificate_and_key(secured, tmp_path):
    settings, access = secured
    ports = [address.rpartition(":")[2] for address in free_addresses(2)]
    services = ServiceProcesses(
        tmp_path / "data", *(f"0.0.0.0:{port}" for port in ports), settings=settings
    )
    indexer, retriever = (f"127.0.0.1:{port}" for port in ports)
    with services:
        services.wait_until_serving(START_S)
        with Client(indexer, retriever, **access) as client:
            client.ingest(TENANT, Document("Cats sleep all day.", "cats"))
            assert client.search(TENANT, "cats").passages
        nobody = {name: access[name] for name in ("token", "ca_file")}
        with (
            Client(indexer, retriever, **nobody) as client,
            pytest.raises(ServiceUnavailable),
        ):
            client.list_documents(TENANT)
        env = {
            "HRAG_INDEXER_ADDRESS": indexer,
            "HRAG_RETRIEVER_ADDRESS": retriever,
            "HRAG_TOKEN": access["token"],
            "HRAG_CA_FILE": str(access["ca_file"]),
        }
        certificate = ["--cert", str(access["cert_file"]), "--key", str(access["key_file"])]
        for command in (["search", "cats"], ["status"], ["tree", "cats"]):
            result = CliRunner().invoke(app, [*command, "--tenant", TENANT, *certificate], env=env)
            assert result.exit_code == 0, result.output
        wrong = CliRunner().invoke(app, ["search", "cats", *certificate[:2]], env=env)
        assert "and needs key_file" in wrong.stderr
    services.check_stopped_cleanly()


@pytest.mark.slow
def test_hrag_serve_needs_no_client_certificate(secured, tmp_path):
    settings, access = secured
    indexer, retriever = free_addresses(2)
    main = "from hrag.cli import main; main()"
    command = [sys.executable, "-c", main, "serve", "--data-dir", str(tmp_path / "data")]
    addresses = {"HRAG_INDEXER_ADDRESS": indexer, "HRAG_RETRIEVER_ADDRESS": retriever}
    serving = subprocess.Popen(
        command, env={**os.environ, **settings, **addresses}, stdout=subprocess.PIPE, text=True
    )
    try:
        assert serving.stdout is not None
        lines = [serving.stdout.readline() for _ in range(2)]
        assert [line.split(" at ")[0] for line in lines] == ["indexer serves", "retriever serves"]
        with Client(indexer, retriever, **access) as client:
            client.server_info()
    finally:
        serving.send_signal(signal.SIGINT)
        serving.communicate(timeout=START_S)
    assert serving.returncode == 0


def test_a_service_that_never_serves_is_abandoned(tmp_path):
    services = ServiceProcesses(tmp_path / "data", *free_addresses(2), settings=FAST)
    began = time.monotonic()
    with services, pytest.raises(ServiceFailed, match="does not serve after 0 s"):
        services.wait_until_serving(0.0)
    assert time.monotonic() - began < START_S
