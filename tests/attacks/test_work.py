"""A small call cannot cause seconds of work: the work is limited, and the error names the limit."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from hrag.errors import HragError, InvalidArgument, ReplyTooLarge, TooLarge
from hrag.types import MAX_EMBEDDED_BYTES, Document, SearchMode, SearchQuery
from tests.attacks.observed import processor_s
from tests.support.servers.processes import FAST, Running, running

pytestmark = [pytest.mark.attacks, pytest.mark.timeout(300)]

LEAVES = 400
# The most seconds of processor time of each call. These calls take far less than a second.
MAX_PROCESSOR_S = 10.0


@pytest.fixture(scope="module")
def services(
    tmp_path_factory: pytest.TempPathFactory, _no_settings_from_outside: None
) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("work") / "store", FAST) as both:
        for number in range(20):
            text = " ".join(
                f"Sentence {number} {sentence} tells a story of about as many words as others do."
                for sentence in range(LEAVES)
            )
            both.client.ingest("t", Document(text, f"d{number}"))
        yield both


def test_the_texts_of_a_batch_are_bounded_together(services: Running) -> None:
    texts = [f"{number} " + "word " * 6_500 for number in range(32)]
    with pytest.raises(InvalidArgument, match="send fewer") as refused:
        services.client.batch_search([SearchQuery("t", text) for text in texts])
    assert refused.value.field == "searches"
    assert f"{MAX_EMBEDDED_BYTES:,}" in refused.value.message
    short = services.client.batch_search([SearchQuery("t", text[:1000]) for text in texts])
    assert not any(isinstance(outcome, HragError) for outcome in short)


@pytest.mark.parametrize(
    "options",
    [
        {"query": " ".join(f"term{number}" for number in range(3_500)), "candidates": 10_000},
        {"query": " ".join(f'"{number} tells a story"' for number in range(16))},
        {"query": '"' + "tells a story " * 2_000 + '"'},
        {"query": "story", "mode": SearchMode.AUTO_MERGE, "candidates": 10_000, "limit": 100},
        {"query": "story", "mode": SearchMode.CONTEXT, "token_budget": 2**32 - 1},
        {
            "query": "a story",
            "mode": SearchMode.SENTENCE_WINDOW,
            "candidates": 10_000,
            "limit": 100,
            "window_sentences": 20,
        },
    ],
    ids=["terms", "phrases", "phrase", "merge", "context", "windows"],
)
def test_other_extreme_searches_are_quick(services: Running, options: dict[str, Any]) -> None:
    before = processor_s(services.retriever)
    with contextlib.suppress(ReplyTooLarge, TooLarge):
        services.client.search("t", timeout_s=60, **options)
    assert processor_s(services.retriever) - before < MAX_PROCESSOR_S
