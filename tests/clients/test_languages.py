"""The examples in Go, Java and TypeScript work outside the checkout, with the .proto files of hrag.

Each example is copied to an empty folder and built there. The tests fail if a tool is missing.
"""

from pathlib import Path

import pytest

from tests.clients.conftest import FOUND, Secured, copied, run
from tests.support.servers.gateways import gateway_to
from tests.support.servers.pki import Authority
from tests.support.servers.processes import FAST, running

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]


def _services(secured: Secured) -> dict[str, str]:
    return {
        "HRAG_INDEXER_ADDRESS": secured.services.indexer,
        "HRAG_RETRIEVER_ADDRESS": secured.services.retriever,
        "HRAG_CA_FILE": str(secured.ca_file),
        "HRAG_TOKEN": secured.token,
    }


def test_the_go_example_stores_a_document_and_finds_it(secured: Secured, tmp_path: Path) -> None:
    folder = copied("go", tmp_path)
    run(folder, "./build.sh")
    assert run(folder, "build/search", settings=_services(secured)).strip().endswith(FOUND)


def test_the_java_example_stores_a_document_and_finds_it(tmp_path: Path) -> None:
    """Debian's libraries for Java cannot negotiate HTTP/2 over TLS, so this test uses no TLS."""
    folder = copied("java", tmp_path)
    run(folder, "./build.sh")
    command = ("java", "-cp", "build/classes:/usr/share/java/*", "Search")
    with running(tmp_path / "store", FAST) as both:
        settings = {
            "HRAG_INDEXER_ADDRESS": both.indexer.address,
            "HRAG_RETRIEVER_ADDRESS": both.retriever.address,
        }
        assert run(folder, *command, settings=settings).strip().endswith(FOUND)


def test_the_typescript_example_finds_its_document_in_node(
    typescript: Path, secured: Secured, tmp_path: Path
) -> None:
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
        printed = run(typescript, "node", "build/node.mjs", settings=settings)
    assert printed.strip().endswith(FOUND)
