"""Running services with API keys, from `hrag keys create` to a refusal."""

import time
from pathlib import Path

import grpc
import pytest
from typer.testing import CliRunner

from hrag.cli.app import app
from hrag.cli.processes import INDEXER, RETRIEVER
from hrag.client import Client
from hrag.config import NO_AUTH_WORDS
from hrag.errors import HragError, PermissionDenied, Unauthenticated
from hrag.server.auth import Role, api_keys
from hrag.types import Document, IngestResult, SearchQuery
from hrag.v1 import indexer_pb2, types_pb2
from tests.support.servers.credentials import OTHER, TENANT, id_of, new_key
from tests.support.servers.processes import FAST, Process, Running, running


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys") / "keys.json"


@pytest.fixture(scope="module")
def made(key_file: Path) -> dict[str, str]:
    """Keys by purpose."""
    return {
        "own": new_key(key_file, role=Role.WRITE),
        "other": new_key(key_file, OTHER, role=Role.ADMIN),
        "first": new_key(key_file, "first", role=Role.WRITE),
        "withdrawn": new_key(key_file),
    }


@pytest.fixture(scope="module")
def guarded(key_file: Path, made: dict[str, str], tmp_path_factory: pytest.TempPathFactory):
    """Services that require keys; two retriever processes, because each checks for itself."""
    own = {"HRAG_AUTH": "api_key", "HRAG_API_KEYS_FILE": str(key_file), "HRAG_WORKERS": "2"}
    with running(tmp_path_factory.mktemp("auth") / "store", {**FAST, **own}) as both:
        yield both


def _client(services: Running, token: str) -> Client:
    return Client(services.indexer.address, services.retriever.address, token=token)


def test_a_key_reaches_only_the_data_of_its_tenants(guarded, made):
    with _client(guarded, made["own"]) as client, _client(guarded, made["other"]) as stranger:
        stored = list(client.ingest_many(TENANT, [Document("Cats sleep.", "cats")]))
        assert isinstance(stored[0], IngestResult)
        assert client.search(TENANT, "cats").passages
        for call in (
            lambda: stranger.search(TENANT, "cats"),
            lambda: stranger.get_text(TENANT, "cats"),
            lambda: stranger.batch_search([SearchQuery(OTHER, "a"), SearchQuery(TENANT, "a")]),
            lambda: stranger.delete_collection(TENANT, "default"),
            lambda: client.delete_collection(TENANT, "default"),
            lambda: list(stranger.ingest_many(TENANT, [Document("Mine.", "cats")])),
        ):
            with pytest.raises(PermissionDenied):
                call()
        assert client.get_text(TENANT, "cats") == "Cats sleep."


def test_a_stream_keeps_documents_before_that_of_another_tenant(guarded, made):
    def requests():
        for tenant, name in (("first", "a"), (TENANT, "b"), ("first", "c")):
            document = types_pb2.Document(document_id=name, text=f"Text {name}.")
            yield indexer_pb2.IngestDocumentsRequest(tenant_id=tenant, document=document)

    headers = (("authorization", f"Bearer {made['first']}"),)
    with pytest.raises(grpc.RpcError, match="may not act for tenant"):
        list(guarded.raw_indexer.IngestDocuments(requests(), metadata=headers))
    with _client(guarded, made["first"]) as client:
        listed = [info.document_id for info in client.list_documents("first").items]
    assert listed == ["a"]


def test_a_revoked_key_is_refused_within_two_seconds(guarded, key_file, made):
    key = made["withdrawn"]
    clients = [_client(guarded, key) for _ in range(6)]  # Connections of both workers.
    for client in clients:
        client.server_info()
    api_keys.revoke(key_file, id_of(key))
    time.sleep(2)
    for client in clients:
        with pytest.raises(Unauthenticated):
            client.server_info()
        client.close()


def test_a_damaged_key_file_locks_nobody_out(guarded, key_file, made):
    good = key_file.read_bytes()
    key_file.write_bytes(good[:50])
    time.sleep(1.1)
    with _client(guarded, made["own"]) as client:
        client.list_collections(TENANT)
    key_file.write_bytes(good)
    assert "reload_failed" in guarded.indexer.log


def _run(services: Running, token: str, *arguments: str):
    env = {
        "NO_COLOR": "1",
        "HRAG_INDEXER_ADDRESS": services.indexer.address,
        "HRAG_RETRIEVER_ADDRESS": services.retriever.address,
        "HRAG_TOKEN": token,
    }
    return CliRunner().invoke(app, arguments, env=env)


def test_every_command_takes_a_token_made_while_services_run(guarded, key_file, tmp_path):
    arguments = ["keys", "create", "--file", str(key_file), "--tenant", "cli", "--role", "write"]
    key = CliRunner().invoke(app, arguments).stdout.strip()
    (tmp_path / "cats.md").write_text("# Cats\n\nCats sleep all day.\n", "utf-8")
    time.sleep(1.1)  # The services check the file once a second.
    for arguments in (
        ("ingest", str(tmp_path)),
        ("search", "cats"),
        ("tree", "cats.md"),
        ("status",),
    ):
        allowed = _run(guarded, key, *arguments, "--tenant", "cli")
        assert allowed.exit_code == 0, allowed.output
        refused = _run(guarded, "", *arguments, "--tenant", "cli")
        assert refused.exit_code == 5
        assert "valid credential" in refused.stderr + refused.output
    denied = _run(guarded, key, "answer", "cats", "--tenant", TENANT)
    assert "may not act for tenant" in denied.stderr


def test_commands_find_services_that_listen_on_all_addresses(guarded, made):
    """As in containers, whose settings name wildcard addresses; the token goes to loopback only."""
    port = guarded.indexer.address.rpartition(":")[2]
    arguments = ("status", "--tenant", TENANT, "--indexer", f"0.0.0.0:{port}")
    done = _run(guarded, made["own"], *arguments)
    assert done.exit_code == 0, done.output


def test_no_log_contains_a_key(guarded, key_file):
    listed = {key.id for key in api_keys.read(key_file)}
    for process in (guarded.indexer, guarded.retriever):
        assert "hrag_" not in process.log
        assert any(f"credential={each}" in process.log for each in listed)


@pytest.mark.parametrize("service", [INDEXER, RETRIEVER])
def test_a_service_without_authentication_listens_on_loopback_only(data_dir, service):
    address = "0.0.0.0:0"
    process = Process(service, data_dir, FAST, address)
    assert process.wait() == 2
    assert all(each in process.log for each in (address, "HRAG_INSECURE_NO_AUTH", NO_AUTH_WORDS))


def test_the_sdk_raises_errors_of_hrag(guarded):
    with _client(guarded, "hrag_wrong") as client, pytest.raises(HragError) as caught:
        client.server_info()
    assert type(caught.value) is Unauthenticated
