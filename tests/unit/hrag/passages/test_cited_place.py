"""A citation names a sentence, and the section and the pages that contain the sentence.

Documents are parsed and split into chunks as in the indexer. A simple word matcher replaces the
lexical source, which finds the terms of a query.
"""

import re
from collections import Counter

import numpy as np
import pytest

from hrag.passages.outline import Outline
from hrag.passages.tree_text import TreeText
from hrag.types import Document, MatchedSentence, TreeSettings
from hrag.values.tree import NONE, ChunkRecord
from hrag_fast import Matches, matched_sentence
from indexer_svc.chunker import build_tree
from indexer_svc.extract import extract
from indexer_svc.parsers.parser_functions import parse
from tests.support.documents import pdfs
from tests.support.documents.cited_places import CASES, markdown

WORD = re.compile(r"[a-z0-9]+|[\u4e00-\u9fff]")


def read(document: Document, settings: TreeSettings | None = None) -> TreeText:
    """Returns a document as the indexer stores it."""
    extracted = extract(document, 1 << 20, parse)
    outline = Outline.of(
        "d", extracted.title, "", {}, extracted.parsed.sections, extracted.parsed.pages
    )
    tree = build_tree(extracted.parsed, settings or TreeSettings())
    return TreeText(outline, tree, extracted.parsed.text.encode())


def leaves(document: TreeText) -> list[ChunkRecord]:
    return [document.tree.record(0, index) for index in range(document.tree.counts[0])]


def cited_in(document: TreeText, leaf: ChunkRecord, weights: dict[str, float]) -> MatchedSentence:
    """Returns the sentence of a leaf that is cited for a query.

    `weights` has the weight of each term of the query, by the text of the term.
    """
    terms = list(weights)
    occurrences = [
        (match.start(), match.end(), terms.index(match[0]))
        for match in WORD.finditer(document.content(leaf).lower())
        if match[0] in weights
    ]
    starts, ends, term_indexes = np.array(occurrences, np.uint32).reshape(-1, 3).T.copy()
    outline = document.outline
    span = matched_sentence(
        document.text,
        leaf,
        outline.section_starts,
        outline.heading_end,
        Matches(starts, ends, term_indexes),
        np.array(list(weights.values()), np.float32),
    )
    return document.cited_sentence(*span)


def weights_of(document: TreeText, query: str) -> dict[str, float]:
    """Returns a weight for each word of the query. Rarer words weigh more.

    Words that do not occur in the document have no weight.
    """
    counts = Counter(WORD.findall(str(document.text, "utf-8").lower()))
    return {word: 1 / counts[word] for word in WORD.findall(query.lower()) if counts[word]}


def cited(document: TreeText, query: str) -> MatchedSentence:
    """Returns the sentence that is cited for a query, from the leaf whose words weigh most."""
    weights = weights_of(document, query)

    def weight(leaf: ChunkRecord) -> float:
        return sum(
            weights[word] for word in set(WORD.findall(document.content(leaf).lower())) & {*weights}
        )

    best = max(leaves(document), key=weight)
    return cited_in(document, best, weights)


def text_of(document: TreeText, sentence: MatchedSentence) -> str:
    """Returns the cited text; asserts that byte offsets and code points agree."""
    span = sentence.span
    text = str(document.text[span.byte_start : span.byte_end], "utf-8")
    assert text == str(document.text, "utf-8")[span.char_start : span.char_end]
    return text


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_cited_section_and_pages_contain_the_sentence(case):
    document = read(case.document)
    sentence = cited(document, case.query)
    assert text_of(document, sentence) == case.sentence
    assert sentence.section_path == case.section_path
    assert (sentence.first_page, sentence.last_page) == case.pages
    outline = document.outline
    assert outline.page_range(sentence.span.char_start, sentence.span.char_end) == case.pages


def cited_text_of(text: str, weights: dict[str, float]) -> str:
    """Returns the sentence that is cited from a Markdown text that fits into one leaf."""
    document = read(markdown(text))
    (leaf,) = leaves(document)
    return text_of(document, cited_in(document, leaf, weights))


def test_a_term_counts_once_in_a_sentence():
    text = "Red, red and red again. A red door."
    assert cited_text_of(text, {"red": 1.0, "door": 0.5}) == "A red door."


def test_the_first_of_equal_sentences_is_cited():
    text = "The door is big and red. The red door is small. A door."
    assert cited_text_of(text, {"red": 0.1, "door": 0.2}) == "The door is big and red."


def test_the_order_of_terms_does_not_change_the_weight_of_a_sentence():
    """A sum of floating-point numbers depends on their order; the sum of weights must not."""
    weights = {"one": 0.1, "two": 0.2, "three": 0.3}
    assert cited_text_of("Three two one. One two three.", weights) == "Three two one."
    assert cited_text_of("One two three. Three two one.", weights) == "One two three."


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("# The door\n\nIt is big. A red door.\n", "A red door."),
        ("# The red door\n\nA door.\n", "# The red door"),
        ("# The door\n\nIt is big.\n\n# Doors\n\nA door.\n", "# The door"),
        ("The door\n---\n\nIt is big. A red door.\n", "A red door."),
    ],
)
def test_a_sentence_is_preferred_to_an_equal_heading_of_its_section(text, sentence):
    assert cited_text_of(text, {"door": 1.0, "red": 0.0 if "A red" in text else 0.5}) == sentence


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("First. Second.", "First."),
        ("# Alpha\n\nShort.\n\n# Beta\n\nThis is longer. And on it goes.\n", "This is longer."),
        (
            "# Alpha\n\nShort.\n\n# Only a long heading of a section\n",
            "# Only a long heading of a section",
        ),
        ("# All\n\n## Alpha\n\nOne.\n\n## Beta\n\nTwo.\n", "One."),
        ("...\n\n---\n\nWord.", "Word."),
        ("...", "..."),
    ],
)
def test_without_terms_the_first_sentence_of_the_largest_section_is_cited(text, sentence):
    assert cited_text_of(text, {}) == sentence


def small_leaves(text: str) -> TreeText:
    return read(Document(text), TreeSettings((32, 64), 0.0))


@pytest.mark.parametrize("leaf_of_sentence", ["first", "last"])
def test_a_sentence_that_the_edge_of_a_leaf_cuts_is_cited_whole(leaf_of_sentence):
    long = "A long sentence of " + "very " * 40 + "many words ends here."
    document = small_leaves(f"Before it. {long} After it.")
    cut = [leaf for leaf in leaves(document) if "very" in document.content(leaf)]
    leaf = cut[0 if leaf_of_sentence == "first" else -1]
    assert long not in document.content(leaf)
    sentence = cited_in(document, leaf, {"very": 1.0})
    assert text_of(document, sentence) == long


def test_a_very_long_sentence_is_not_cited_whole():
    document = small_leaves("word " * 1000)
    for leaf in leaves(document)[10:20]:
        sentence = cited_in(document, leaf, {"word": 1.0})
        assert len(text_of(document, sentence)) <= 3 * 1000


def test_a_sentence_is_not_continued_across_a_heading():
    """The lines of the PDF end without punctuation, so only the heading can end a sentence."""
    pages = ["alpha text\nwithout an end\nBeta\n" + "beta text " * 30]
    bookmarks = [pdfs.Bookmark("Alpha", 1, 0), pdfs.Bookmark("Beta", 1, 0)]
    document = read(Document(pdfs.pdf_of(pages, bookmarks)), TreeSettings((32, 64), 0.0))
    for leaf in leaves(document):
        sentence = cited_in(document, leaf, {"text": 1.0})
        name = sentence.section_path[0].lower()
        assert f"{name} text" in text_of(document, sentence)
        assert not {"alpha", "beta"} - {name} & {*text_of(document, sentence).lower().split()}


def test_a_leaf_without_any_sentence_end_is_one_sentence():
    document = read(Document("no end here " * 10))
    (leaf,) = leaves(document)
    assert leaf.section == NONE
    assert cited(document, "end").span.char_start == 0
