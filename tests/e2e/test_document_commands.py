"""Commands list, show, change and delete documents, collections and aliases."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from hrag.cli.app import app
from hrag.types import Document
from tests.support.servers.processes import Running
from tests.support.until import PATIENCE_S

Run = Callable[..., Any]
TEXT = "# 指南\n\nRotate every key.\r\n\x1b[31m钥匙\n"


@pytest.fixture
def run(services: Running, tenant: str) -> Run:
    """A function that runs a command for the test's tenant and returns its result."""
    env = {
        "HRAG_INDEXER_ADDRESS": services.indexer.address,
        "HRAG_RETRIEVER_ADDRESS": services.retriever.address,
        "NO_COLOR": "1",
        "COLUMNS": "100",
    }

    def invoke(*arguments: str, code: int = 0) -> Any:
        result = CliRunner().invoke(app, [*arguments, "--tenant", tenant], env=env)
        assert result.exit_code == code, result.output
        return result

    return invoke


@pytest.fixture
def stored(services: Running, tenant: str) -> None:
    """Ingests three documents into the collection `default`."""
    for name in ("a", "b", "c"):
        document = Document(TEXT, name, title=f"标题 {name}", source=f"文/{name}.md")
        services.client.ingest(tenant, document)
    document = Document(TEXT, "b", mime_type="text/markdown", metadata={"标签": ["甲", 2]})
    services.client.ingest(tenant, document)


@pytest.mark.usefixtures("stored")
def test_documents_are_listed_page_by_page(run):
    first = run("documents", "--limit", "2")
    header, *rows = first.stdout.splitlines()
    assert header.split("\t") == ["id", "title", "source", "tokens", "bytes", "sequence"]
    assert [row.split("\t")[:3] for row in rows] == [["a", "标题 a", "文/a.md"], ["b", "指南", ""]]
    token = first.stderr.split("2 of 3 documents; next page: --page-token ")[1].strip()
    second = run("documents", "--page-token", token, "--json")
    listed = json.loads(second.stdout)
    assert [document["document_id"] for document in listed["documents"]] == ["c"]
    assert (listed["next_page_token"], listed["document_count"]) == ("", 3)
    assert len(run("documents", "--all").stdout.splitlines()) == 4
    assert "page_token is 'x'" in run("documents", "--page-token", "x", code=2).stderr


@pytest.mark.usefixtures("stored")
def test_a_document_is_shown_with_its_metadata_and_its_tree(run):
    shown = run("get", "b").stdout
    assert 'metadata    标签: ["甲", 2]' in shown
    assert "chunks      1 of level 0, 1 of level 1, 1 of level 2, 1 of level 3" in shown
    assert run("get", "b", "--text").stdout_bytes.decode() == TEXT
    document = json.loads(run("get", "b", "--text", "--json").stdout)
    assert (document["text"], document["mime_type"]) == (TEXT, "text/markdown")
    tree = json.loads(run("tree", "b", "--json").stdout)
    assert [chunk["chunk_id"] for chunk in tree["chunks"]] == ["b#3.0", "b#2.0", "b#1.0", "b#0.0"]
    assert tree["chunks"][1]["parent_id"] == "b#3.0"
    assert tree["chunks"][0]["parent_id"] is None


@pytest.mark.usefixtures("stored")
def test_documents_are_deleted_and_missing_documents_reported(run):
    deleted = run("delete", "a", "none", "c", "a", code=3)
    assert deleted.stdout == "deleted a\ndeleted c\n"
    assert "no document 'none'" in deleted.stderr
    deletion = json.loads(run("delete", "b", "--json").stdout)
    assert [document["document_id"] for document in deletion["deleted"]] == ["b"]
    assert json.loads(run("documents", "--json").stdout)["documents"] == []


@pytest.mark.usefixtures("stored")
def test_documents_that_match_are_listed_counted_and_deleted(run):
    assert run("count").stdout == "3\n"
    assert run("count", "--where", "标签=甲").stdout == "1\n"
    counted = json.loads(run("count", "--where", "!标签", "--json").stdout)
    assert (counted["documents"], counted["total_documents"]) == (2, 3)
    listed = run("documents", "--where", "!标签", "--limit", "1")
    assert listed.stdout.splitlines()[1].startswith("a\t")
    assert "1 of 2 documents" in listed.stderr
    refused = run("delete", "--where", "!标签", code=2)
    assert "Delete 2 of 3 documents of collection default" in refused.stderr
    assert "--where" in run("delete", "--where", "==", "--yes", code=2).stderr
    assert "either document ids or --where" in run("delete", code=2).stderr
    assert "either document ids or --where" in run("delete", "a", "--where", "x", code=2).stderr
    assert run("delete", "--where", "!标签", "--yes").stdout == "deleted 2 documents\n"
    assert run("delete", "--where", "!标签").stdout == "deleted 0 documents\n"
    assert run("count").stdout == "1\n"


@pytest.mark.usefixtures("stored")
def test_metadata_is_set_and_removed(run, services, tenant):
    def stored() -> tuple[Any, str]:
        info = services.client.get_document(tenant, "b")
        return info.metadata, info.source

    assert run("metadata", "set", "b", "年=2026", 'x="5"').stdout == "updated b\n"
    assert stored() == ({"标签": ["甲", 2], "年": 2026, "x": "5"}, "")
    done = json.loads(run("metadata", "remove", "b", "标签", "none", "x", "--json").stdout)
    assert (done["outcome"], done["document"]["metadata"]) == ("updated", {"年": 2026})
    assert run("metadata", "remove", "b", "x").stdout == "unchanged b\n"
    run("metadata", "set", "b", "y=1", "--replace", "--source", "https://x/书")
    assert stored() == ({"y": 1}, "https://x/书")
    assert "give KEY=VALUE" in run("metadata", "set", "b", code=2).stderr
    assert "is not KEY=VALUE" in run("metadata", "set", "b", "y", code=2).stderr
    assert run("metadata", "set", "none", "y=1", code=3).stdout == ""


def test_a_collection_is_created_listed_and_deleted(run):
    settings = ("--level-sizes", "128,512", "--embedder", "none", "--no-index-headings")
    collection = json.loads(run("collections", "create", "books", *settings, "--json").stdout)
    assert collection["settings"]["tree"]["level_sizes"] == [128, 512]
    assert collection["settings"]["index_headings"] is False
    assert "already" in run("collections", "create", "books", code=1).stderr
    assert "books\t0\t128, 512\t0.1\tnone\tenglish" in run("collections", "list").stdout
    refused = run("collections", "delete", "books", code=2)
    assert "with 0 documents? To agree, add --yes" in refused.stderr
    run("collections", "delete", "books", "--yes")
    assert json.loads(run("collections", "list", "--json").stdout) == []
    assert run("collections", "delete", "books", "--yes", code=3).stdout == ""
    refused = run("collections", "create", "x", "--level-sizes", "1,b", code=2)
    assert "--level-sizes" in refused.stderr


def test_an_alias_is_set_listed_and_deleted(run):
    assert "no aliases" in run("aliases", "list").stdout
    for name in ("old", "new"):
        run("collections", "create", name)
    assert run("aliases", "set", "live", "old").stdout == "live names old\n"
    assert run("aliases", "set", "live", "new").stdout == "live names new instead of old\n"
    assert run("aliases", "list").stdout == "alias\tcollection\nlive\tnew\n"
    assert run("count", "--collection", "live").stdout == "0\n"
    assert run("aliases", "set", "live", "none", code=3).stdout == ""
    assert run("aliases", "delete", "live").stdout == "deleted alias live\n"
    assert json.loads(run("aliases", "list", "--json").stdout) == []
    assert run("aliases", "delete", "live", code=3).stdout == ""


def test_errors_are_json_with_the_option_json(run):
    for arguments, code, kind in (
        (("get", "none", "--collection", "none"), 3, "CollectionNotFound"),
        (("get",), 2, "UsageError"),
        (("documents", "--no-such-option"), 2, "UsageError"),
        (("search", "x", "--filter", "lang=="), 2, "UsageError"),
        (("collections", "delete", "none"), 3, "CollectionNotFound"),
    ):
        result = run(*arguments, "--json", code=code)
        assert result.stdout == ""
        error = json.loads(result.stderr)["error"]
        assert (error["type"], error["exit_code"]) == (kind, code)


def test_collection_names_are_completed(run, services, tenant, monkeypatch):
    monkeypatch.setattr("hrag.cli.options._COMPLETION_TIMEOUT_S", PATIENCE_S)
    for name in ("guides", "gamma", "books"):
        services.client.create_collection(tenant, name)
    completed = _completed(services.indexer.address, tenant)
    assert completed.split() == ["gamma", "guides"]
    assert _completed("127.0.0.1:1", tenant).split() == []


def _completed(address: str, tenant: str) -> str:
    line = f"hrag documents --tenant {tenant} --indexer {address} --collection g"
    env = {
        "_HRAG_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split()) - 1),
    }
    result = CliRunner().invoke(app, prog_name="hrag", env=env)
    return result.stdout
