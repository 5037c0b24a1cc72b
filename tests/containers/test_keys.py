"""Containers require API keys, which a separate container manages by `hrag keys`."""

import json
from collections.abc import Callable

import pytest

from hrag.cli.processes import INDEXER, RETRIEVER, free_addresses
from hrag.client.credentials import ClientCredentials
from hrag.config import PLAINTEXT_WORDS
from hrag.errors import PermissionDenied, Unauthenticated
from hrag.server.auth import Role
from hrag.types import Document
from tests.containers.engine import IMAGE, PROJECT, eventually
from tests.containers.stack import Stack, is_admitted, new_key
from tests.support.servers.credentials import id_of

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900)]


def test_calls_without_a_key_are_refused(stack):
    with stack.client(ClientCredentials()) as client:
        for call in (
            lambda: client.ingest("acme", Document("Cats sleep.", "pets")),
            lambda: client.search("acme", "cats"),
            client.server_info,
        ):
            with pytest.raises(Unauthenticated):
                call()


def test_a_key_created_while_services_run_is_valid_for_its_tenant_and_role(stack):
    key = new_key(stack, "globex", Role.WRITE)
    with stack.client(ClientCredentials(key)) as client:
        client.ingest("globex", Document("Cats sleep. Dogs bark.", "pets"))
        assert client.search("globex", "what do dogs do?").passages
        with pytest.raises(PermissionDenied):
            client.search("acme", "cats")
        with pytest.raises(PermissionDenied):
            client.delete_collection("globex", "default")


def test_a_revoked_key_is_refused(stack):
    key = new_key(stack)
    with stack.client(ClientCredentials(key)) as client:
        client.list_collections("acme")
        done = stack.engine.keys("revoke", id_of(key))
        assert done.returncode == 0, done.stderr
        for call in (lambda: client.list_collections("acme"), client.server_info):
            eventually(lambda call=call: _is_refused(call), "it is refused")
    assert f"key {id_of(key)} is revoked" in done.stdout


def _is_refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except Unauthenticated:
        return True
    return False


def test_keys_outlive_the_containers(stack):
    stack.engine.down()
    stack.engine.up()
    stack.wait_until_serving()
    with stack.client() as client:
        client.list_collections("acme")


def test_services_cannot_write_to_the_key_file_and_logs_contain_no_key(stack):
    for service in (INDEXER, RETRIEVER):
        done = stack.engine.inside(service.name, "sh", "-c", "stat -c %a:%u /keys/*; touch /keys/x")
        assert done.returncode != 0
        assert "600:10001" in done.stdout
        assert "Read-only file system" in done.stdout + done.stderr
    assert stack.token not in stack.engine.logs()


def test_the_key_file_contains_no_key(stack):
    listed = json.loads(stack.engine.keys("list", "--json").stdout)
    assert id_of(stack.token) in {key["id"] for key in listed}
    done = stack.engine.inside("indexer", "cat", "/keys/keys.json")
    assert id_of(stack.token) in done.stdout
    assert stack.token.split("_", 2)[2] not in done.stdout


def test_one_container_runs_both_services_without_compose(stack):
    indexer, retriever = free_addresses(2)
    name = f"{PROJECT}-single"
    run = stack.engine.run
    ports = ("--publish", f"{indexer}:50051", "--publish", f"{retriever}:50052")
    options = ["--read-only", "--tmpfs", "/tmp", "--volume", f"{name}:/data"]
    options += ["--volume", f"{name}-keys:/keys:ro"]
    options += ["--env", f"HRAG_INSECURE_PLAINTEXT={PLAINTEXT_WORDS}"]
    create_key = ("hrag", "keys", "create", "--tenant", "acme", "--role", "write")
    try:
        done = run("run", "--detach", "--name", name, *options, *ports, IMAGE)
        assert done.returncode == 0, done.stderr
        single = Stack(stack.engine, {INDEXER: indexer, RETRIEVER: retriever})
        single.wait_until_serving()
        logs = run("logs", name)
        assert "no_valid_api_key" in logs.stdout + logs.stderr
        creation = run("run", "--rm", "--volume", f"{name}-keys:/keys", IMAGE, *create_key)
        assert creation.returncode == 0, creation.stderr
        token = creation.stdout.strip()
        with single.client(ClientCredentials(token)) as client:
            eventually(lambda: is_admitted(client, "acme"), "the key is known")
            client.ingest("acme", Document("Cats sleep. Dogs bark.", "pets"))
            assert client.search("acme", "what do dogs do?").passages
        with single.client(ClientCredentials()) as client, pytest.raises(Unauthenticated):
            client.search("acme", "what do dogs do?")
        arguments = ("--env", f"HRAG_TOKEN={token}", name, "hrag", "status", "--tenant", "acme")
        done = run("exec", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        assert run("stop", "--time", "20", name).returncode == 0
        done = run("inspect", "--format", "{{.State.ExitCode}}", name)
        assert done.stdout.strip() == "0"
    finally:
        run("rm", "--force", name)
        run("volume", "rm", "--force", name, f"{name}-keys")
