"""Every call that takes a filter asks for documents by MIME type and by format."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from hrag.cli.app import app
from hrag.cli.terminal import ExitCode
from hrag.client import Client
from hrag.errors import InvalidArgument
from hrag.filters import Filter, Match, NoneOf
from hrag.types import Document, SearchQuery

MARKDOWN = Match("format", ("markdown",))
NOT_PLAIN = NoneOf((Match("mime_type", ("text/plain",)),))


@pytest.fixture
def client(services, tenant: str) -> Client:
    """A client. The tenant has one document of each of four formats, named by its format.

    Two formats are detected, and two are named by the client, one of them by an alias.
    """
    documents = (
        Document(b"Dogs bark, says the text.", "plain"),
        Document(b"# Dogs\n\nDogs bark.", "detected", source="a/dogs.md"),
        Document("# Dogs\n\nDogs bark at cats.", "named", mime_type="text/x-markdown"),
        Document("name,sound\ndogs,bark\n", "csv", mime_type="TEXT/CSV; charset=utf-8"),
    )
    for document in documents:
        services.client.ingest(tenant, document)
    return services.client


def _ids(passages: Any) -> set[str]:
    return {passage.chunk.document_id for passage in passages}


def test_every_call_finds_documents_by_their_format(client: Client, tenant: str) -> None:
    for filter_, expected in (
        (MARKDOWN, {"detected", "named"}),
        (Match("mime_type", ("text/markdown",)), {"detected", "named"}),
        (Match("format", ("txt", "pdf")), {"plain"}),
        (NOT_PLAIN, {"detected", "named", "csv"}),
    ):
        assert _ids(client.search(tenant, "dogs", filter=filter_, limit=9).passages) == expected
        query = SearchQuery(tenant, "dogs", filter=filter_, limit=9)
        (result,) = client.batch_search([query])
        assert _ids(result.passages) == expected
        assert client.count_documents(tenant, filter=filter_).documents == len(expected)
        listed = client.list_documents(tenant, filter=filter_).items
        assert {info.document_id for info in listed} == expected
    assert client.get_document(tenant, "named", filter=MARKDOWN).mime_type == "text/markdown"
    client.delete_documents(tenant, filter=MARKDOWN)
    assert client.count_documents(tenant).documents == 2


def test_the_command_line_finds_documents_by_their_format(
    services, client: Client, tenant: str
) -> None:
    env = {
        "NO_COLOR": "1",
        "HRAG_INDEXER_ADDRESS": services.indexer.address,
        "HRAG_RETRIEVER_ADDRESS": services.retriever.address,
    }

    def hrag(*arguments: str) -> Any:
        return CliRunner().invoke(app, [*arguments, "--tenant", tenant], env=env)

    found = hrag("documents", "--where", 'format=["md","csv"]', "--where", "format!=csv")
    assert [line.split("\t")[0] for line in found.stdout.splitlines()[1:]] == ["detected", "named"]
    found = hrag("search", "dogs", "--filter", "mime_type=text/csv", "--json")
    assert [part["chunk"]["document_id"] for part in json.loads(found.stdout)["passages"]] == [
        "csv"
    ]
    refused = hrag("count", "--where", "format=A4")
    assert refused.exit_code == ExitCode.USAGE
    assert "metadata.format is the key of this name" in " ".join(refused.stderr.split())


def _calls(client: Client) -> tuple[Callable[..., object], ...]:
    return (
        lambda tenant, **filter: client.search(tenant, "dogs", **filter),
        client.count_documents,
        client.list_documents,
        client.delete_documents,
    )


@pytest.mark.parametrize(
    ("filter_", "says"),
    [
        (Match("format", ("pdff",)), r"contains 'pdff'; format must be txt, md, pdf, html, docx,"),
        (Match("mime_type", ("pdf",)), "contains 'pdf'; mime_type must be text/plain, text/mark"),
    ],
)
def test_a_format_that_hrag_does_not_know_is_refused_in_every_call(
    client: Client, tenant: str, filter_: Filter, says: str
) -> None:
    for call in _calls(client):
        with pytest.raises(InvalidArgument, match=says) as caught:
            call(tenant, filter=filter_)
        assert caught.value.field == "filter.match.values"
    assert client.count_documents(tenant).documents == 4
