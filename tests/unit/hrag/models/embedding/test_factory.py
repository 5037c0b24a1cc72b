"""The settings configure the OpenAI embedder."""

import time
from typing import Any

import numpy as np
import pytest

from hrag.config import CommonSettings, SettingsError
from hrag.models.embedding.embedder_factory import (
    open_embedder,
    open_embedders,
    open_search_embedders,
)
from tests.support.servers import openai_server
from tests.support.servers.openai_server import DEFAULT_DIMENSION, OpenAIServer, vectors_of

KEY = "sk-test-4711"
TEXTS = ["first secret", "second secret", "third secret"]


def _open_from(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "HRAG_OPENAI_DIMENSIONS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"HRAG_EMBEDDER": "openai"} | environment).items():
        monkeypatch.setenv(name, value)
    return open_embedder(CommonSettings())


def test_requests_have_the_model_dimensions_and_key_of_the_settings(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder = _open_from(
        {
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": server.base_url,
            "HRAG_OPENAI_EMBEDDING_MODEL": "other-model",
            "HRAG_OPENAI_DIMENSIONS": "24",
        },
        monkeypatch,
    )
    assert embedder.name == "openai/other-model"
    np.testing.assert_allclose(embedder.embed(TEXTS), vectors_of(TEXTS, 24), atol=1e-6)
    (request,) = server.requests
    assert (request["model"], request["dimensions"]) == ("other-model", 24)
    assert server.authorizations == [f"Bearer {KEY}"]


def test_a_request_ends_at_the_configured_timeout_and_is_retried(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.inject(openai_server.slow(30))
    embedder = _open_from(
        {"OPENAI_BASE_URL": server.base_url, "HRAG_OPENAI_TIMEOUT_S": "0.2"}, monkeypatch
    )
    began = time.monotonic()
    assert embedder.dimension == DEFAULT_DIMENSION
    assert time.monotonic() - began < 28


def test_a_configured_endpoint_needs_no_key(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder = _open_from({"OPENAI_BASE_URL": server.base_url}, monkeypatch)
    np.testing.assert_allclose(embedder.embed(TEXTS), vectors_of(TEXTS), atol=1e-6)


def test_the_previous_embedder_has_settings_of_its_own(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {
        "HRAG_EMBEDDER": "openai",
        "OPENAI_API_KEY": KEY,
        "OPENAI_BASE_URL": server.base_url,
        "HRAG_OPENAI_EMBEDDING_MODEL": "new",
        "HRAG_OPENAI_DIMENSIONS": "24",
        "HRAG_PREVIOUS_EMBEDDER": "openai",
        "HRAG_PREVIOUS_OPENAI_EMBEDDING_MODEL": "old",
        "HRAG_PREVIOUS_OPENAI_DIMENSIONS": "12",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    embedders = open_embedders(CommonSettings())
    assert [embedder.name for embedder in embedders] == ["openai/new", "openai/old"]
    for embedder, dimension in zip(embedders, (24, 12), strict=True):
        np.testing.assert_allclose(embedder.embed(TEXTS), vectors_of(TEXTS, dimension), atol=1e-6)
    assert server.authorizations == [f"Bearer {KEY}"] * 2
    queries = [pair.queries.name for pair in open_search_embedders(CommonSettings())]
    assert queries == ["openai/new", "openai/old"]


def test_another_endpoint_never_gets_the_key_of_the_current_one(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (
        ("OPENAI_API_KEY", KEY),
        ("HRAG_PREVIOUS_EMBEDDER", "openai"),
        ("HRAG_PREVIOUS_OPENAI_BASE_URL", server.base_url),
    ):
        monkeypatch.setenv(name, value)
    _, previous = open_embedders(CommonSettings())
    previous.embed(TEXTS)
    assert KEY not in str(server.authorizations)
    monkeypatch.setenv("HRAG_PREVIOUS_OPENAI_API_KEY", "sk-old")
    _, previous = open_embedders(CommonSettings())
    previous.embed(TEXTS)
    assert server.authorizations[-1] == "Bearer sk-old"


@pytest.mark.parametrize("open_all", [open_embedders, open_search_embedders])
def test_the_previous_embedder_is_another_one(
    open_all: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HRAG_EMBEDDER", "hash:8")
    assert len(list(open_all(CommonSettings()))) == 1
    monkeypatch.setenv("HRAG_PREVIOUS_EMBEDDER", "hash:8")
    with pytest.raises(SettingsError, match=r"both name the embedder hash/8"):
        open_all(CommonSettings())
