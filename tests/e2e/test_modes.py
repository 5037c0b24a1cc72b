"""Each mode returns the right passages of a document that is small enough to check by hand.

The document has eight paragraphs of one leaf each. Two leaves form a chunk of level 1, four leaves
form a chunk of level 2:

    level 2   [      0      ]  [      1      ]
    level 1   [  0 ]  [  1  ]  [  2 ]  [  3  ]
    level 0    0  1    2  3     4  5    6  7
    section    Cats             Dogs
"""

from dataclasses import replace
from datetime import datetime
from itertools import pairwise

import numpy as np
import pytest

from hrag.filters import AllOf, AnyOf, Exists, Match, NoneOf, Range
from hrag.models.embedding.hashing import HashEmbedder
from hrag.types import (
    MARKDOWN,
    Document,
    Page,
    Retrieval,
    SearchMode,
    SearchPlan,
    SettingsRequest,
    SummaryUnit,
)
from tests.support.engines.summary_model import wait_until_summarised

_SENTENCES = (
    "They sleep through most of the day and wake up when it grows dark outside the house.",
    "They eat a little in the morning and a lot more in the evening before they go out.",
    "They like to sit at a window where they can see birds and the people in the street.",
    "They play with anything that moves and that is small enough to be carried about.",
)
_PARAGRAPHS = [
    *(
        f"{heading}{sentence} {name} do so every day of the year."
        for heading, name in (("# Cats\n", "Cats"), ("# Dogs\n", "Dogs"))
        for heading, sentence in zip((heading, "", "", ""), _SENTENCES, strict=True)
    ),
]
TEXT = "\n\n".join(_PARAGRAPHS)
# Headings are not indexed, so a leaf's vector is the vector of its text.
SETTINGS = SettingsRequest(level_sizes=(32, 64, 128), overlap_ratio=0.0, index_headings=False)
WITH_SUMMARIES = replace(SETTINGS, summaries=SummaryUnit.CHUNK)


@pytest.fixture
def search(services, tenant):
    """A function that searches with a query that the leaves `matched` match best.

    The search has as many candidates as there are such leaves.
    """
    client = services.client
    client.create_collection(tenant, "c", SETTINGS)
    result = client.ingest(tenant, Document(TEXT, "d", mime_type=MARKDOWN), collection="c")
    assert result.chunks_per_level == (8, 4, 2)
    leaves = [client.get_chunk(tenant, f"d#0.{n}", collection="c").chunk.content for n in range(8)]
    assert [leaf.strip() for leaf in leaves] == _PARAGRAPHS
    vectors = HashEmbedder(64).embed(leaves)

    def run(matched, **options):
        query = np.sum(vectors[matched], axis=0).tolist()
        options = {"mode": SearchMode.AUTO_MERGE, "return_level": 2, **options}
        result = client.search(tenant, query, collection="c", candidates=len(matched), **options)
        return sorted(result.passages, key=lambda passage: passage.chunk.span.char_start)

    return run


@pytest.mark.parametrize(
    ("matched", "options", "expected"),
    [
        ([0], {}, ["d#0.0"]),
        ([0, 1], {}, ["d#1.0"]),
        ([0, 2], {}, ["d#0.0", "d#0.2"]),
        ([0, 1, 2], {}, ["d#1.0", "d#0.2"]),
        ([0, 1, 2, 3], {}, ["d#2.0"]),
        ([0, 1, 2, 3], {"return_level": 1}, ["d#1.0", "d#1.1"]),
        ([0, 1, 2, 3, 6], {}, ["d#2.0", "d#0.6"]),
        ([3, 4], {}, ["d#0.3", "d#0.4"]),
    ],
)
def test_auto_merge_returns_the_smallest_chunks_with_enough_matches(
    search, matched, options, expected
):
    passages = search(matched, limit=len(expected), **options)
    assert [passage.chunk.chunk_id for passage in passages] == expected


def test_a_merged_chunk_has_the_leaves_that_matched_and_its_citation(search):
    (passage,) = search([4, 5], limit=1)
    assert passage.chunk.content.strip() == "\n\n".join(_PARAGRAPHS[4:6])
    assert passage.chunk.section_path == ("Dogs",)
    assert sorted(child.chunk_id for child in passage.matched_children) == ["d#0.4", "d#0.5"]


@pytest.mark.parametrize(
    ("mode", "matched", "parts"),
    [
        (SearchMode.STANDARD, [2, 3, 4], ["d#0.2", "d#0.3", "d#0.4"]),
        (SearchMode.AUTO_MERGE, [2, 3, 4], ["d#1.1", "d#0.4"]),
        (SearchMode.SMALL_TO_BIG, [3, 4], ["d#2.0", "d#2.1"]),
    ],
)
def test_passages_that_touch_are_joined(search, mode, matched, parts):
    level = None if mode is SearchMode.STANDARD else 2
    (passage,) = search(matched, mode=mode, return_level=level, limit=1, merge_adjacent=True)
    assert passage.merged_chunk_ids == tuple(parts)
    span = passage.chunk.span
    assert passage.chunk.content == TEXT[span.char_start : span.char_end]
    assert sorted(child.chunk_id for child in passage.matched_children) == [
        f"d#0.{leaf}" for leaf in matched
    ]


def test_passages_apart_are_not_joined(search):
    passages = search(
        [0, 1, 5], mode=SearchMode.STANDARD, return_level=None, limit=2, merge_adjacent=True
    )
    assert [passage.merged_chunk_ids for passage in passages] == [("d#0.0", "d#0.1"), ()]


# These tests search for windows of sentences.

_SENTENCES_OF_PAGES = [
    *("Cats sleep all day. ", "Dr. Who has a cat. ", "It wakes at 5 p.m. and eats. "),
    *("Then it goes out.\n\n", "Dogs bark. ", "Dogs run. "),
    *("狗喜欢跑步。", "它们也喜欢水！", "猫不喜欢水。", "再见。"),
]
_PAGES = ("".join(_SENTENCES_OF_PAGES[:4]).strip(), "".join(_SENTENCES_OF_PAGES[4:]))


@pytest.fixture
def windows(services, tenant):
    """A function that searches for one sentence of a document.

    The document has two pages, and its leaves have several sentences each.
    """
    client = services.client
    client.create_collection(tenant, "w", WITH_SUMMARIES)
    pages = tuple(map(Page, _PAGES))
    client.ingest(tenant, Document(pages, "d", "Animals"), collection="w")
    wait_until_summarised(client, tenant, "w")

    info = client.get_document(tenant, "d", collection="w")
    leaves = [
        client.get_chunk(tenant, f"d#0.{number}", collection="w").chunk.content
        for number in range(info.chunks_per_level[0])
    ]

    def run(sentence, **options):
        """Searches for the words of the sentence and the vector of the leaf that contains it."""
        leaf = next(leaf for leaf in leaves if sentence in leaf)
        vector = HashEmbedder(64).embed([leaf])[0].tolist()
        options = {"mode": SearchMode.SENTENCE_WINDOW, **options}
        return client.search(tenant, sentence, vector=vector, collection="w", **options).passages

    return run


@pytest.mark.parametrize(
    ("sentence", "around", "expected", "shown_pages"),
    [
        ("Dr. Who has a cat.", 0, _SENTENCES_OF_PAGES[1:2], (1, 1)),
        ("Dr. Who has a cat.", 1, _SENTENCES_OF_PAGES[:3], (1, 1)),
        ("Cats sleep all day.", 1, _SENTENCES_OF_PAGES[:2], (1, 1)),
        ("Then it goes out.", 1, _SENTENCES_OF_PAGES[2:5], (1, 2)),
        ("它们也喜欢水！", 1, _SENTENCES_OF_PAGES[6:9], (2, 2)),
        ("再见。", 2, _SENTENCES_OF_PAGES[7:], (2, 2)),
        ("Dogs bark.", 20, _SENTENCES_OF_PAGES, (1, 2)),
    ],
)
def test_a_passage_is_the_sentence_and_its_neighbours(
    windows, sentence, around, expected, shown_pages
):
    (passage,) = windows(sentence, window_sentences=around, limit=1)
    chunk = passage.chunk
    assert chunk.content.strip() == "".join(expected).strip()
    assert (chunk.first_page, chunk.last_page, chunk.title) == (*shown_pages, "Animals")
    whole = "".join(_SENTENCES_OF_PAGES)
    assert whole[chunk.span.char_start : chunk.span.char_end] == chunk.content
    cited = passage.matched_sentence
    assert whole[cited.span.char_start : cited.span.char_end] == sentence
    assert shown_pages[0] <= cited.first_page <= shown_pages[1]
    (matched,) = passage.matched_children
    assert passage.score == matched.score > 0.5
    assert passage.term_spans


def test_a_leaf_without_a_word_of_the_query_is_returned_whole(services, tenant, windows):
    leaf = services.client.get_chunk(tenant, "d#0.0", collection="w").chunk
    options = {"vector": HashEmbedder(64).embed([leaf.content])[0].tolist()}
    options |= {"retrieval": Retrieval.DENSE, "mode": SearchMode.SENTENCE_WINDOW}
    (passage,) = services.client.search(
        tenant, "zebras", collection="w", limit=1, window_sentences=0, **options
    ).passages
    assert passage.chunk.content == leaf.content
    assert not passage.term_spans
    by_vector = services.client.search(
        tenant, options["vector"], collection="w", limit=1, mode=SearchMode.SENTENCE_WINDOW
    )
    assert by_vector.passages[0].chunk.content == leaf.content


def test_windows_of_one_document_share_no_text(windows):
    passages = windows("Dogs run.", window_sentences=1, limit=50)
    spans = sorted((p.chunk.span.char_start, p.chunk.span.char_end) for p in passages)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


@pytest.mark.parametrize("mode", list(SearchMode))
def test_a_budget_cuts_the_last_passage_at_a_sentence(windows, mode):
    (whole,) = windows("Dogs bark.", mode=mode, limit=1)
    size = whole.chunk.token_count
    assert windows("Dogs bark.", mode=mode, limit=1, token_budget=size) == (whole,)
    (cut,) = windows("Dogs bark.", mode=mode, limit=1, token_budget=size - 1, cut_last=True)
    assert cut.chunk.token_count < size
    assert cut.chunk.content in whole.chunk.content
    assert cut.chunk.content.strip().endswith((".", "。", "！"))


# These tests search with filters.


@pytest.fixture
def library(services, tenant):
    """A function that returns which of five documents with the same text pass a filter."""
    metadata = {
        "cats": {"lang": "en", "year": 2024, "tags": ["pets", "small"], "day": "2024-05-06"},
        "dogs": {"lang": "en", "year": 2025, "tags": ["pets"], "author": {"name": "Ann"}},
        "chats": {"lang": "fr", "year": 2025.5, "draft": True, "day": "2025-05-06T10:00:00+02:00"},
        "notes": {"lang": None, "year": "2025"},
        "plain": {},
    }
    for document_id, values in metadata.items():
        title = f"All about {document_id}" if document_id != "plain" else ""
        document = Document(TEXT, document_id, title, metadata=values)
        services.client.ingest(tenant, document)

    def passing(chosen):
        result = services.client.search(tenant, "cats", limit=50, filter=chosen)
        assert result.exhausted
        assert result.plan is SearchPlan.SCAN
        assert result.eligible_leaves == len(result.passages)
        return sorted(passage.chunk.document_id for passage in result.passages)

    return passing


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (None, ["cats", "chats", "dogs", "notes", "plain"]),
        (Match("document_id", ("cats", "plain", "unknown")), ["cats", "plain"]),
        (Match("title", ("All about dogs",)), ["dogs"]),
        (Match("title", ("All about",)), []),
        (Exists("title"), ["cats", "chats", "dogs", "notes"]),
        (Exists("source"), []),
        (Match("metadata.lang", ("en",)), ["cats", "dogs"]),
        (Match("metadata.tags", ("small", "large")), ["cats"]),
        (Match("metadata.author.name", ("Ann",)), ["dogs"]),
        (Match("metadata.year", (2025,)), ["dogs"]),
        (Match("metadata.year", ("2025",)), ["notes"]),
        (Match("metadata.draft", (True,)), ["chats"]),
        (Exists("metadata.lang"), ["cats", "chats", "dogs"]),
        (Exists("metadata.author"), ["dogs"]),
        (Range("metadata.year", at_least=2024, below=2025), ["cats"]),
        (Range("metadata.year", above=2024), ["chats", "dogs"]),
        (Range("metadata.day", below=datetime(2025, 1, 1)), ["cats"]),
        (Range("metadata.day", at_least=datetime(2025, 5, 6, 8)), ["chats"]),
        (NoneOf((Match("metadata.lang", ("en",)), Exists("metadata.draft"))), ["notes", "plain"]),
        (
            AllOf((Match("metadata.lang", ("en",)), NoneOf((Exists("metadata.author"),)))),
            ["cats"],
        ),
        (AnyOf((Match("metadata.lang", ("fr",)), Exists("metadata.author"))), ["chats", "dogs"]),
    ],
)
def test_a_filter_finds_the_documents_that_pass(library, chosen, expected):
    assert library(chosen) == expected


def test_a_filter_sees_updates_and_deletions(services, tenant):
    def passing():
        result = services.client.search(
            tenant, "cats", filter=Match("metadata.lang", ("en",)), limit=50
        )
        return {passage.chunk.document_id for passage in result.passages}

    services.client.ingest(tenant, Document(TEXT, "a", metadata={"lang": "en"}))
    services.client.ingest(tenant, Document(TEXT, "b", metadata={"lang": "de"}))
    assert passing() == {"a"}
    services.client.ingest(tenant, Document(TEXT, "b", metadata={"lang": "en"}))
    assert passing() == {"a", "b"}
    services.client.ingest(tenant, Document(TEXT, "a", metadata={"lang": "de"}))
    assert passing() == {"b"}
    services.client.delete_document(tenant, "b")
    assert passing() == set()


@pytest.mark.parametrize("mode", list(SearchMode))
def test_every_mode_applies_filters(services, tenant, mode):
    client = services.client
    client.create_collection(tenant, "c", WITH_SUMMARIES)
    for name in ("a", "b"):
        client.ingest(tenant, Document(TEXT, name, metadata={"name": name}), collection="c")
    wait_until_summarised(client, tenant, "c")
    only_b = Match("metadata.name", ("b",))
    result = client.search(tenant, "cats", collection="c", mode=mode, limit=50, filter=only_b)
    assert {passage.chunk.document_id for passage in result.passages} == {"b"}
