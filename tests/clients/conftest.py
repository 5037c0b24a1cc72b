"""Fixtures: both services with TLS and keys, and the report of a Node.js client that calls them.

The tests fail with a message if Node.js or its packages are missing. They are never skipped.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import hrag
from hrag.cli.processes import ServiceProcesses, free_addresses
from hrag.server.auth import Role
from tests.support.servers.credentials import OTHER, TENANT, UNKNOWN_KEY, new_key
from tests.support.servers.openai_server import OpenAIServer, Reply, events, piece
from tests.support.servers.pki import Authority
from tests.support.servers.processes import FAST, START_S
from tests.support.servers.stores import check_store

_EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
EXAMPLES = _EXAMPLES / "node"
# Every example prints a line that ends with this.
FOUND = " pets#2.0 Cats sleep. Dogs bark."
_PROTOS = str(Path(hrag.__file__).parents[1])
# The chat endpoint answers this question slowly.
SLOW = "a question that takes its time"
QUESTION = "what do dogs do?"
BOOK = "".join(f"Dogs bark {number} times. Cats sleep. " for number in range(200))
# The client sends 800 documents. The document with index 40 has a blank text.
DOCUMENTS, BLANK = 800, 40
# A number of JavaScript cannot represent this sequence number exactly.
UNSAFE_SEQUENCE = 2**53 + 1
MODES = ("STANDARD", "SMALL_TO_BIG", "AUTO_MERGE", "SENTENCE_WINDOW", "SUMMARY_FIRST", "CONTEXT")
# The client sends keepalive pings at this interval on a connection that makes no call for so long.
PING_MS, IDLE_MS = 6_000, 32_000
_PROGRAM = Path(__file__).with_name("client.mjs")
_PROGRAM_S = 240.0


class Chat(OpenAIServer):
    """A chat endpoint that answers the question SLOW with a stream of 50 seconds."""

    def answer(self, request: dict[str, Any], authorization: str | None) -> Reply:
        reply = super().answer(request, authorization)
        if SLOW in json.dumps(request):
            return events(*(piece("late "), 0.05) * 1_000)(reply)
        return reply


@dataclass(frozen=True)
class Secured:
    """Running services, with the credentials and files that a client needs."""

    services: ServiceProcesses
    chat: Chat
    token: str
    ca_file: Path
    other_ca_file: Path


def _command(name: str) -> str:
    program = shutil.which(name)
    if program is None:
        pytest.fail(f"these tests need Node.js 20 or newer: there is no `{name}` on the PATH")
    return program


@pytest.fixture(scope="session")
def packages() -> None:
    """Installs the examples' packages from npm if package.json has changed."""
    manifest, stamp = EXAMPLES / "package.json", EXAMPLES / "node_modules" / ".package-lock.json"
    if stamp.exists() and stamp.stat().st_mtime >= manifest.stat().st_mtime:
        return
    done = subprocess.run(
        [_command("npm"), "install", "--no-audit", "--no-fund", "--ignore-scripts"],
        cwd=EXAMPLES,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode != 0:
        pytest.fail(f"npm cannot install the packages of {manifest}:\n{done.stderr}")


def node(*arguments: str | Path, settings: Mapping[str, str] | None = None) -> str:
    """Runs a program with Node.js and returns its output."""
    done = subprocess.run(
        [_command("node"), *arguments],
        cwd=EXAMPLES,
        env={**os.environ, **(settings or {})},
        capture_output=True,
        text=True,
        timeout=_PROGRAM_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run(folder: Path, *command: str, settings: Mapping[str, str] | None = None) -> str:
    """Runs a command in the folder of an example, and returns its output."""
    if shutil.which(command[0]) is None and not (folder / command[0]).exists():
        pytest.fail(f"this test needs `{command[0]}`; tests/clients/prepare installs it on Debian")
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "HRAG_PROTOS": _PROTOS, **(settings or {})},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def copied(name: str, folder: Path) -> Path:
    """Copies an example into a folder, without anything that was generated."""
    generated = shutil.ignore_patterns("build", "gen", "node_modules", "package-lock.json")
    return shutil.copytree(_EXAMPLES / name, folder / name, ignore=generated)


@pytest.fixture(scope="session")
def typescript(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example in TypeScript, which is type-checked and built."""
    folder = copied("typescript", tmp_path_factory.mktemp("examples"))
    run(folder, "npm", "install", "--no-audit", "--no-fund")
    for script in ("generate", "check", "build"):
        run(folder, "npm", "run", "--silent", script)
    return folder


@pytest.fixture(scope="session")
def secured(
    tmp_path_factory: pytest.TempPathFactory, _no_settings_from_outside: None
) -> Iterator[Secured]:
    """Services with TLS, keys and a chat model. They generate one answer at a time."""
    folder = tmp_path_factory.mktemp("secured")
    authority, other = Authority(folder, "ours"), Authority(folder, "theirs")
    pair, keys = authority.issue(), folder / "keys.json"
    token = new_key(keys, role=Role.WRITE)
    with Chat() as chat:
        settings = {
            **FAST,
            "HRAG_TLS_CERT_FILE": str(pair.cert_file),
            "HRAG_TLS_KEY_FILE": str(pair.key_file),
            "HRAG_AUTH": "api_key",
            "HRAG_API_KEYS_FILE": str(keys),
            "HRAG_CHAT_MODEL": "test-model",
            "HRAG_CHAT_BASE_URL": chat.base_url,
            "HRAG_CHAT_API_KEY": "sk-test",
            "HRAG_CHAT_REASONING_TAGS": "both",
            "HRAG_MAX_CONCURRENT_ANSWERS": "1",
        }
        services = ServiceProcesses(folder / "store", *free_addresses(2), settings=settings)
        with services:
            services.wait_until_serving(START_S)
            yield Secured(services, chat, token, authority.ca_file, other.ca_file)
        services.check_stopped_cleanly()
    check_store(folder / "store")


@pytest.fixture(scope="session")
def report(packages: None, secured: Secured) -> dict[str, Any]:
    """The report of client.mjs: what each part of that program observed, by the part's name."""
    arguments = {
        "indexer": secured.services.indexer,
        "retriever": secured.services.retriever,
        "ca": str(secured.ca_file),
        "other_ca": str(secured.other_ca_file),
        "token": secured.token,
        "unknown_key": UNKNOWN_KEY,
        "tenant_id": TENANT,
        "other_tenant": OTHER,
        "text": QUESTION,
        "slow": SLOW,
        "book": BOOK,
        "documents": DOCUMENTS,
        "blank": BLANK,
        "far": str(UNSAFE_SEQUENCE),
        "modes": MODES,
        "ping_ms": PING_MS,
        "idle_ms": IDLE_MS,
    }
    parts: dict[str, Any] = json.loads(node(_PROGRAM, json.dumps(arguments)))
    return parts


@pytest.fixture
def reported(report: dict[str, Any]) -> Callable[[str], Any]:
    """A function that returns a part of the report. The function fails if that part failed."""

    def part(name: str) -> Any:
        reported_part = report[name]
        assert "failed" not in reported_part, reported_part["failed"]
        return reported_part

    return part
