"""`hrag import` restores the documents that `hrag export` has written, unchanged."""

import io
import json
from collections.abc import Callable
from typing import Any

import networkx
import pytest
from typer.testing import CliRunner

from hrag.cli.app import app
from hrag.types import Document, Page, SettingsRequest
from tests.support.cypher_script import executed
from tests.support.servers.processes import Running

Run = Callable[..., Any]
PAGES = (Page("第一页。" * 300, 5), Page("", 6), Page("Third page. " * 400, 9), Page("", 10))


@pytest.fixture
def run(services: Running, tenant: str) -> Run:
    """A function that runs a command for the test's tenant and returns its result."""
    env = {
        "HRAG_INDEXER_ADDRESS": services.indexer.address,
        "HRAG_RETRIEVER_ADDRESS": services.retriever.address,
        "NO_COLOR": "1",
    }

    def invoke(*arguments: object, code: int = 0, data: bytes = b"") -> Any:
        command = [*map(str, arguments), "--tenant", tenant]
        result = CliRunner().invoke(app, command, env=env, input=data)
        assert result.exit_code == code, result.output
        return result

    return invoke


@pytest.fixture
def exported(services: Running, tenant: str) -> str:
    """The name of a collection with small chunks and two documents.

    The document `paged` has pages, and the document `md` has a heading.
    """
    client = services.client
    client.create_collection(tenant, "from", SettingsRequest(level_sizes=(64, 256)))
    client.ingest(tenant, Document(PAGES, "paged", metadata={"年": 2026}), collection="from")
    markdown = Document(
        "# 标题\n\nIt's text.\\n", "md", source="文/a.md", mime_type="text/markdown"
    )
    client.ingest(tenant, markdown, collection="from")
    return "from"


def test_imported_documents_have_the_pages_and_settings_of_the_exported_ones(
    run, services, tenant, exported, tmp_path
):
    file = tmp_path / "out.jsonl"
    assert "exported 2 documents" in run("export", "--collection", exported, "-o", file).stderr
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]
    into = ("--collection", "to", "--create")
    assert "2 created" in run("import", file, *into).stdout
    assert "2 unchanged" in run("import", file, *into).stdout
    client = services.client
    settings = [client.get_collection(tenant, name).settings for name in ("from", "to")]
    assert settings[0] == settings[1]
    for name in ("paged", "md"):
        before, after = (
            client.get_document(tenant, name, collection=collection)
            for collection in ("from", "to")
        )
        same = ("title", "source", "mime_type", "metadata", "chunks_per_level", "page_count")
        assert [getattr(before, field) for field in same] == [
            getattr(after, field) for field in same
        ]
        texts = [
            client.get_text(tenant, name, collection=collection) for collection in ("from", "to")
        ]
        assert texts[0] == texts[1]
    chunks = [
        client.get_chunk(tenant, "paged#1.2", collection=collection).chunk
        for collection in ("from", "to")
    ]
    assert chunks[0] == chunks[1]
    assert chunks[0].first_page > 0
    again = run("export", "--collection", "to").stdout
    assert again.splitlines()[1:] == file.read_text().splitlines()[1:]
    only = run("export", "--collection", exported, "--where", "年=2026").stdout.splitlines()
    assert [json.loads(line).get("id") for line in only] == [None, "paged"]


def test_bad_lines_are_reported_and_the_other_lines_stored(run, services, tenant, exported):
    header, *_ = run("export", "--collection", exported).stdout.splitlines()
    lines = [
        header,
        '{"id": "good", "text": "good"}',
        "{",
        "",
        '{"id": "no/id", "text": "x"}',
        '{"id": "surrogate", "text": "\\ud800"}',
        '{"id": "big", "text": "x", "metadata": {"n": 9007199254740993}}',
        '{"id": "page", "pages": [{"number": 5000000000, "text": "x"}]}',
        '{"id": "last", "text": "last"}',
    ]
    done = run("import", "-", data="\n".join(lines).encode(), code=1)
    reasons = {line.split(":")[0] for line in done.stdout.splitlines() if line.startswith("line")}
    assert reasons == {"line 3", "line 5", "line 6", "line 7", "line 8"}
    assert "2 created, 0 updated, 0 unchanged, 5 failed" in done.stdout
    stored = services.client.list_documents(tenant).items
    assert [document.document_id for document in stored] == ["good", "last"]
    *_, summary = run(
        "import", "-", "--json", data="\n".join(lines).encode(), code=1
    ).stdout.splitlines()
    assert json.loads(summary)["summary"]["unchanged"] == 2
    assert "first line" in run("import", "-", data=b'{"id": "x"}', code=2).stderr
    assert "No such file" in run("import", "none.jsonl", code=2).stderr
    assert run("export", "--collection", "none", code=3).stdout == ""


def test_the_chunk_tree_is_exported_as_a_graph(run, services, tenant, exported):
    where = ("--collection", exported, "--format")
    graph = networkx.read_graphml(io.BytesIO(run("export", *where, "graphml").stdout_bytes))
    script = executed(run("export", *where, "cypher").stdout)
    client = services.client
    counts = [
        sum(client.get_document(tenant, name, collection=exported).chunks_per_level)
        for name in ("paged", "md")
    ]
    assert len(graph.nodes) == len(script.nodes) == 2 + sum(counts)
    assert len(graph.edges) == len(script.edges) == sum(counts)
    for (_, key), properties in script.nodes.items():
        chunk_id = dict(key)["id"]
        assert graph.nodes[chunk_id]["tenantId"] == properties["tenantId"] == tenant
        if "#" in chunk_id:
            chunk = client.get_chunk(tenant, chunk_id, collection=exported).chunk
            assert properties["content"] == graph.nodes[chunk_id]["content"] == chunk.content
            assert properties["tokenCount"] == chunk.token_count


def test_a_failed_export_leaves_no_file(run, tmp_path):
    target = tmp_path / "out.jsonl"
    run("collections", "create", "c")
    run("export", "--collection", "none", "-o", target, code=3)
    assert list(tmp_path.iterdir()) == []
    refused = run("export", "--collection", "c", "-o", tmp_path / "no" / "out", code=2)
    assert "there is no folder" in refused.stderr
