"""The audit log records every change, refusal and administrative call, and no secret."""

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from hrag.cli.processes import INDEXER
from hrag.client import Client
from hrag.errors import HragError
from hrag.filters import Exists
from hrag.server.auth import Role
from hrag.types import Document
from hrag.v1 import indexer_pb2, retriever_pb2
from tests.support.servers.credentials import UNKNOWN_KEY, id_of, new_key
from tests.support.servers.processes import FAST, Process, Running, running
from tests.support.until import until

pytestmark = pytest.mark.attacks

_SECRET = "Zyzzyva"
_TEXT = f"{_SECRET} sleeps in the garden."
_FLOOD = 2000

Entry = dict[str, Any]


class Audited:
    """Services that require API keys and write only errors and audit entries to their logs."""

    def __init__(self, services: Running, keys: dict[Role, str]) -> None:
        self.services = services
        self.keys = keys

    def client(self, role: Role) -> Client:
        token = self.keys[role]
        addresses = (self.services.indexer.address, self.services.retriever.address)
        return Client(*addresses, token=token)

    def call(self, stub: Any, method: str, request: Any, key: str, request_id: str) -> Any:
        metadata = (("authorization", f"Bearer {key}"), ("x-request-id", request_id))
        return getattr(stub, method)(request, metadata=metadata, timeout=60)


@pytest.fixture
def audited(tmp_path: Path) -> Iterator[Audited]:
    path = tmp_path / "keys.json"
    keys = {role: new_key(path, role=role) for role in Role}
    settings = {
        **FAST,
        "HRAG_AUTH": "api_key",
        "HRAG_API_KEYS_FILE": str(path),
        "HRAG_LOG_FORMAT": "json",
        "HRAG_LOG_LEVEL": "error",
    }
    with running(tmp_path / "store", settings) as services:
        yield Audited(services, keys)


def _entries(process: Process) -> list[Entry]:
    lines = map(json.loads, process.log.splitlines())
    return [line for line in lines if line["event"] == "audit"]


def _entries_of_call(process: Process, request_id: str) -> list[Entry]:
    return [entry for entry in _entries(process) if entry.get("request_id") == request_id]


def test_each_change_is_one_line_that_names_caller_and_object(audited: Audited) -> None:
    stub, admin = audited.services.raw_indexer, audited.keys[Role.ADMIN]
    document = indexer_pb2.IngestDocumentRequest(tenant_id="acme", collection="c")
    document.document.document_id, document.document.text = "d", _TEXT
    creation = indexer_pb2.CreateCollectionRequest(tenant_id="acme", name="c")
    audited.call(stub, "CreateCollection", creation, admin, "created")
    for request_id in ("ingested", "unchanged"):
        audited.call(stub, "IngestDocument", document, admin, request_id)
    document.document.text += " It woke."
    audited.call(stub, "IngestDocument", document, admin, "updated")
    gone = indexer_pb2.DeleteDocumentRequest(tenant_id="acme", collection="c", document_id="d")
    audited.call(stub, "DeleteDocument", gone, admin, "deleted")
    audited.call(stub, "IngestDocument", document, admin, "again")
    change = indexer_pb2.UpdateMetadataRequest(tenant_id="acme", collection="c", document_id="d")
    change.metadata["a"] = 1
    for request_id in ("changed", "nothing-changed"):
        audited.call(stub, "UpdateMetadata", change, admin, request_id)
    named = indexer_pb2.SetAliasRequest(tenant_id="acme", alias="other", collection="c")
    for request_id in ("named", "named-already"):
        audited.call(stub, "SetAlias", named, admin, request_id)
    matching = indexer_pb2.DeleteDocumentsRequest(tenant_id="acme", collection="c")
    matching.filter.exists.field = "document_id"
    for request_id in ("all-deleted", "nothing-deleted"):
        audited.call(stub, "DeleteDocuments", matching, admin, request_id)
    unnamed = indexer_pb2.DeleteAliasRequest(tenant_id="acme", alias="other")
    audited.call(stub, "DeleteAlias", unnamed, admin, "unnamed")
    dropped = indexer_pb2.DeleteCollectionRequest(tenant_id="acme", name="c")
    audited.call(stub, "DeleteCollection", dropped, admin, "dropped")
    changes = {}
    for entry in _entries(audited.services.indexer):
        assert entry["kind"] == "change"
        assert entry["tenant"] == "acme"
        assert entry["method"] == "DeleteAlias" or entry["collection"] == "c"
        assert entry["credential"] == id_of(admin)
        assert entry["peer"].startswith(("ipv4:127.0.0.1:", "ipv6:"))
        change = (entry["method"], entry["outcome"], entry.get("document"), entry["sequence"])
        changes[entry["request_id"]] = change
    assert changes == {
        "created": ("CreateCollection", "CREATED", None, 1),
        "ingested": ("IngestDocument", "CREATED", "d", 2),
        "updated": ("IngestDocument", "UPDATED", "d", 3),
        "deleted": ("DeleteDocument", "DELETED", "d", 4),
        "again": ("IngestDocument", "CREATED", "d", 5),
        "changed": ("UpdateMetadata", "UPDATED", "d", 6),
        "named": ("SetAlias", "CREATED", None, 7),
        "all-deleted": ("DeleteDocuments", "DELETED", None, 8),
        "unnamed": ("DeleteAlias", "DELETED", None, 9),
        "dropped": ("DeleteCollection", "DELETED", None, 10),
    }


def test_each_document_of_a_stream_is_one_line(audited: Audited) -> None:
    documents = [Document(f"{_TEXT} {number}", f"d{number}") for number in range(50)]
    with audited.client(Role.WRITE) as client:
        list(client.ingest_many("acme", [*documents, documents[0]]))
    entries = [e for e in _entries(audited.services.indexer) if e["method"] == "IngestDocuments"]
    assert [entry["document"] for entry in entries] == [
        document.document_id for document in documents
    ]
    assert {(entry["tenant"], entry["collection"]) for entry in entries} == {("acme", "default")}


def test_each_transaction_of_a_deletion_by_filter_is_one_line(audited: Audited) -> None:
    """If a service is killed during the deletion, the log shows how many documents are deleted."""
    with audited.client(Role.WRITE) as client:
        list(client.ingest_many("acme", [Document(_TEXT, f"d{number}") for number in range(150)]))
        deleted = client.delete_documents("acme", Exists("document_id"))
    entries = [e for e in _entries(audited.services.indexer) if e["method"] == "DeleteDocuments"]
    assert [entry["documents"] for entry in entries] == [64, 64, 22]
    assert [entry["sequence"] for entry in entries] == [215, 279, 301]
    assert (deleted.documents, deleted.sequence) == (150, 301)


def test_refusals_name_the_caller_and_the_reason(audited: Audited) -> None:
    services, reader = audited.services, audited.keys[Role.READ]
    search = retriever_pb2.SearchRequest(tenant_id="globex", text=_SECRET)
    dropped = indexer_pb2.DeleteCollectionRequest(tenant_id="acme", name="c")
    attempts = (
        (services.raw_retriever, "Search", search, UNKNOWN_KEY, "stranger"),
        (services.raw_retriever, "Search", search, reader, "other-tenant"),
        (services.raw_indexer, "DeleteCollection", dropped, reader, "role"),
        (services.raw_indexer, "DeleteCollection", dropped, audited.keys[Role.ADMIN], "nothing"),
    )
    for stub, method, request, key, request_id in attempts:
        with pytest.raises(grpc.RpcError):
            audited.call(stub, method, request, key, request_id)
    (stranger,) = _entries_of_call(services.retriever, "stranger")
    assert (stranger["kind"], stranger["reason"]) == ("refusal", "UNAUTHENTICATED")
    assert "credential" not in stranger
    (other,) = _entries_of_call(services.retriever, "other-tenant")
    assert (other["code"], other["tenant"]) == ("PERMISSION_DENIED", "globex")
    assert other["credential"] == id_of(reader)
    (role,) = _entries_of_call(services.indexer, "role")
    assert (role["method"], role["credential"]) == ("DeleteCollection", id_of(reader))
    (nothing,) = _entries_of_call(services.indexer, "nothing")
    assert (nothing["kind"], nothing["code"]) == ("administration", "NOT_FOUND")
    assert (nothing["tenant"], nothing["collection"]) == ("acme", "c")


def test_a_flood_of_refusals_is_counted_and_not_written_line_by_line(audited: Audited) -> None:
    services = audited.services
    before = len(services.retriever.log)
    request = retriever_pb2.SearchRequest(tenant_id="acme", text="x")

    def knock() -> None:
        for _ in range(_FLOOD // 4):
            with suppress(grpc.RpcError):
                audited.call(services.raw_retriever, "Search", request, UNKNOWN_KEY, "flood")

    callers = [threading.Thread(target=knock) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    # A service that stops first writes the count of refusals in its last second.
    assert services.retriever.stop() == 0
    entries = _entries(services.retriever)
    lines = [entry for entry in entries if entry["kind"] == "refusal"]
    counts = [entry["count"] for entry in entries if entry["kind"] == "refusals"]
    assert len(lines) + sum(counts) == _FLOOD
    assert len(services.retriever.log) - before < 100 * _FLOOD / 4


def test_logs_contain_no_secret(audited: Audited) -> None:
    with audited.client(Role.WRITE) as client:
        client.ingest("acme", Document(_TEXT, "d", title=_SECRET, metadata={"k": _SECRET}))
        client.search("acme", _SECRET)
        for wrong in (Document(_TEXT, _SECRET + "\n"), Document("", "e")):
            with suppress(HragError):
                client.ingest("acme", wrong)
        with suppress(HragError):
            client.search("globex", _SECRET)
    logs = audited.services.indexer.log + audited.services.retriever.log
    assert "audit" in logs
    assert _SECRET not in logs
    for key in audited.keys.values():
        assert key.split("_", 2)[2] not in logs


def test_reads_are_recorded_in_a_separate_file_if_the_settings_say_so(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    settings = {**FAST, "HRAG_AUDIT_READS": "true", "HRAG_AUDIT_FILE": str(path)}
    with running(tmp_path / "store", settings) as services:
        services.client.ingest("acme", Document(_TEXT, "d"))
        services.client.search("acme", _SECRET)
        services.client.get_text("acme", "d")
        with suppress(HragError):
            services.client.search("nobody", _SECRET)
    entries = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    calls = [(e["service"], e["kind"], e["method"], e["tenant"], e["code"]) for e in entries]
    assert calls == [
        ("indexer", "change", "IngestDocument", "acme", "OK"),
        ("retriever", "read", "Search", "acme", "OK"),
        ("retriever", "read", "GetDocument", "acme", "OK"),
        ("retriever", "read", "Search", "nobody", "NOT_FOUND"),
    ]
    assert entries[2]["document"] == "d"
    assert _SECRET not in path.read_text("utf-8")
    assert path.stat().st_mode & 0o077 == 0


def test_a_list_of_tenants_is_recorded_as_administration(audited: Audited, tmp_path: Path) -> None:
    stub, request = audited.services.raw_indexer, indexer_pb2.ListTenantsRequest()
    everybody = new_key(tmp_path / "keys.json", "*", role=Role.ADMIN)
    until(lambda: _is_listed(audited, everybody))
    with pytest.raises(grpc.RpcError):
        audited.call(stub, "ListTenants", request, audited.keys[Role.ADMIN], "refused")
    audited.call(stub, "ListTenants", request, everybody, "listed")
    for name, kind, code in (
        ("refused", "refusal", "PERMISSION_DENIED"),
        ("listed", "administration", "OK"),
    ):
        (entry,) = _entries_of_call(audited.services.indexer, name)
        assert (entry["kind"], entry["method"], entry["code"]) == (kind, "ListTenants", code)


def _is_listed(audited: Audited, key: str) -> bool:
    """Returns True once the indexer knows a key that was created while it runs."""
    stub, request = audited.services.raw_indexer, indexer_pb2.ListTenantsRequest()
    with suppress(grpc.RpcError):
        audited.call(stub, "ListTenants", request, key, "first")
        return True
    return False


def test_a_service_whose_audit_file_cannot_be_opened_does_not_start(tmp_path: Path) -> None:
    settings = {**FAST, "HRAG_AUDIT_FILE": str(tmp_path / "none" / "audit.log")}
    process = Process(INDEXER, tmp_path / "store", settings)
    assert process.wait() == 2
    assert "HRAG_AUDIT_FILE" in process.log
