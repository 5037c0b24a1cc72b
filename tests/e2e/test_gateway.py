"""Both services can be called over HTTP, with TLS and API keys. The guide's examples run."""

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hrag.config import SettingsError
from hrag.gateway.app import serve
from hrag.server.auth import Role, api_keys
from tests.support.servers.credentials import OTHER, TENANT, altered, id_of, new_key
from tests.support.servers.forked import HRAG, program_with_output
from tests.support.servers.gateways import (
    ANSWER,
    INGEST,
    JSON,
    SEARCH,
    Gateway,
    gateway_settings,
    gateway_to,
)
from tests.support.servers.pki import Authority
from tests.support.servers.processes import FAST, Running, free_addresses, running
from tests.support.until import PATIENCE_S, until

_GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "http.md"


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys") / "keys.json"


@pytest.fixture(scope="module")
def key(key_file: Path) -> str:
    return new_key(key_file, role=Role.WRITE)


@pytest.fixture(scope="module")
def guarded(
    key_file: Path, key: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """Services that require API keys."""
    settings = {"HRAG_AUTH": "api_key", "HRAG_API_KEYS_FILE": str(key_file)}
    with running(tmp_path_factory.mktemp("gateway") / "store", {**FAST, **settings}) as both:
        yield both


@pytest.fixture(scope="module")
def gateway(guarded: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway that serves HTTPS for the services that require API keys."""
    authority = Authority(tmp_path_factory.mktemp("pki"), "authority")
    pair = authority.issue()
    tls = {"HRAG_TLS_CERT_FILE": pair.cert_file, "HRAG_TLS_KEY_FILE": pair.key_file}
    addresses = (guarded.indexer.address, guarded.retriever.address)
    with gateway_to(*addresses, ca_file=authority.ca_file, **tls) as running_gateway:
        yield running_gateway


def _bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def _document(document_id: str, text: str = "Cats sleep. Dogs bark.") -> dict[str, Any]:
    return {"tenantId": TENANT, "document": {"documentId": document_id, "text": text}}


def test_a_document_is_stored_and_found_over_tls_with_a_key(gateway: Gateway, key: str) -> None:
    stored = gateway.post(INGEST, _document("pets"), _bearer(key))
    assert stored.json["outcome"] == "INGEST_OUTCOME_CREATED"
    query = {"tenantId": TENANT, "text": "dogs", "minSequence": stored.json["sequence"]}
    result = gateway.post(SEARCH, query, _bearer(key)).json
    assert result["passages"][0]["chunk"]["content"] == "Cats sleep. Dogs bark."


def test_metadata_comes_back_as_it_was_sent(gateway: Gateway, key: str) -> None:
    metadata = {"team": "zoo", "year": 2026.5, "n": 3, "open": True, "until": None, "of": ["a", {}]}
    document = {**_document("meta")["document"], "metadata": metadata}
    gateway.post(INGEST, {"tenantId": TENANT, "document": document}, _bearer(key))
    request = {"tenantId": TENANT, "documentId": "meta", "includeText": True}
    reply = gateway.post("/hrag.v1.IndexerService/GetDocument", request, _bearer(key)).json
    assert reply["document"]["metadata"] == metadata
    assert reply["text"] == "Cats sleep. Dogs bark."


@pytest.mark.parametrize(
    ("credential", "tenant", "status", "reason"),
    [
        ("", TENANT, 401, "UNAUTHENTICATED"),
        ("Bearer wrong", TENANT, 401, "UNAUTHENTICATED"),
        ("Basic abc", TENANT, 401, "UNAUTHENTICATED"),
        ("altered", TENANT, 401, "UNAUTHENTICATED"),
        ("key", OTHER, 403, "PERMISSION_DENIED"),
    ],
)
def test_strangers_are_refused(
    gateway: Gateway, key: str, credential: str, tenant: str, status: int, reason: str
) -> None:
    known = {"altered": f"Bearer {altered(key)}", "key": f"Bearer {key}"}
    headers = {"authorization": known.get(credential, credential)} if credential else {}
    refused = gateway.post(SEARCH, {"tenantId": tenant, "text": "dogs"}, headers)
    assert (refused.status, refused.reason) == (status, reason)
    assert ("www-authenticate" in refused.headers) == (status == 401)


def test_a_revoked_key_is_refused(gateway: Gateway, key_file: Path) -> None:
    revoked = new_key(key_file)
    query = {"tenantId": TENANT, "text": "dogs"}

    def is_admitted() -> bool:
        return gateway.post(SEARCH, query, _bearer(revoked)).status != 401

    until(is_admitted)
    api_keys.revoke(key_file, id_of(revoked))
    until(lambda: not is_admitted())


def test_the_audit_log_names_the_request_and_the_credential(
    gateway: Gateway, guarded: Running, key: str
) -> None:
    gateway.post(INGEST, _document("audited"), {**_bearer(key), "x-request-id": "by-http"})
    (line,) = (line for line in guarded.indexer.log.splitlines() if "document=audited" in line)
    assert "request_id=by-http" in line
    assert f"credential={id_of(key)}" in line


def test_dify_finds_documents(gateway: Gateway, key: str) -> None:
    text = "Otters hold hands while they sleep."
    gateway.post(INGEST, _document("otters", text), _bearer(key))
    request = {
        "knowledge_id": f"{TENANT}/default",
        "query": "otters",
        "retrieval_setting": {"top_k": 1, "score_threshold": 0.1},
    }
    (record,) = gateway.post("/retrieval", request, _bearer(key)).json["records"]
    assert record["content"] == text
    assert 0 < record["score"] <= 1
    assert record["metadata"]["document_id"] == "otters"
    unknown = {**request, "knowledge_id": f"{TENANT}/nothing"}
    assert gateway.post("/retrieval", unknown, _bearer(key)).json["error_code"] == 2001


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/v1/retrieve?tenant_id={tenant}"),
        ("GET", "/api/v1/chunks/short:a%232.0/hierarchy?tenant_id={tenant}&depth=8"),
        ("GET", "/api/v1/status?tenant_id={tenant}"),
    ],
)
def test_short_paths_need_the_rights_of_their_methods(
    gateway: Gateway, guarded: Running, key: str, method: str, path: str
) -> None:
    gateway.post(INGEST, _document("short:a", "Moles dig."), _bearer(key))

    def send(tenant: str, token: str) -> Any:
        headers = {**JSON, **_bearer(token)}
        body = b'{"query": "moles"}' if method == "POST" else None
        return gateway.send(method, path.format(tenant=tenant), body, headers)

    assert send(TENANT, key).status == 200
    assert send(TENANT, altered(key)).json["error"]["code"] == "unauthenticated"
    if "status" not in path:  # The status names no tenant.
        assert send(OTHER, key).json["error"]["code"] == "permission_denied"


def test_a_question_without_a_chat_model_is_refused_with_a_reason(
    gateway: Gateway, key: str
) -> None:
    refused = gateway.post(ANSWER, {"search": {"tenantId": TENANT, "text": "?"}}, _bearer(key))
    assert (refused.status, refused.reason) == (400, "CHAT_NOT_CONFIGURED")


# These tests use gateways without TLS.


def test_the_examples_of_the_guide_run(services: Running, tmp_path: Path) -> None:
    """The examples use curl. They call services without authentication."""
    assert shutil.which("curl"), "this test needs curl"
    blocks = re.findall(r"^```sh\n(.*?)^```", _GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    examples = [block for block in blocks if "curl" in block]
    addresses = (services.indexer.address, services.retriever.address)
    with gateway_to(*addresses) as gateway:
        outputs = [_run(example, gateway, tmp_path) for example in examples]
    stored, result = outputs[0]
    assert stored["documentId"] == "pets"
    assert result["passages"][0]["chunk"]["documentId"] == "pets"
    stored, result = outputs[1]
    assert stored["documentId"] == "rates"
    assert result["passages"][0]["chunk"]["documentId"] == "rates"
    retrieved, hierarchy, status = outputs[2]
    assert retrieved["data"]["results"][0]["id"] == hierarchy["data"]["node"]["id"]
    assert hierarchy["data"]["node"]["document_id"] == "pets"
    assert status["data"]["limits"]["limit"] == 100
    first, second = outputs[3]
    assert first["result"]["documentId"] == "a"
    assert (second["line"], second["error"]["error"]["field"]) == (2, "document.txet")
    # The fifth example asks a question, but the services have no chat model.
    assert outputs[4][0]["code"] == "failed_precondition"
    assert outputs[5][0]["records"]
    assert len(outputs) == 6


def _run(example: str, gateway: Gateway, folder: Path) -> list[Any]:
    """Runs an example in a folder; returns the JSON documents that it prints."""
    script = f"URL={gateway.url}\n" + example.replace("URL=http://127.0.0.1:8080\n", "")
    script = script.replace("curl ", "curl --silent --write-out '\\n' ")
    done = subprocess.run(
        ["bash", "-ec", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=folder,
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.strip()]


def test_the_command_serves_until_it_is_stopped(services: Running) -> None:
    (address,) = free_addresses(1)
    options = ["--indexer", services.indexer.address, "--retriever", services.retriever.address]
    with program_with_output(*HRAG, "gateway", "--address", address, *options) as (program, lines):
        assert any("serving" in line for line in lines)
        gateway = Gateway(int(address.rpartition(":")[2]))
        until(lambda: gateway.send("GET", "/healthz/ready").status == 200)
        program.terminate()
        assert program.wait(PATIENCE_S) == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "HRAG_AUTH is none, and 0.0.0.0:0 is reachable from other machines"),
        ({"HRAG_AUTH": "api_key"}, "HRAG_TLS_CERT_FILE is not set"),
        (
            {"HRAG_HTTP_ADDRESS": "127.0.0.1:0", "HRAG_INDEXER_ADDRESS": "db.example:1"},
            "HRAG_CA_FILE is not set, and db.example:1 is on another machine",
        ),
    ],
)
def test_a_gateway_refuses_unprotected_connections_to_other_machines(
    changes: dict[str, str], words: str
) -> None:
    variables = {"HRAG_HTTP_ADDRESS": "0.0.0.0:0", **changes}
    settings = gateway_settings("127.0.0.1:1", "127.0.0.1:2", **variables)
    with pytest.raises(SettingsError, match=words):
        serve(settings, threading.Event(), lambda _: None)
