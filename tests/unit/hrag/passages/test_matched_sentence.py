"""Which sentence a citation points to, with the section and the pages that hold it.

Documents are read and cut as the indexer does it; a plain word matcher stands in for the
lexical source.
"""

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest

from hrag.passages.matched_sentence import TermMatches, matched_sentence
from hrag.passages.outline import Outline
from hrag.passages.tree_text import TreeText
from hrag.tree import NONE, ChunkRecord
from hrag.types import MARKDOWN, Document, MatchedSentence, Page, TreeSettings
from indexer_svc.chunker import build_tree
from indexer_svc.extract import extract
from tests import pdfs

WORD = re.compile(r"[a-z0-9]+|[\u4e00-\u9fff]")


def story(topic: str, count: int) -> str:
    """Sentences of about ten tokens that no case asks for."""
    return " ".join(f"Here the {topic} goes on with remark {n}." for n in range(count))


def markdown(text: str) -> Document:
    return Document(text, mime_type=MARKDOWN)


def read(document: Document, settings: TreeSettings | None = None) -> TreeText:
    """A document as the indexer stores it."""
    found = extract(document, 1 << 20)
    outline = Outline.of("d", found.title, "", {}, found.parsed.sections, found.parsed.pages)
    tree = build_tree(found.parsed, settings or TreeSettings())
    return TreeText(outline, tree, found.parsed.text.encode())


def leaves(document: TreeText) -> list[ChunkRecord]:
    return [document.tree.record(0, index) for index in range(document.tree.counts[0])]


def matches(document: TreeText, leaf: ChunkRecord, weights: dict[str, float]) -> TermMatches:
    """Where the words that have weights occur in a leaf."""
    wanted = list(weights)
    found = [
        (leaf.char_start + each.start(), leaf.char_start + each.end(), each[0])
        for each in WORD.finditer(document.content(leaf).lower())
        if each[0] in weights
    ]
    return TermMatches(
        np.array([start for start, _, _ in found], np.uint32),
        np.array([end for _, end, _ in found], np.uint32),
        np.array([weights[word] for *_, word in found], np.float32),
        np.array([wanted.index(word) for *_, word in found], np.uint32),
    )


def weights_of(document: TreeText, query: str) -> dict[str, float]:
    """Rarer words weigh more; words that are nowhere have no weight."""
    counts = Counter(WORD.findall(str(document.text, "utf-8").lower()))
    return {word: 1 / counts[word] for word in WORD.findall(query.lower()) if counts[word]}


def cited(document: TreeText, query: str) -> MatchedSentence:
    """The sentence of the leaf whose words weigh most."""
    weights = weights_of(document, query)

    def weight(leaf: ChunkRecord) -> float:
        return sum(
            weights[word] for word in set(WORD.findall(document.content(leaf).lower())) & {*weights}
        )

    best = max(leaves(document), key=weight)
    return matched_sentence(document, best, matches(document, best, weights))


def text_of(document: TreeText, found: MatchedSentence) -> str:
    """The cited text, by bytes and by code points."""
    span = found.span
    text = str(document.text[span.byte_start : span.byte_end], "utf-8")
    assert text == str(document.text, "utf-8")[span.char_start : span.char_end]
    return text


@dataclass(frozen=True)
class Case:
    """A document, a query, and the sentence that must be cited with its section and pages."""

    name: str
    document: Document
    query: str
    sentence: str
    section_path: tuple[str, ...] = ()
    pages: tuple[int, int] = (0, 0)


VALVE = "The alpha valve opens at a pressure of five bar."
CASES = [
    Case(
        "a tiny section before a long one",
        markdown(f"# Alpha\n\n{VALVE}\n\n# Beta\n\n{story('beta', 16)}"),
        "alpha valve pressure",
        VALVE,
        ("Alpha",),
    ),
    Case(
        "a tiny section behind a long one",
        markdown(f"# Beta\n\n{story('beta', 16)}\n\n# Alpha\n\n{VALVE}\n"),
        "alpha valve pressure",
        VALVE,
        ("Alpha",),
    ),
    Case(
        "a tiny section between long ones",
        markdown(
            f"# Beta\n\n{story('beta', 40)}\n\n# Alpha\n\n{VALVE}\n\n"
            f"# Gamma\n\n{story('gamma', 40)}"
        ),
        "alpha valve pressure",
        VALVE,
        ("Alpha",),
    ),
    Case(
        "a row of tiny sections",
        markdown("".join(f"## Step {n}\n\nTurn the handle {n} times.\n\n" for n in range(30))),
        "handle 17 times",
        "Turn the handle 17 times.",
        ("Step 17",),
    ),
    Case(
        "the last words of a section whose leaf is mostly the next one's",
        markdown(f"# Beta\n\n{story('beta', 3)} {VALVE}\n\n# Gamma\n\n{story('gamma', 30)}"),
        "alpha valve pressure",
        VALVE,
        ("Beta",),
    ),
    Case(
        "a section three deep",
        markdown(
            f"# Guide\n\nRead on.\n\n## Install\n\n{story('install', 9)}\n\n### Linux\n\n"
            f"{story('linux', 2)} Run the setup script as root.\n\n"
            f"### Windows\n\n{story('windows', 9)}"
        ),
        "run setup script root",
        "Run the setup script as root.",
        ("Guide", "Install", "Linux"),
    ),
    Case(
        "text of a parent section behind nothing but its heading",
        markdown(f"# Guide\n\n## Install\n\n{VALVE}\n\n## Use\n\n{story('use', 30)}"),
        "alpha valve pressure",
        VALVE,
        ("Guide", "Install"),
    ),
    Case(
        "text before the first heading",
        markdown(f"{VALVE}\n\n# Beta\n\n{story('beta', 16)}"),
        "alpha valve pressure",
        VALVE,
        (),
    ),
    Case(
        "headings with underlines",
        markdown(f"Alpha\n=====\n\n{VALVE}\n\nBeta\n----\n\n{story('beta', 16)}"),
        "valve pressure",
        VALVE,
        ("Alpha",),
    ),
    Case(
        "an underlined heading with text directly below",
        markdown(f"Alpha\n=====\n{VALVE}\n\nBeta\n----\n{story('beta', 16)}"),
        "alpha valve pressure",
        VALVE,
        ("Alpha",),
    ),
    Case(
        "a heading that looks like the end of a sentence",
        markdown(f"# 1. Alpha valve\n\n{VALVE}\n\n# 2. Opening hours\n\n{story('beta', 16)}"),
        "opening hours",
        "# 2. Opening hours",
        ("2. Opening hours",),
    ),
    Case(
        "front matter before the first section",
        markdown(f"---\ntitle: Manual\n---\n\n# Alpha\n\n{VALVE}\n\n# Beta\n\n{story('beta', 16)}"),
        "alpha valve pressure",
        VALVE,
        ("Alpha",),
    ),
    Case(
        "an item of a list",
        markdown(
            f"# Alpha\n\n- one thing\n- the valve pressure is five bar\n- another\n\n"
            f"# Beta\n\n{story('beta', 16)}"
        ),
        "valve pressure",
        "- the valve pressure is five bar",
        ("Alpha",),
    ),
    Case(
        "a number sign in a code block",
        markdown(
            f"# Alpha\n\n```\n# not a heading\n```\n\n{VALVE}\n\n# Beta\n\n{story('beta', 16)}"
        ),
        "valve pressure",
        VALVE,
        ("Alpha",),
    ),
    Case(
        "Chinese",
        markdown(
            "# 总则\n\n本法适用于全国。\n\n# 处罚\n\n"
            + "违反规定的人员应当改正。" * 12
            + "\n\n# 附则\n\n本法自五月一日起施行。\n"
        ),
        "何日施行",
        "本法自五月一日起施行。",
        ("附则",),
    ),
    Case(
        "lines that end with carriage returns",
        markdown(f"# Alpha\r\n\r\n{VALVE}\r\n\r\n# Beta\r\n\r\n{story('beta', 16)}\r\n"),
        "alpha valve pressure",
        VALVE,
        ("Alpha",),
    ),
    Case(
        "more terms in a later section",
        markdown(
            f"# Beta\n\nEvery valve is old.\n\n# Alpha\n\n{VALVE}\n\n# Gamma\n\n{story('gamma', 9)}"
        ),
        "alpha valve pressure",
        VALVE,
        ("Alpha",),
    ),
    Case(
        "the second page of a PDF",
        Document(
            pdfs.pdf_of(
                [f"Beta\n{story('beta', 3)}", f"Alpha\nIt is red. {VALVE}"],
                [pdfs.Bookmark("Beta", 1, 0), pdfs.Bookmark("Alpha", 1, 1)],
            )
        ),
        "alpha valve pressure",
        VALVE,
        ("Alpha",),
        (2, 2),
    ),
    Case(
        "two sections on a page of a PDF, with numbers and another case",
        Document(
            pdfs.pdf_of(
                [f"1 ALPHA VALVES\n{VALVE}\nChapter 2: The beta\n{story('beta', 4)}"],
                [pdfs.Bookmark("Alpha valves", 1, 0), pdfs.Bookmark("The beta", 1, 0)],
            )
        ),
        "valve opens pressure",
        VALVE,
        ("Alpha valves",),
        (1, 1),
    ),
    Case(
        "a bookmark whose title takes two lines",
        Document(
            pdfs.pdf_of(
                [story("cover", 2), f"{story('beta', 2)}\nOn the\nvalve\n{VALVE}"],
                [pdfs.Bookmark("Cover", 1, 0), pdfs.Bookmark("On the valve", 2, 1)],
            )
        ),
        "alpha pressure",
        VALVE,
        ("Cover", "On the valve"),
        (2, 2),
    ),
    Case(
        "a bookmark that leads to a page without its title",
        Document(
            pdfs.pdf_of(
                [story("cover", 3), VALVE, story("beta", 3)],
                [pdfs.Bookmark(title, 1, page) for page, title in enumerate("abc")],
            )
        ),
        "alpha valve pressure",
        VALVE,
        ("b",),
        (2, 2),
    ),
    Case(
        "pages of a PDF without bookmarks",
        Document(pdfs.pdf_of([story("cover", 3), story("beta", 3), VALVE, story("gamma", 3)])),
        "alpha valve pressure",
        VALVE,
        (),
        (3, 3),
    ),
    Case(
        "pages that have their own numbers",
        Document((Page(story("cover", 5), 7), Page(VALVE, 9), Page(story("beta", 5), 10))),
        "alpha valve pressure",
        VALVE,
        (),
        (9, 9),
    ),
    Case(
        "a section that goes on behind a page break",
        Document(
            (
                Page(f"# Beta\n\n{story('beta', 2)}\n\n# Alpha\n\nIt is red."),
                Page(VALVE),
                Page(f"# Gamma\n\n{story('gamma', 9)}"),
            ),
            mime_type=MARKDOWN,
        ),
        "alpha valve pressure",
        VALVE,
        ("Alpha",),
        (2, 2),
    ),
    Case(
        "empty pages and pages that begin with blank lines",
        Document(
            (Page(story("cover", 5)), Page(""), Page(f"\n\n{VALVE}\n\n"), Page("\n\nThe end."))
        ),
        "alpha valve pressure",
        VALVE,
        (),
        (3, 3),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_cited_section_and_pages_hold_the_sentence(case):
    document = read(case.document)
    found = cited(document, case.query)
    assert text_of(document, found) == case.sentence
    assert found.section_path == case.section_path
    assert (found.first_page, found.last_page) == case.pages
    outline = document.outline
    assert outline.page_range(found.span.char_start, found.span.char_end) == case.pages


def one_leaf(text: str, weights: dict[str, float]) -> str:
    """The sentence cited of a Markdown text that is one leaf."""
    document = read(markdown(text))
    (leaf,) = leaves(document)
    return text_of(document, matched_sentence(document, leaf, matches(document, leaf, weights)))


def test_a_term_counts_once_in_a_sentence():
    text = "Red, red and red again. A red door."
    assert one_leaf(text, {"red": 1.0, "door": 0.5}) == "A red door."


def test_of_equal_sentences_the_first_is_cited():
    text = "The door is big and red. The red door is small. A door."
    assert one_leaf(text, {"red": 0.1, "door": 0.2}) == "The door is big and red."


def test_equal_terms_in_another_order_are_equal():
    """In floating point, 0.1 + 0.2 + 0.3 is not 0.3 + 0.2 + 0.1."""
    weights = {"one": 0.1, "two": 0.2, "three": 0.3}
    assert one_leaf("Three two one. One two three.", weights) == "Three two one."
    assert one_leaf("One two three. Three two one.", weights) == "One two three."


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("# The door\n\nIt is big. A red door.\n", "A red door."),
        ("# The red door\n\nA door.\n", "# The red door"),
        ("# The door\n\nIt is big.\n\n# Doors\n\nA door.\n", "# The door"),
        ("The door\n---\n\nIt is big. A red door.\n", "A red door."),
    ],
)
def test_a_heading_loses_against_an_equal_sentence_of_its_own_section(text, sentence):
    assert one_leaf(text, {"door": 1.0, "red": 0.0 if "A red" in text else 0.5}) == sentence


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
def test_without_a_term_the_largest_section_begins_the_citation(text, sentence):
    assert one_leaf(text, {}) == sentence


def small_leaves(text: str) -> TreeText:
    return read(Document(text), TreeSettings((32, 64), 0.0))


@pytest.mark.parametrize("part", ["first", "last"])
def test_a_sentence_that_the_edge_of_a_leaf_cuts_is_cited_whole(part):
    long = "A long sentence of " + "very " * 40 + "many words ends here."
    document = small_leaves(f"Before it. {long} After it.")
    cut = [leaf for leaf in leaves(document) if "very" in document.content(leaf)]
    leaf = cut[0 if part == "first" else -1]
    assert long not in document.content(leaf)
    found = matched_sentence(document, leaf, matches(document, leaf, {"very": 1.0}))
    assert text_of(document, found) == long


def test_a_sentence_whose_other_end_is_far_away_stays_cut():
    document = small_leaves("word " * 1000)
    for leaf in leaves(document)[10:20]:
        found = matched_sentence(document, leaf, matches(document, leaf, {"word": 1.0}))
        assert len(text_of(document, found)) <= 3 * 1000


def test_a_sentence_is_not_continued_across_a_heading():
    """The PDF's lines end without punctuation."""
    pages = ["alpha text\nwithout an end\nBeta\n" + "beta text " * 30]
    bookmarks = [pdfs.Bookmark("Alpha", 1, 0), pdfs.Bookmark("Beta", 1, 0)]
    document = read(Document(pdfs.pdf_of(pages, bookmarks)), TreeSettings((32, 64), 0.0))
    for leaf in leaves(document):
        found = matched_sentence(document, leaf, matches(document, leaf, {"text": 1.0}))
        name = found.section_path[0].lower()
        assert f"{name} text" in text_of(document, found)
        assert not {"alpha", "beta"} - {name} & {*text_of(document, found).lower().split()}


def test_a_leaf_without_any_sentence_end_is_one_sentence():
    document = read(Document("no end here " * 10))
    (leaf,) = leaves(document)
    assert leaf.section == NONE
    assert cited(document, "end").span.char_start == 0
