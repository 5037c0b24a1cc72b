"""Services started by docker-compose.yml lose nothing when any of their containers is killed."""

import threading
from collections.abc import Iterator

import pytest

from hrag.cli.processes import INDEXER, RETRIEVER
from hrag.client import Client
from hrag.errors import HragError
from hrag.types import Document
from tests.containers.engine import IMAGE, PROJECT, eventually
from tests.containers.stack import Stack

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900)]

DOCUMENTS = 200
KILL_AFTER = 80
UID = "10001"
VOLUME = f"{PROJECT}_store"


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with stack.client() as client:
        yield client


def _text(number: int) -> str:
    return f"Document {number} tells of harbour {number * 7919}. " * 5


def test_commands_inside_reach_both_services(stack):
    for service in (INDEXER, RETRIEVER):
        done = stack.engine.inside(service.name, "hrag", "health")
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count(" serves at ") == 2


def test_files_are_ingested_and_found_by_commands_in_containers(stack, tmp_path):
    (tmp_path / "pets.md").write_text("# Pets\n\nCats sleep. Dogs bark.\n")
    tmp_path.chmod(0o755)
    ingest = ("hrag", "ingest", "/files", "--tenant", "cli")
    done = stack.engine.run_with_files("retriever", tmp_path, *ingest, token=stack.token)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 created" in done.stdout
    search = ("hrag", "search", "what do dogs do?", "--tenant", "cli")
    done = stack.engine.inside("retriever", *search, token=stack.token)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Dogs bark" in done.stdout.replace("«", "").replace("»", "")


def test_containers_are_unprivileged_with_a_read_only_root(stack):
    done = stack.engine.inside("indexer", "sh", "-c", "id -u; grep CapEff /proc/self/status")
    assert done.stdout.split() == [UID, "CapEff:", "0" * 16]
    for path in ("/x", "/opt/hrag/x", "/usr/x"):
        done = stack.engine.inside("indexer", "sh", "-c", f"touch {path}")
        assert done.returncode != 0
        assert "Read-only file system" in done.stdout + done.stderr
    assert stack.engine.inside("indexer", "sh", "-c", "touch /tmp/x").returncode == 0


def test_a_killed_indexer_restarts_and_nothing_is_lost(stack, client):
    acknowledged = []
    killer = threading.Thread(target=stack.kill, args=(INDEXER,))
    for number in range(DOCUMENTS):
        if number == KILL_AFTER:
            killer.start()
        try:
            client.ingest("acme", Document(_text(number), f"document-{number}"), timeout_s=60)
        except HragError:
            # The indexer did not acknowledge this document, so the document may be lost.
            continue
        acknowledged.append(number)
    killer.join()
    # The retriever still serves, because another container holds the namespaces.
    assert stack.serves(RETRIEVER)
    eventually(lambda: stack.serves(INDEXER), "the indexer serves again")
    assert len(acknowledged) >= KILL_AFTER
    for number in acknowledged:
        assert client.get_text("acme", f"document-{number}") == _text(number)
    result = client.search("acme", _text(7), limit=1)
    assert result.passages[0].chunk.document_id == "document-7"


def test_a_killed_retriever_restarts(stack, client):
    client.ingest("killing", Document("Cats sleep. Dogs bark.", "pets"))
    stack.kill(RETRIEVER)
    assert stack.serves(INDEXER)
    eventually(lambda: stack.serves(RETRIEVER), "the retriever serves again")
    assert client.search("killing", "what do dogs do?").passages


def test_both_services_restart_after_the_namespaces_container(stack, client):
    client.ingest("killing", Document("Birds fly. Fish swim.", "animals"))
    stack.engine.kill("namespaces")
    eventually(lambda: not stack.serves(INDEXER), "the indexer is gone")
    stack.engine.up()
    stack.wait_until_serving()
    with stack.client() as again:
        assert again.get_text("killing", "animals") == "Birds fly. Fish swim."
        assert again.search("killing", "what do fish do?").passages


def test_the_store_outlives_the_containers(stack, client):
    client.ingest("lasting", Document("Cats sleep. Dogs bark.", "pets"))
    stack.engine.down()
    stack.engine.up()
    stack.wait_until_serving()
    with stack.client() as again:
        assert again.search("lasting", "what do dogs do?").passages
    done = stack.engine.inside("indexer", "hrag", "check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the store is sound" in done.stdout


def test_a_container_in_another_namespace_is_refused(stack):
    volume = ("--volume", f"{VOLUME}:/data")
    done = stack.engine.run("run", "--rm", *volume, IMAGE, "hrag", "check")
    assert done.returncode == 2
    assert "another PID namespace" in " ".join(done.stderr.split())
