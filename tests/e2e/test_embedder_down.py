"""The embedding endpoint, well and ill, as a client of the services sees it."""

import pytest

from hrag.errors import EmbedderRejected, EmbedderUnavailable
from hrag.types import Document, IngestOutcome
from tests.openai_server import OpenAIServer, refuse, short, shuffled, slow
from tests.running import running

TEXT = "".join(f"This is sentence number {number} of a text. " for number in range(500))


def settings(base_url):
    return {
        "HRAG_EMBEDDER": "openai",
        "OPENAI_BASE_URL": base_url,
        "OPENAI_API_KEY": "test",
        "HRAG_OPENAI_TIMEOUT_S": "0.5",
    }


@pytest.fixture(scope="module")
def endpoint():
    with OpenAIServer() as server:
        yield server


@pytest.fixture(scope="module")
def client(endpoint, tmp_path_factory, _no_settings_from_outside):
    data_dir = tmp_path_factory.mktemp("openai") / "store"
    with running(data_dir, settings(endpoint.base_url)) as services:
        services.client.create_collection("warm", "up")  # Asks for the dimension, once.
        yield services.client


def test_an_unchanged_corpus_is_not_embedded_again(client, endpoint, tenant):
    corpus = [Document(f"{number} {TEXT}", document_id=f"d{number}") for number in range(3)]
    list(client.ingest_many(tenant, corpus))
    calls = endpoint.calls
    again = list(client.ingest_many(tenant, corpus))
    assert {result.outcome for result in again} == {IngestOutcome.UNCHANGED}
    assert endpoint.calls == calls


def test_a_query_asked_again_is_not_embedded_again(client, endpoint, tenant):
    client.ingest(tenant, Document(TEXT))
    first = client.search(tenant, "the same question")
    calls = endpoint.calls
    assert client.search(tenant, "the same question").passages == first.passages
    assert endpoint.calls == calls


def test_vectors_in_another_order_are_put_in_order(client, endpoint, tenant):
    client.ingest(tenant, Document(TEXT, document_id="sorted"), collection="default")
    endpoint.inject(shuffled)
    client.ingest(tenant, Document(TEXT, document_id="shuffled", title="again"))
    one, two = client.search(tenant, "anything", limit=2, return_level=3).passages
    scores = [[child.score for child in passage.matched_children] for passage in (one, two)]
    assert scores[0] == pytest.approx(scores[1])


def test_too_many_requests_are_tried_again(client, endpoint, tenant):
    endpoint.inject(refuse(429, retry_after="0.01"))
    endpoint.inject(refuse(500))
    assert client.ingest(tenant, Document(TEXT)).outcome is IngestOutcome.CREATED


def test_a_short_answer_is_refused_and_nothing_is_stored(client, endpoint, tenant):
    client.ingest(tenant, Document("Something else.", document_id="other"))
    endpoint.inject(short)
    with pytest.raises(EmbedderRejected, match="vectors for"):
        client.ingest(tenant, Document(TEXT, document_id="d"))
    assert [info.document_id for info in client.list_documents(tenant).items] == ["other"]


def test_a_wrong_key_is_said_without_the_key(client, endpoint, tenant):
    client.ingest(tenant, Document("Something else."))
    endpoint.inject(refuse(401))
    with pytest.raises(EmbedderRejected, match="401") as caught:
        client.search(tenant, "not asked before")
    assert "test" not in caught.value.message.split()


def test_an_endpoint_that_is_too_slow(client, endpoint, tenant):
    client.ingest(tenant, Document("Something else."))
    endpoint.inject(slow(2), times=5)
    with pytest.raises(EmbedderUnavailable):
        client.search(tenant, "a slow question")


def test_an_endpoint_that_is_down(data_dir):
    with OpenAIServer() as gone:
        address = gone.base_url
    with running(data_dir, settings(address)) as services:
        with pytest.raises(EmbedderUnavailable):
            services.client.ingest("t", Document("Some text."))
        assert services.indexer.serves()
