"""The examples in Go, Java and TypeScript work outside the checkout, with the .proto files of hrag.

Each example is copied to an empty folder and built there. The tests fail if a tool is missing.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

import hrag
from tests.clients.conftest import Secured
from tests.support.servers.gateways import gateway_to
from tests.support.servers.pki import Authority
from tests.support.servers.processes import FAST, running

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
PROTOS = str(Path(hrag.__file__).parents[1])
_FOUND = " pets#2.0 Cats sleep. Dogs bark."


def _run(folder: Path, *command: str, settings: Mapping[str, str] | None = None) -> str:
    """Runs a command in the folder of an example, and returns its output."""
    if shutil.which(command[0]) is None and not (folder / command[0]).exists():
        pytest.fail(f"this test needs `{command[0]}`; tests/clients/prepare installs it on Debian")
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "HRAG_PROTOS": PROTOS, **(settings or {})},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _copied(name: str, tmp_path: Path) -> Path:
    generated = shutil.ignore_patterns("build", "gen", "node_modules", "package-lock.json")
    return shutil.copytree(EXAMPLES / name, tmp_path / name, ignore=generated)


def _services(secured: Secured) -> dict[str, str]:
    return {
        "HRAG_INDEXER_ADDRESS": secured.services.indexer,
        "HRAG_RETRIEVER_ADDRESS": secured.services.retriever,
        "HRAG_CA_FILE": str(secured.ca_file),
        "HRAG_TOKEN": secured.token,
    }


def test_the_go_example_stores_a_document_and_finds_it(secured: Secured, tmp_path: Path) -> None:
    folder = _copied("go", tmp_path)
    _run(folder, "./build.sh")
    assert _run(folder, "build/search", settings=_services(secured)).strip().endswith(_FOUND)


def test_the_java_example_stores_a_document_and_finds_it(tmp_path: Path) -> None:
    """Debian's libraries for Java cannot negotiate HTTP/2 over TLS, so this test uses no TLS."""
    folder = _copied("java", tmp_path)
    _run(folder, "./build.sh")
    command = ("java", "-cp", "build/classes:/usr/share/java/*", "Search")
    with running(tmp_path / "store", FAST) as both:
        settings = {
            "HRAG_INDEXER_ADDRESS": both.indexer.address,
            "HRAG_RETRIEVER_ADDRESS": both.retriever.address,
        }
        assert _run(folder, *command, settings=settings).strip().endswith(_FOUND)


def test_the_typescript_example_is_typed_and_finds_its_document(
    secured: Secured, tmp_path: Path
) -> None:
    folder = _copied("typescript", tmp_path)
    _run(folder, "npm", "install", "--no-audit", "--no-fund")
    for script in ("generate", "check", "build"):
        _run(folder, "npm", "run", "--silent", script)
    assert (folder / "build" / "browser.js").exists()
    authority = Authority(tmp_path, "gateway")
    pair = authority.issue()
    files = {
        "HRAG_TLS_CERT_FILE": pair.cert_file,
        "HRAG_TLS_KEY_FILE": pair.key_file,
        "HRAG_CA_FILE": secured.ca_file,
    }
    addresses = (secured.services.indexer, secured.services.retriever)
    with gateway_to(*addresses, ca_file=authority.ca_file, **files) as gateway:
        settings = {
            "HRAG_URL": gateway.url,
            "HRAG_TOKEN": secured.token,
            "HRAG_CA_FILE": str(authority.ca_file),
        }
        printed = _run(folder, "node", "build/node.mjs", settings=settings)
    assert printed.strip().endswith(_FOUND)
