"""`hrag tenants` shows all tenants, however many pages they are on."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner

from hrag.cli import tenants
from hrag.cli.app import app
from hrag.cli.terminal import ExitCode
from hrag.errors import PermissionDenied
from hrag.types import Listing, Tenant, TenantUsage
from hrag.values.quotas import Quota

ACME = Tenant("acme", TenantUsage(2, 3_000, 5_000_000, Quota(max_documents=9_000)), 40_000, 3_002)
ZOO = Tenant("zoo", TenantUsage(1, 0, 0), 0, 7)


class FakeClient:
    """A client of an indexer that returns each tenant on a page of its own."""

    def __init__(self, *stored: Tenant) -> None:
        self.stored = stored

    def list_tenants(self, *, page_token: str) -> Listing[Tenant]:
        first = int(page_token or 0)
        more = str(first + 1) if first + 1 < len(self.stored) else ""
        return Listing(self.stored[first : first + 1], more)


class Refused:
    """A client whose credential is not for all tenants."""

    def list_tenants(self, *, page_token: str) -> Listing[Tenant]:
        raise PermissionDenied("it needs a credential for the tenant *")


def _run(monkeypatch: pytest.MonkeyPatch, client: FakeClient | Refused, *arguments: str):
    @contextmanager
    def connect(*_: object, **__: object) -> Iterator[FakeClient | Refused]:
        yield client

    monkeypatch.setattr(tenants, "connect", connect)
    return CliRunner().invoke(app, ["tenants", *arguments])


def test_each_tenant_is_a_line_with_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = _run(monkeypatch, FakeClient(ACME, ZOO))
    assert [line.split("\t") for line in shown.stdout.splitlines()] == [
        ["tenant", "collections", "documents", "leaves", "bytes", "sequence"],
        ["acme", "2", "3000", "40000", "5000000", "3002"],
        ["zoo", "1", "0", "0", "0", "7"],
    ]


def test_json_has_the_quota_too(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = json.loads(_run(monkeypatch, FakeClient(ACME, ZOO), "--json").stdout)
    assert (first["tenant_id"], first["leaf_count"], first["sequence"]) == ("acme", 40_000, 3_002)
    assert (first["usage"]["documents"], first["usage"]["quota"]["max_documents"]) == (3_000, 9_000)
    assert (second["tenant_id"], second["usage"]["quota"]["max_documents"]) == ("zoo", None)


def test_an_empty_store_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _run(monkeypatch, FakeClient()).stdout == "no tenant has a collection yet\n"
    assert json.loads(_run(monkeypatch, FakeClient(), "--json").stdout) == []


def test_a_refusal_shows_no_tenant(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = _run(monkeypatch, Refused())
    assert refused.exit_code == ExitCode.DENIED
    assert refused.stdout == ""
    assert "needs a credential for the tenant *" in refused.stderr
