"""Settings in environment variables take effect. A service with invalid settings ends."""

import itertools

import pytest

from hrag.cli.processes import INDEXER, RETRIEVER
from hrag.errors import EmbedderMismatch
from hrag.types import Document, SearchMode, SettingsRequest
from tests.support.servers.processes import FAST, Process, running

TEXT = "".join(f"This is sentence number {number} of a text. " for number in range(2000))


def spans(client, tenant, level):
    """Returns the character spans and token counts of a level's chunks, in order."""
    count = client.get_document(tenant, "d").chunks_per_level[level]
    nodes = (client.get_chunk(tenant, f"d#{level}.{index}") for index in range(count))
    return [(n.chunk.span.char_start, n.chunk.span.char_end, n.chunk.token_count) for n in nodes]


@pytest.mark.parametrize(
    ("settings", "sizes", "matched", "returned"),
    [
        ({"HIERARCHICAL_EMBEDDING_LEVEL": "1"}, (256, 512, 1024, 2048), 1, 2),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ({"HIERARCHICAL_CHUNKS_ENABLED": "false"}, (256,), 0, 0),
                ({"HIERARCHICAL_CHUNK_LEVELS": "128,500,1300"}, (128, 500, 1300), 0, 2),
                ({"SMALL_TO_BIG_RETURN_LEVEL": "3"}, (256, 512, 1024, 2048), 0, 3),
                ({"HIERARCHICAL_OVERLAP_RATIO": "0"}, (256, 512, 1024, 2048), 0, 2),
                ({"HIERARCHICAL_OVERLAP_RATIO": "0.5"}, (256, 512, 1024, 2048), 0, 2),
            )
        ),
    ],
)
def test_settings_shape_trees_and_searches(data_dir, settings, sizes, matched, returned):
    with running(data_dir, {**FAST, **settings}) as services:
        client = services.client
        client.ingest("t", Document(TEXT, document_id="d"))
        assert client.get_collection("t", "default").settings.tree.level_sizes == sizes
        result = client.search("t", "sentence")
        assert (result.matched_at_level, result.returned_at_level) == (matched, returned)
        leaves = client.search("t", "sentence", mode=SearchMode.STANDARD)
        assert {passage.chunk.level for passage in leaves.passages} == {matched}
        ratio = float(settings.get("HIERARCHICAL_OVERLAP_RATIO", "0.1"))
        for level, size in enumerate(sizes):
            chunk_spans = spans(client, "t", level)
            assert max(tokens for *_, tokens in chunk_spans) <= size
            shared = [end > start for (_, end, _), (start, _, _) in itertools.pairwise(chunk_spans)]
            assert all(shared) if ratio else not any(shared)


def test_a_collection_can_have_separate_settings(services, tenant):
    settings = SettingsRequest(level_sizes=(64, 200), overlap_ratio=0.25, return_level=1)
    collection = services.client.create_collection(tenant, "own", settings)
    assert collection.settings.tree.level_sizes == (64, 200)
    services.client.ingest(tenant, Document(TEXT, document_id="d"), collection="own")
    result = services.client.search(tenant, "sentence", collection="own")
    assert result.returned_at_level == 1


@pytest.mark.parametrize(
    ("service", "variable", "value", "rule"),
    [
        (INDEXER, "HIERARCHICAL_CHUNK_LEVELS", "512,256", "strictly increasing"),
        (INDEXER, "HIERARCHICAL_OVERLAP_RATIO", "0.6", "from 0.0 to 0.5"),
        (RETRIEVER, "SMALL_TO_BIG_RETURN_LEVEL", "4", "from 0"),
        (RETRIEVER, "HRAG_THREADS", "0", "greater than or equal to 1"),
        (RETRIEVER, "HRAG_ENGINE", "sqlite", "'embedded'"),
    ],
)
def test_a_wrong_setting_stops_the_service(data_dir, service, variable, value, rule):
    process = Process(service, data_dir, {**FAST, variable: value})
    assert process.wait() == 2
    assert all(part in process.log for part in (variable, value, rule))


@pytest.mark.parametrize(
    ("variable", "value", "rule"),
    [
        ("HRAG_ANSWER_PROMPT_FILE", "/none.txt", "No such file"),
        ("HRAG_MAX_CONCURRENT_ANSWERS", "16", "at most 15"),
    ],
)
def test_a_wrong_setting_of_answers_stops_a_retriever_that_has_a_model(
    data_dir, variable, value, rule
):
    chat = {"HRAG_CHAT_MODEL": "m", "HRAG_CHAT_BASE_URL": "http://127.0.0.1:9/v1"}
    process = Process(RETRIEVER, data_dir, {**FAST, **chat, variable: value})
    assert process.wait() == 2
    assert all(part in process.log for part in (variable, value, rule))


def test_a_return_level_below_the_embedded_level_stops_the_service(data_dir):
    settings = {"HIERARCHICAL_EMBEDDING_LEVEL": "2", "SMALL_TO_BIG_RETURN_LEVEL": "1"}
    process = Process(RETRIEVER, data_dir, settings)
    assert process.wait() == 2
    assert "SMALL_TO_BIG_RETURN_LEVEL is 1" in process.log


def test_a_service_with_another_embedder_refuses_the_collection_and_names_both_embedders(data_dir):
    with running(data_dir) as services:
        services.client.ingest("t", Document("Some text.", document_id="d"))
    with running(data_dir, {"HRAG_EMBEDDER": "hash:32"}) as services:
        with pytest.raises(EmbedderMismatch, match=r"hash/64 .*hash/32"):
            services.client.search("t", "text")
        with pytest.raises(EmbedderMismatch, match=r"hash/64 .*hash/32"):
            services.client.ingest("t", Document("Other text."))
        assert services.client.search("t", [1.0] * 64).passages
