"""Small requests cannot cause huge replies.

They try with runs of spaces, batches, trees, lists and metadata.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from hrag.errors import ReplyTooLarge
from hrag.types import MAX_BATCH_REFUSALS, Document, SearchMode, SearchQuery, SettingsRequest
from hrag.v1 import indexer_pb2, retriever_pb2
from tests.support.servers.openai_server import OpenAIServer
from tests.support.servers.processes import FAST, Running, running

pytestmark = [pytest.mark.attacks, pytest.mark.timeout(300)]

LIMIT = 3 << 20
SPACES = "word " + " " * 8000
# This text has about 1 MB and is one chunk of level 1.
LONG = SPACES * 120
DOCUMENTS = 6
MIB = 1 << 20


@pytest.fixture(scope="module")
def services(
    tmp_path_factory: pytest.TempPathFactory, _no_settings_from_outside: None
) -> Iterator[Running]:
    with OpenAIServer() as chat:
        settings = {"HRAG_CHAT_MODEL": "m", "HRAG_CHAT_BASE_URL": chat.base_url}
        folder = tmp_path_factory.mktemp("replies")
        with running(folder / "store", {**FAST, **settings, "HRAG_SUMMARIES": "none"}) as both:
            both.client.create_collection("t", "default", SettingsRequest(level_sizes=(256, 32768)))
            for number in range(DOCUMENTS):
                both.client.ingest("t", Document(f"{number} {LONG}", f"d{number}"))
            both.client.ingest("t", Document(LONG * 5, "whole"))
            yield both


def _needed_bytes(error: ReplyTooLarge) -> int:
    """Returns how many bytes the refused reply would have had, as the message says.

    Fails unless the message names the limit and, after a semicolon, says what to do.
    """
    needed, allowed = re.findall(r"([\d,]+) bytes|at most ([\d,]+)", error.message)[:2]
    assert int(allowed[1].replace(",", "")) == LIMIT
    assert "; " in error.message
    return int(needed[0].replace(",", ""))


@pytest.mark.parametrize(
    "options",
    [
        {"limit": 100, "return_level": 1},
        {"mode": SearchMode.AUTO_MERGE, "return_level": 1, "limit": 100, "merge_ratio": 0.01},
        {"mode": SearchMode.CONTEXT, "token_budget": 2**32 - 1, "candidates": 10_000},
        {"merge_adjacent": True, "limit": 100, "return_level": 1},
    ],
    ids=["small to big", "auto merge", "context", "adjacent"],
)
def test_a_small_search_cannot_cause_a_reply_beyond_the_limit(
    services: Running, options: dict[str, Any]
) -> None:
    with pytest.raises(ReplyTooLarge) as refused:
        services.client.search("t", "word", **options)
    assert _needed_bytes(refused.value) > LIMIT
    assert services.client.search("t", "word", limit=1, return_level=0).passages


def test_the_reply_of_a_batch_has_the_limit_of_a_search_and_needs_little_memory(
    services: Running,
) -> None:
    def peak() -> int:
        status = Path(f"/proc/{services.retriever.pid}/status").read_text("ascii")
        (kilobytes,) = re.findall(r"VmHWM:\s+(\d+) kB", status)
        return int(kilobytes) << 10

    services.client.search("t", "word", limit=1, return_level=1)
    before = peak()
    search = retriever_pb2.SearchRequest(tenant_id="t", text="word", limit=1, return_level=1)
    reply = services.raw_retriever.BatchSearch(
        retriever_pb2.BatchSearchRequest(searches=[search] * 32)
    )
    assert MIB // 2 < reply.ByteSize() <= LIMIT
    assert next(outcome.WhichOneof("outcome") for outcome in reply.outcomes) == "response"
    reasons = {outcome.error.reason for outcome in reply.outcomes if outcome.HasField("error")}
    assert reasons == {"REPLY_TOO_LARGE"}
    assert peak() - before < 60 * MIB


def test_a_batch_runs_few_searches_whose_replies_are_too_large(services: Running) -> None:
    query = SearchQuery("t", "word", mode=SearchMode.CONTEXT, token_budget=10**6, candidates=10_000)
    outcomes = services.client.batch_search([query] * 32)
    messages = [outcome.message for outcome in outcomes if isinstance(outcome, ReplyTooLarge)]
    assert len(messages) == 32
    assert sum("would take at least" in message for message in messages) == MAX_BATCH_REFUSALS
    assert all(f"{MAX_BATCH_REFUSALS} searches before it" in message for message in messages[2:])


def test_an_answer_whose_passages_are_too_large_is_refused(services: Running) -> None:
    query = SearchQuery("t", "word", token_budget=2**31)
    with pytest.raises(ReplyTooLarge):
        next(iter(services.client.answer(query)))


@pytest.mark.parametrize("depth", [1, 8])
def test_the_size_of_a_tree_is_checked_before_it_is_built(services: Running, depth: int) -> None:
    """The document has five chunks of about 1 MB at the top level, and each has many leaves."""
    request = retriever_pb2.GetHierarchyRequest(
        tenant_id="t", chunk_id="whole#1.0", depth=depth, include_content=True
    )
    with pytest.raises(grpc.RpcError) as refused:
        services.raw_retriever.GetHierarchy(request)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert re.search("GetDocument|GetChunk", refused.value.details())
    assert services.client.get_chunk("t", "whole#0.0").chunk.content


def test_metadata_is_sent_once_for_a_tree_and_counts_in_each_passage(services: Running) -> None:
    text = " ".join(f"word{number}." for number in range(20_000))
    services.client.create_collection("meta", "default", SettingsRequest(level_sizes=(32, 32768)))
    services.client.ingest("meta", Document(text, "d", metadata={"large": "x" * 60_000}))
    tree = services.client.get_hierarchy("meta", "d#1.0", depth=8)
    assert len(tree.descendants) > 1000
    assert tree.descendants[-1].chunk.metadata == tree.node.chunk.metadata
    with pytest.raises(ReplyTooLarge):
        services.client.search("meta", "word1 word7", limit=100, return_level=0)


def test_a_long_text_is_read_in_parts(services: Running) -> None:
    request = indexer_pb2.GetDocumentRequest(tenant_id="t", document_id="whole", include_text=True)
    with pytest.raises(grpc.RpcError) as refused:
        services.raw_indexer.GetDocument(request)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "text_range" in refused.value.details()
    assert services.client.get_text("t", "whole") == LONG * 5


def test_a_page_of_documents_ends_before_it_is_too_large(services: Running) -> None:
    for number in range(80):
        document = Document(f"Text {number}.", f"d{number:02}", metadata={"x": "y" * 60_000})
        services.client.ingest("pages", document)
    document_ids, token = [], ""
    while True:
        request = indexer_pb2.ListDocumentsRequest(
            tenant_id="pages", page_size=1000, page_token=token
        )
        page = services.raw_indexer.ListDocuments(request)
        assert page.ByteSize() <= LIMIT
        document_ids += [document.document_id for document in page.documents]
        token = page.next_page_token
        if not token:
            break
    assert document_ids == [f"d{number:02}" for number in range(80)]
