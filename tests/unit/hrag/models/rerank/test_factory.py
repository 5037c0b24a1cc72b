"""The settings determine which reranker is opened."""

from typing import Any

import pytest

from hrag.config import RetrieverSettings, SettingsError
from hrag.errors import RerankerRejected
from hrag.models.rerank.reranker_factory import open_reranker
from hrag.observe.metrics import INSTRUMENTS
from hrag.values.deadline import NEVER
from tests.support.servers.openai_server import refuse
from tests.support.servers.rerank_server import RerankServer


def _open_from(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Any:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return open_reranker(RetrieverSettings())


def test_no_reranker_is_opened_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _open_from(monkeypatch, HRAG_RERANK_MODEL="m", OPENAI_BASE_URL="http://x") is None


@pytest.mark.parametrize(
    ("variables", "name", "key"),
    [
        ({"HRAG_RERANK_MODEL": "m", "HRAG_RERANK_API_KEY": "sk-own"}, "cohere/m", "sk-own"),
        ({"HRAG_RERANK_FORM": "tei", "OPENAI_API_KEY": "sk-of-openai"}, "tei", "none"),
    ],
)
def test_the_reranker_never_sends_the_key_of_another_endpoint(
    variables: dict[str, str],
    name: str,
    key: str,
    server: RerankServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reranker = _open_from(monkeypatch, HRAG_RERANK_BASE_URL=server.base_url, **variables)
    assert reranker.name == name
    assert reranker.rerank("cats", ["Cats.", "Dogs."], NEVER) == [1.0, 0.0]
    assert server.authorizations == [f"Bearer {key}"]


def test_rerank_requests_are_counted_by_outcome(
    server: RerankServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    reranker = _open_from(monkeypatch, HRAG_RERANK_BASE_URL=server.base_url)

    def counted() -> list[float]:
        calls = "hrag_reranker_calls_total"
        values = [
            INSTRUMENTS.get_sample_value(calls, {"outcome": "ok"}),
            INSTRUMENTS.get_sample_value(calls, {"outcome": "RerankerRejected"}),
            INSTRUMENTS.get_sample_value("hrag_reranker_texts_total"),
            INSTRUMENTS.get_sample_value("hrag_reranker_seconds_count"),
        ]
        return [value or 0.0 for value in values]

    counts_before = counted()
    reranker.rerank("cats", ["Cats.", "Dogs."], NEVER)
    server.inject(refuse(400))
    with pytest.raises(RerankerRejected):
        reranker.rerank("cats", ["Cats.", "Dogs."], NEVER)
    increases = [after - before for after, before in zip(counted(), counts_before, strict=True)]
    assert increases == [1, 1, 4, 2]


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"HRAG_RERANK_BASE_URL": "localhost:1"}, r"HRAG_RERANK_BASE_URL='localhost:1': it must"),
        (
            {"HRAG_RERANK_BASE_URL": "http://x", "HRAG_RERANK_API_KEY": "sk secret\n"},
            r"HRAG_RERANK_API_KEY \(not shown\): it must",
        ),
    ],
)
def test_the_refusal_of_an_invalid_setting_names_it(
    variables: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingsError, match=message) as refused:
        _open_from(monkeypatch, **variables)
    assert "secret" not in str(refused.value)
