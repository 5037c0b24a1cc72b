"""docker-compose.yml as users start it: image built, services up, one killed, nothing lost."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from hrag.cli.health import is_serving
from hrag.cli.running import INDEXER, RETRIEVER, Service, free_addresses
from hrag.client import Client
from hrag.client.access import Access
from hrag.config import NO_AUTH_WORDS, PLAINTEXT_WORDS
from hrag.errors import HragError
from hrag.types import Document
from tests.containers import engine
from tests.containers.engine import IMAGE, PROJECT, Engine, eventually

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900)]

DOCUMENTS = 200
KILL_AFTER = 80
UID = "10001"
VOLUME = f"{PROJECT}_store"
# By their command line; both services see all processes, because they share a namespace.
_KILL = """
import os, signal, sys
from pathlib import Path
for path in Path("/proc").glob("[0-9]*/cmdline"):
    pid = int(path.parent.name)
    if sys.argv[1].encode() in path.read_bytes().split(bytes(1)) and pid != os.getpid():
        os.kill(pid, signal.SIGKILL)
        print("killed", pid)
"""


@dataclass(frozen=True)
class Stack:
    """What docker-compose.yml brings up."""

    engine: Engine
    addresses: dict[Service, str]

    def serves(self, service: Service) -> bool:
        return is_serving(service, self.addresses[service], Access())

    def wait_until_serving(self) -> None:
        for service in self.addresses:
            eventually(lambda s=service: self.serves(s), f"{service.name} serves")

    def kill(self, service: Service) -> None:
        """SIGKILL to a service's process, sent from the other's container.

        Not `docker kill`, which counts as a stop that was wanted: nothing restarts then.
        """
        other = {INDEXER: RETRIEVER, RETRIEVER: INDEXER}[service]
        done = self.engine.inside(other.name, "python3", "-c", _KILL, service.module)
        assert done.stdout.count("killed") == 1, done.stdout + done.stderr


@pytest.fixture(scope="module")
def stack(_no_settings_from_outside: None) -> Iterator[Stack]:
    indexer, retriever = free_addresses(2)
    ports = {
        "HRAG_INDEXER_PORT": indexer.rpartition(":")[2],
        "HRAG_RETRIEVER_PORT": retriever.rpartition(":")[2],
        "HRAG_INDEXER_CPUS": "1",
        "HRAG_RETRIEVER_CPUS": "1",
    }
    used = engine.found(ports)
    used.down("--volumes")
    try:
        used.up()
        stack = Stack(used, {INDEXER: indexer, RETRIEVER: retriever})
        stack.wait_until_serving()
        yield stack
    finally:
        print(used.logs())  # noqa: T201 - pytest shows it for a test that failed
        used.down("--volumes")


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with Client(stack.addresses[INDEXER], stack.addresses[RETRIEVER]) as client:
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
    done = stack.engine.beside("retriever", tmp_path, "hrag", "ingest", "/files", "--tenant", "cli")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 created" in done.stdout
    done = stack.engine.inside("retriever", "hrag", "search", "what do dogs do?", "--tenant", "cli")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Dogs bark" in done.stdout.replace("«", "").replace("»", "")


def test_it_runs_without_rights_on_a_root_that_is_read_only(stack):
    done = stack.engine.inside("indexer", "sh", "-c", "id -u; grep CapEff /proc/self/status")
    assert done.stdout.split() == [UID, "CapEff:", "0" * 16]
    for path in ("/x", "/opt/hrag/x", "/usr/x"):
        done = stack.engine.inside("indexer", "sh", "-c", f"touch {path}")
        assert done.returncode != 0
        assert "Read-only file system" in done.stdout + done.stderr
    assert stack.engine.inside("indexer", "sh", "-c", "touch /tmp/x").returncode == 0


def test_a_killed_indexer_comes_back_and_nothing_is_lost(stack, client):
    acknowledged = []
    killer = threading.Thread(target=stack.kill, args=(INDEXER,))
    for number in range(DOCUMENTS):
        if number == KILL_AFTER:
            killer.start()
        try:
            client.ingest("acme", Document(_text(number), f"document-{number}"), timeout_s=60)
        except HragError:  # Not acknowledged, so nothing was promised.
            continue
        acknowledged.append(number)
    killer.join()
    assert stack.serves(RETRIEVER)  # The namespace is not the indexer's.
    eventually(lambda: stack.serves(INDEXER), "the indexer serves again")
    assert len(acknowledged) >= KILL_AFTER
    for number in acknowledged:
        assert client.get_text("acme", f"document-{number}") == _text(number)
    found = client.search("acme", _text(7), limit=1)
    assert found.passages[0].chunk.document_id == "document-7"


def test_a_killed_retriever_comes_back(stack, client):
    client.ingest("killing", Document("Cats sleep. Dogs bark.", "pets"))
    stack.kill(RETRIEVER)
    assert stack.serves(INDEXER)
    eventually(lambda: stack.serves(RETRIEVER), "the retriever serves again")
    assert client.search("killing", "what do dogs do?").passages


def test_the_store_outlives_the_containers(stack, client):
    client.ingest("lasting", Document("Cats sleep. Dogs bark.", "pets"))
    stack.engine.down()
    stack.engine.up()
    stack.wait_until_serving()
    with Client(stack.addresses[INDEXER], stack.addresses[RETRIEVER]) as again:
        assert again.search("lasting", "what do dogs do?").passages
    done = stack.engine.inside("indexer", "hrag", "check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the store is sound" in done.stdout


def test_a_container_in_another_namespace_is_refused(stack):
    volume = ("--volume", f"{VOLUME}:/data")
    done = stack.engine.run("run", "--rm", *volume, IMAGE, "hrag", "check")
    assert done.returncode == 2
    assert "another PID namespace" in " ".join(done.stderr.split())


def test_one_container_serves_both_without_compose(stack):
    indexer, retriever = free_addresses(2)
    name = f"{PROJECT}-single"
    ports = ("--publish", f"{indexer}:50051", "--publish", f"{retriever}:50052")
    options = ["--read-only", "--tmpfs", "/tmp", "--volume", f"{name}:/data"]
    options += ["--env", f"HRAG_INSECURE_NO_AUTH={NO_AUTH_WORDS}"]
    options += ["--env", f"HRAG_INSECURE_PLAINTEXT={PLAINTEXT_WORDS}"]
    try:
        done = stack.engine.run("run", "--detach", "--name", name, *options, *ports, IMAGE)
        assert done.returncode == 0, done.stderr
        single = Stack(stack.engine, {INDEXER: indexer, RETRIEVER: retriever})
        single.wait_until_serving()
        with Client(indexer, retriever) as client:
            client.ingest("acme", Document("Cats sleep. Dogs bark.", "pets"))
            assert client.search("acme", "what do dogs do?").passages
        done = stack.engine.run("exec", name, "hrag", "health")
        assert done.returncode == 0, done.stdout
        assert stack.engine.run("stop", "--time", "20", name).returncode == 0
        done = stack.engine.run("inspect", "--format", "{{.State.ExitCode}}", name)
        assert done.stdout.strip() == "0"
    finally:
        stack.engine.run("rm", "--force", name)
        stack.engine.run("volume", "rm", "--force", name)
