"""Running services accept calls only with a valid API key of the right tenant and role."""

from collections.abc import Callable
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
from tests.support.until import until


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys") / "keys.json"


@pytest.fixture(scope="module")
def tokens(key_file: Path) -> dict[str, str]:
    """New API keys by the name that tests use for them."""
    return {
        "own": new_key(key_file, role=Role.WRITE),
        "other": new_key(key_file, OTHER, role=Role.ADMIN),
        "first": new_key(key_file, "first", role=Role.WRITE),
        "withdrawn": new_key(key_file),
        "all tenants": new_key(key_file, "*", role=Role.ADMIN),
        "reader of all": new_key(key_file, "*"),
        "writer of all": new_key(key_file, "*", role=Role.WRITE),
    }


@pytest.fixture(scope="module")
def guarded(key_file: Path, tokens: dict[str, str], tmp_path_factory: pytest.TempPathFactory):
    """Services that require API keys. Two retriever processes run, and each checks keys."""
    settings = {"HRAG_AUTH": "api_key", "HRAG_API_KEYS_FILE": str(key_file), "HRAG_WORKERS": "2"}
    with running(tmp_path_factory.mktemp("auth") / "store", {**FAST, **settings}) as both:
        yield both


def _client(services: Running, token: str) -> Client:
    return Client(services.indexer.address, services.retriever.address, token=token)


def test_a_key_reaches_only_the_data_of_its_tenants(guarded, tokens):
    with _client(guarded, tokens["own"]) as client, _client(guarded, tokens["other"]) as stranger:
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


def test_only_an_administrator_of_all_tenants_sees_the_tenants(guarded, tokens):
    with _client(guarded, tokens["own"]) as client:
        client.ingest(TENANT, Document("Hens cluck.", "hens"))
    with _client(guarded, tokens["all tenants"]) as client:
        (listed,) = [item for item in client.list_tenants().items if item.tenant_id == TENANT]
        stored = client.index_status(TENANT)
    assert (listed.leaf_count, listed.usage) == (stored.leaf_count, stored.tenant)
    assert f"{TENANT}\t1\t" in _run(guarded, tokens["all tenants"], "tenants").stdout
    for name in ("other", "own", "reader of all", "writer of all"):
        with _client(guarded, tokens[name]) as client, pytest.raises(PermissionDenied) as refused:
            client.list_tenants()
        assert TENANT not in refused.value.message
        done = _run(guarded, tokens[name], "tenants")
        assert (done.exit_code, done.stdout) == (5, "")


def test_a_stream_stores_the_documents_before_a_document_of_another_tenant(guarded, tokens):
    def requests():
        for tenant, name in (("first", "a"), (TENANT, "b"), ("first", "c")):
            document = types_pb2.Document(document_id=name, text=f"Text {name}.")
            yield indexer_pb2.IngestDocumentsRequest(tenant_id=tenant, document=document)

    headers = (("authorization", f"Bearer {tokens['first']}"),)
    with pytest.raises(grpc.RpcError, match="may not act for tenant"):
        list(guarded.raw_indexer.IngestDocuments(requests(), metadata=headers))
    with _client(guarded, tokens["first"]) as client:
        listed = [info.document_id for info in client.list_documents("first").items]
    assert listed == ["a"]


def test_a_revoked_key_is_refused_by_all_workers(guarded, key_file, tokens):
    """Each worker reads the file again within two seconds, if the machine is not busy."""
    key = tokens["withdrawn"]
    # Six connections reach both workers.
    clients = [_client(guarded, key) for _ in range(6)]
    for client in clients:
        client.server_info()
    api_keys.revoke(key_file, id_of(key))
    until(lambda: not any(_is_admitted(client.server_info) for client in clients))
    for client in clients:
        client.close()


def _is_admitted(call: Callable[[], object]) -> bool:
    try:
        call()
    except Unauthenticated:
        return False
    return True


def test_a_damaged_key_file_locks_nobody_out(guarded, key_file, tokens):
    good = key_file.read_bytes()
    key_file.write_bytes(good[:50])
    with _client(guarded, tokens["own"]) as client:

        def has_noticed() -> bool:
            """Sends a call, since the indexer checks the file only when it is called."""
            client.list_collections(TENANT)
            return "reload_failed" in guarded.indexer.log

        until(has_noticed)
    key_file.write_bytes(good)


def _run(services: Running, token: str, *arguments: str):
    env = {
        "NO_COLOR": "1",
        "HRAG_INDEXER_ADDRESS": services.indexer.address,
        "HRAG_RETRIEVER_ADDRESS": services.retriever.address,
        "HRAG_TOKEN": token,
    }
    return CliRunner().invoke(app, arguments, env=env)


def test_every_command_accepts_a_key_created_while_services_run(guarded, key_file, tmp_path):
    arguments = ["keys", "create", "--file", str(key_file), "--tenant", "cli", "--role", "write"]
    key = CliRunner().invoke(app, arguments).stdout.strip()
    (tmp_path / "cats.md").write_text("# Cats\n\nCats sleep all day.\n", "utf-8")
    # Sixteen connections reach both workers. The services check the file once a second.
    clients = [_client(guarded, key) for _ in range(16)]
    until(lambda: _is_admitted(lambda: clients[0].list_collections("cli")))
    until(lambda: all(_is_admitted(client.server_info) for client in clients))
    for client in clients:
        client.close()
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


def test_commands_find_services_that_listen_on_all_addresses(guarded, tokens):
    """In containers, settings name wildcard addresses. The token is sent to loopback only."""
    port = guarded.indexer.address.rpartition(":")[2]
    arguments = ("status", "--tenant", TENANT, "--indexer", f"0.0.0.0:{port}")
    done = _run(guarded, tokens["own"], *arguments)
    assert done.exit_code == 0, done.output


def test_no_log_contains_a_key(guarded, tokens):
    with _client(guarded, tokens["own"]) as client:
        client.list_collections(TENANT)
        client.server_info()
    own = f"credential={id_of(tokens['own'])}"
    for process in (guarded.indexer, guarded.retriever):
        assert own in process.log
        assert "hrag_" not in process.log


@pytest.mark.parametrize("service", [INDEXER, RETRIEVER])
def test_a_service_without_authentication_listens_on_loopback_only(data_dir, service):
    address = "0.0.0.0:0"
    process = Process(service, data_dir, FAST, address)
    assert process.wait() == 2
    assert all(word in process.log for word in (address, "HRAG_INSECURE_NO_AUTH", NO_AUTH_WORDS))


def test_the_sdk_raises_errors_of_hrag(guarded):
    with _client(guarded, "hrag_wrong") as client, pytest.raises(HragError) as caught:
        client.server_info()
    assert type(caught.value) is Unauthenticated
