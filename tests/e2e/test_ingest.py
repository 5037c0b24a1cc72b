"""Documents that are ingested over gRPC are stored, replaced and deleted completely."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import grpc
import pytest

from hrag import errors
from hrag.client import AsyncClient, Client
from hrag.client.context import context
from hrag.models.embedding.hashing import HashEmbedder
from hrag.types import (
    Document,
    DocumentInfo,
    IngestOutcome,
    IngestResult,
    Listing,
    Page,
    SearchMode,
    SettingsRequest,
)
from hrag.v1 import indexer_pb2, types_pb2
from hrag.values.page_images import MAX_PAGE_BOXES
from hrag.wire.status_codes import error_from
from tests.support.documents.pdfs import Bookmark, pdf_of
from tests.support.servers.processes import Running

LONG = "".join(f"Sentence {number} speaks of the same few things. " for number in range(600))


@pytest.fixture
def client(services: Running) -> Client:
    return services.client


def _vector_of(text: str) -> list[float]:
    """Returns the vector that the services' embedder computes for a text."""
    vector: list[float] = HashEmbedder(64).embed([text])[0].tolist()
    return vector


# These tests read stored documents.


def test_a_document_comes_back_as_it_was_sent(client: Client, tenant: str) -> None:
    metadata = {"n": 1, "x": 0.5, "ok": True, "none": None, "tags": ["a", {"b": "ü"}], "": {}}
    text = "Hello 世界. \U0001f600 \x00 end"
    sent = Document(text, "d", "Title", "https://example.org", "text/plain", metadata)
    result = client.ingest(tenant, sent)
    assert isinstance(result, IngestResult)
    assert client.get_text(tenant, "d") == text
    info = client.get_document(tenant, "d")
    assert info == DocumentInfo(
        "d",
        "Title",
        "https://example.org",
        "text/plain",
        metadata,
        result.chunks_per_level,
        result.token_count,
        len(text.encode()),
        0,
        0,
        result.sequence,
    )
    chunk = client.search(tenant, "hello").passages[0].chunk
    assert (chunk.content, chunk.title, chunk.source) == (text, sent.title, sent.source)
    assert chunk.metadata == metadata
    assert (chunk.span.byte_end, chunk.span.char_end) == (len(text.encode()), len(text))


def test_a_pdf_is_cited_by_page_and_section(client: Client, tenant: str) -> None:
    pages = [f"Part {number}\n" + f"Page {number} is about it. " * 3 for number in (1, 2, 3)]
    content = pdf_of(pages, [Bookmark("Part 1", 1, 0), Bookmark("Part 3", 1, 2)])
    client.ingest(tenant, Document(content, "pdf"))
    info = client.get_document(tenant, "pdf")
    assert (info.mime_type, info.page_count, info.section_count) == ("application/pdf", 3, 2)
    chunk = client.get_chunk(tenant, "pdf#0.0").chunk
    assert (chunk.first_page, chunk.last_page) == (1, 3)
    assert chunk.section_path == ("Part 1",)


def test_pages_keep_their_numbers(client: Client, tenant: str) -> None:
    pages = (Page("The preface. " * 60, 7), Page("The first chapter. " * 60, 9))
    client.ingest(tenant, Document(pages, "book"))
    last_leaf = client.get_document(tenant, "book").chunks_per_level[0] - 1
    assert client.get_chunk(tenant, "book#0.0").chunk.first_page == 7
    assert client.get_chunk(tenant, f"book#0.{last_leaf}").chunk.last_page == 9


def test_markdown_is_cited_by_section(client: Client, tenant: str) -> None:
    text = "# Guide\n\n## Keys\n\n" + "Rotate every key once a month. " * 20
    client.ingest(tenant, Document(text, "guide", mime_type="text/markdown"))
    chunk = client.search(tenant, "keys").passages[0].chunk
    assert chunk.section_path == ("Guide", "Keys")


@pytest.mark.parametrize(
    ("sent", "title"),
    [
        (Document("---\ntitle: Bees\n---\n# All\n\nText.", "d", mime_type="text/markdown"), "Bees"),
        (Document("# Bees\n\nText.", "d", mime_type="text/markdown"), "Bees"),
        (Document(pdf_of(["They dance."], title="Bees"), "d"), "Bees"),
        (Document(pdf_of(["They dance."], title="Bees"), "d", title="Sent"), "Sent"),
        (Document("# Bees", "d"), ""),
    ],
    ids=["front matter", "heading", "pdf", "sent", "plain text"],
)
def test_a_document_without_a_title_gets_the_title_in_its_body(
    client: Client, tenant: str, sent: Document, title: str
) -> None:
    client.ingest(tenant, sent)
    (passage,) = client.search(tenant, "bees").passages
    assert passage.chunk.title == client.get_document(tenant, "d").title == title
    assert context([passage]).startswith(f"[{title or 'd'}")
    assert client.ingest(tenant, sent).outcome is IngestOutcome.UNCHANGED


# These tests update and delete documents.


def test_an_update_replaces_the_document_at_every_level(client: Client, tenant: str) -> None:
    client.ingest(tenant, Document(LONG, "d"))
    old = [client.get_chunk(tenant, f"d#{level}.0").chunk for level in range(4)]
    updated = client.ingest(tenant, Document("Short now.", "d"))
    assert updated.outcome is IngestOutcome.UPDATED
    for level, chunk in enumerate(old):
        passages = client.search(tenant, _vector_of(chunk.content), return_level=level).passages
        assert [passage.chunk.content for passage in passages] == ["Short now."]
        with pytest.raises(errors.ChunkNotFound):
            client.get_chunk(tenant, f"d#{level}.1")


def test_a_deleted_document_is_gone_from_every_call(client: Client, tenant: str) -> None:
    client.ingest(tenant, Document(LONG, "d"))
    client.delete_document(tenant, "d")
    for level in range(4):
        assert client.search(tenant, "x", return_level=level).passages == ()
        with pytest.raises(errors.DocumentNotFound):
            client.get_hierarchy(tenant, f"d#{level}.0")
    for ask in (client.get_document, client.get_text, client.delete_document):
        with pytest.raises(errors.DocumentNotFound):
            ask(tenant, "d")
    assert client.list_documents(tenant) == Listing((), "")
    status = client.index_status(tenant)
    assert (status.document_count, status.chunk_count, status.text_bytes) == (0, 0, 0)


def test_a_recreated_collection_has_no_documents_of_the_old_one(
    client: Client, tenant: str
) -> None:
    client.ingest(tenant, Document(LONG, "d"))
    assert client.search(tenant, "x").passages
    client.delete_collection(tenant, "default")
    with pytest.raises(errors.CollectionNotFound):
        client.search(tenant, "x")
    client.create_collection(tenant, "default", SettingsRequest(level_sizes=(64,)))
    assert client.search(tenant, "x").passages == ()
    client.ingest(tenant, Document("New.", "d"))
    result = client.search(tenant, "x")
    assert [passage.chunk.content for passage in result.passages] == ["New."]
    assert result.returned_at_level == 0


def test_every_write_is_read_by_the_next_search(client: Client, tenant: str) -> None:
    for number in range(30):
        written = client.ingest(tenant, Document(f"Version {number}.", "d"))
        (passage,) = client.search(tenant, "x").passages
        assert passage.chunk.content == f"Version {number}."
        assert (
            client.search(tenant, "x", min_sequence=written.sequence).sequence >= written.sequence
        )


# This test shows that a search's limit counts passages, not leaves.


def test_ten_passages_are_returned_if_one_passage_has_all_first_candidates(
    client: Client, tenant: str
) -> None:
    """All leaves of the long document match best, and all are in one top chunk."""
    client.create_collection(
        tenant, "c", SettingsRequest(level_sizes=(32, 16_384), overlap_ratio=0.0)
    )
    same = "The same words again and again and on and on they go for ever. "
    client.ingest(tenant, Document(same * 400, "long"), collection="c")
    for number in range(9):
        client.ingest(tenant, Document(f"Something else {number}.", f"d{number}"), collection="c")
    leaf = client.get_chunk(tenant, "long#0.5", collection="c").chunk.content
    vector = _vector_of(leaf)
    leaves = client.search(
        tenant, vector, collection="c", mode=SearchMode.STANDARD, limit=50
    ).passages
    assert {passage.chunk.document_id for passage in leaves} == {"long"}
    for candidates in (1, 2, 10, 49, 50):
        result = client.search(tenant, vector, collection="c", limit=10, candidates=candidates)
        ids = [passage.chunk.document_id for passage in result.passages]
        assert ids[0] == "long"
        assert set(ids) == {"long", *(f"d{number}" for number in range(9))}
        assert result.exhausted


# These tests send streams of documents, use both clients or set a deadline.


def test_a_stream_may_have_a_thousand_documents(client: Client, tenant: str) -> None:
    def documents() -> Iterator[Document]:
        for number in range(1000):
            yield Document(f"Document {number}.", f"d{number}")

    results = list(client.ingest_many(tenant, documents(), timeout_s=60))
    assert [getattr(result, "document_id", result) for result in results] == [
        f"d{number}" for number in range(1000)
    ]
    assert client.index_status(tenant).document_count == 1000
    assert _all_ids(client, tenant) == sorted(f"d{number}" for number in range(1000))


def _all_ids(client: Client, tenant: str) -> list[str]:
    """Returns the ids of all documents, in the order of the listing's pages."""
    document_ids: list[str] = []
    token = ""
    while True:
        page = client.list_documents(tenant, page_size=300, page_token=token)
        document_ids += [info.document_id for info in page.items]
        token = page.next_page_token
        if not token:
            return document_ids


def test_a_document_that_is_only_validated_is_read_and_not_stored(
    client: Client, tenant: str
) -> None:
    sent = Document(b"# Bees\n\nBees dance.", "d", source="bees.md")
    planned = client.ingest(tenant, sent, validate_only=True)
    assert (planned.outcome, planned.sequence) == (IngestOutcome.CREATED, 0)
    assert planned.report is not None
    assert (planned.report.mime_type, planned.report.section_count) == ("text/markdown", 1)
    assert list(client.ingest_many(tenant, [sent], validate_only=True)) == [planned]
    assert client.list_collections(tenant).items == ()
    stored = client.ingest(tenant, sent)
    assert stored == replace(planned, sequence=stored.sequence)
    # The result for a document that is stored already has the document's sequence number.
    unchanged = replace(stored, outcome=IngestOutcome.UNCHANGED, report=None)
    assert client.ingest(tenant, sent, validate_only=True) == unchanged
    with pytest.raises(errors.BlankDocument):
        client.ingest(tenant, Document(" ", "d"), validate_only=True)


def test_a_stream_continues_after_the_error_of_a_document(client: Client, tenant: str) -> None:
    documents = [
        Document("First.", "a"),
        Document("  ", "b"),
        Document("Third.", "c/d"),
        Document(b"\0", "e"),
        Document("Last.", "f"),
    ]
    results: list[Any] = list(client.ingest_many(tenant, documents))
    assert [type(result) for result in results] == [
        IngestResult,
        errors.BlankDocument,
        errors.InvalidArgument,
        errors.UnreadableDocument,
        IngestResult,
    ]
    assert [error.field for error in results[1:4]] == ["text", "document_id", "mime_type"]
    assert [info.document_id for info in client.list_documents(tenant).items] == ["a", "f"]


async def test_both_clients_return_the_same_results(
    services: Running, client: Client, tenant: str
) -> None:
    async with AsyncClient(services.indexer.address, services.retriever.address) as other:
        stored = await other.ingest(tenant, Document(LONG, "d"))
        streamed = [result async for result in other.ingest_many(tenant, [Document(LONG, "d")])]
        result = await other.search(tenant, "things", min_sequence=stored.sequence)
        assert [result.sequence for result in streamed] == [stored.sequence]  # type: ignore[union-attr]
        assert result.passages == client.search(tenant, "things").passages
        assert await other.get_hierarchy(tenant, "d#1.0") == client.get_hierarchy(tenant, "d#1.0")
        assert await other.index_status(tenant) == client.index_status(tenant)
        info = client.server_info()
        # The reader's lag differs between two calls.
        assert replace(await other.server_info(), reader=info.reader) == info
        with pytest.raises(errors.DocumentNotFound):
            await other.get_document(tenant, "unknown")


def test_a_deadline_of_a_millisecond_passes_and_nothing_is_stored(
    services: Running, client: Client, tenant: str
) -> None:
    """A second document of the same size is sent later.

    When the second document is stored, the service has had enough time to store the first one.
    """
    client.ingest(tenant, Document("First.", "a"))
    document = types_pb2.Document(document_id="late", text=LONG * 40)
    request = indexer_pb2.IngestDocumentRequest(tenant_id=tenant, document=document)
    with pytest.raises(grpc.RpcError) as caught:
        services.raw_indexer.IngestDocument(request, timeout=0.001)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert isinstance(error_from(caught.value), errors.DeadlineExceeded)
    client.ingest(tenant, Document(LONG * 40, "later"))
    assert [info.document_id for info in client.list_documents(tenant).items] == ["a", "later"]


def test_server_info_has_the_embedder_and_the_limits(client: Client) -> None:
    info = client.server_info()
    assert (info.embedder, info.return_level) == ("hash/64", 2)
    assert (info.default_limit, info.default_candidates) == (5, 200)
    assert (info.limits.limit, info.limits.candidates, info.limits.levels) == (100, 10_000, 8)
    limits = info.limits
    assert (limits.page_spans, limits.page_dpi, limits.page_boxes) == (64, 300, MAX_PAGE_BOXES)
    assert info.limits.document_bytes == 32 * 1024 * 1024
