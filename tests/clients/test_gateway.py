"""Clients of other projects call the gateway: Connect for Node.js and a client made from OpenAPI.

The services and the gateway use TLS and require keys.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.conftest import EXAMPLES, Secured, node
from tests.support.servers.credentials import TENANT
from tests.support.servers.gateways import Gateway, gateway_to
from tests.support.servers.openai_server import SAID
from tests.support.servers.pki import Authority

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

_ENVIRONMENT = Path(__file__).resolve().parents[2] / ".venv-clients"
_PACKAGES = ("openapi-python-client==0.29.1", "openapi-spec-validator==0.9.0")
_PROGRAM = """
import io, json, sys
from made.client import AuthenticatedClient
from made.api.indexer_service import create_collection, ingest_document, ingest_documents
from made.api.retriever_service import search
from made.api.short_paths import read_hierarchy, read_status, retrieve
from made.models import CreateCollectionRequest, Document, IngestDocumentRequest, SearchRequest
from made.models import RetrieveRequest
from made.types import File

url, token, tenant_id, ca_file = sys.argv[1:]
client = AuthenticatedClient(url, token, verify_ssl=ca_file, raise_on_unexpected_status=True)
place = {"tenant_id": tenant_id, "collection": "otters"}
create_collection.sync(client=client, body=CreateCollectionRequest(tenant_id, name="otters"))
document = Document(document_id="otters", text="Otters hold hands while they sleep.")
stored = ingest_document.sync(
    client=client, body=IngestDocumentRequest(**place, document=document)
)
query = SearchRequest(**place, text="otters", limit=1)
result = search.sync(client=client, body=query)
refused = search.sync(client=client, body=SearchRequest(tenant_id=tenant_id, text="a", limit=1000))
line = json.dumps({"tenantId": tenant_id, "collection": "otters", "document": {"text": "Ants."}})
outcomes = ingest_documents.sync(client=client, body=File(io.BytesIO(line.encode())))
many = json.loads(outcomes.payload.read())["result"]["outcome"]
body = RetrieveRequest(query="otters", limit=1)
passage = retrieve.sync(client=client, body=body, **place).data.results[0]
node = read_hierarchy.sync(passage.id, client=client, **place).data.node
version = read_status.sync(client=client).data["version"]
short = [passage.content, node.id == passage.id, bool(version)]
content = result.passages[0].chunk.content
print(json.dumps([str(stored.outcome), content, refused.code, many, short]))
"""


@pytest.fixture(scope="module")
def gateway(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    authority = Authority(tmp_path_factory.mktemp("gateway"), "gateway")
    pair = authority.issue()
    files = {
        "HRAG_TLS_CERT_FILE": pair.cert_file,
        "HRAG_TLS_KEY_FILE": pair.key_file,
        "HRAG_CA_FILE": secured.ca_file,
    }
    addresses = (secured.services.indexer, secured.services.retriever)
    with gateway_to(*addresses, ca_file=authority.ca_file, **files) as running:
        yield running


def test_the_example_stores_finds_and_reads_an_answer(
    packages: None, gateway: Gateway, secured: Secured
) -> None:
    settings = {
        "HRAG_URL": gateway.url,
        "HRAG_CA_FILE": str(gateway.ca_file),
        "HRAG_TOKEN": secured.token,
    }
    first, *_, last = node(EXAMPLES / "connect.mjs", settings=settings).splitlines()
    assert first.endswith(" pets#2.0 Cats sleep. Dogs bark.")
    assert last == "".join(SAID)


@pytest.fixture(scope="module")
def programs() -> Path:
    """The `bin` folder of an environment with a generator of clients and a validator of OpenAPI."""
    programs = _ENVIRONMENT / "bin"
    if not (programs / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", _ENVIRONMENT], check=True)
    pip = [programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *_PACKAGES], check=True)
    return programs


@pytest.fixture
def document(gateway: Gateway, tmp_path: Path) -> Path:
    """A file that contains the OpenAPI document of the gateway."""
    path = tmp_path / "openapi.json"
    path.write_bytes(gateway.send("GET", "/openapi.json").body)
    return path


def test_the_openapi_document_is_valid(programs: Path, document: Path) -> None:
    subprocess.run([programs / "openapi-spec-validator", document], check=True)


def test_a_client_generated_from_the_document_stores_and_finds(
    programs: Path, document: Path, gateway: Gateway, secured: Secured, tmp_path: Path
) -> None:
    package = tmp_path / "made"
    options = ["--path", document, "--output-path", package, "--meta", "none"]
    made = subprocess.run(
        [programs / "openapi-python-client", "generate", *options],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
    )
    assert "WARNING" not in made.stdout.upper(), made.stdout
    arguments = [gateway.url, secured.token, TENANT, str(gateway.ca_file)]
    done = subprocess.run(
        [programs / "python", "-c", _PROGRAM, *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    outcome, content, code, many, short = json.loads(done.stdout)
    assert outcome == "INGEST_OUTCOME_CREATED"
    assert content == "Otters hold hands while they sleep."
    assert code == "invalid_argument"
    assert many == "INGEST_OUTCOME_CREATED"
    assert short == [content, True, True]
