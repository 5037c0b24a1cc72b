"""One compiled call encodes the passages of groups as if their drafts were chosen one by one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from hrag.engine.common.ancestor_groups import AncestorGroups
from hrag.engine.common.fetch import Fetch, cited_document
from hrag.engine.common.labels import label, labels_of
from hrag.engine.find import FindRequest, PassageFields
from hrag.passages.cited_place import TermLocator
from hrag.passages.outline import Outline
from hrag.passages.tree_text import TreeText
from hrag.types import CollectionSettings, SearchMode, TreeSettings
from hrag.values.deadline import NEVER
from hrag_fast import Groups, PassageDocument
from indexer_svc.chunker import build_tree
from tests.property.strategies import documents, tree_settings
from tests.support.documents.fakes import ENCODED

# The limit of tokens is so large that it cuts nothing. But with any limit, drafts are chosen one by
# one.
NO_BUDGET = 1 << 40


class Documents:
    """Implements `hrag.engine.common.fetch.DocumentReader` for documents in memory."""

    def __init__(self, texts: Sequence[TreeText]) -> None:
        self._texts = texts

    def tree_text(self, ordinal: int) -> TreeText:
        return self._texts[ordinal]

    def passage_document(self, fields: PassageFields, ordinal: int) -> PassageDocument:
        text = self._texts[ordinal]
        return PassageDocument(
            cited_document(text.outline, fields), text.tree.to_bytes(), text.text
        )

    def verify(self, ordinal: int, start: int, end: int) -> None:
        assert start <= min(end, len(self._texts[ordinal].text))


@dataclass(frozen=True)
class Table:
    """The columns of a table of leaves that creating passages needs."""

    settings: CollectionSettings
    labels: Any


@st.composite
def searches(draw: st.DrawFn) -> tuple[Documents, AncestorGroups]:
    """Draws documents, and a ranking of some of their chunks, each with one matched leaf or two."""
    settings: TreeSettings = draw(tree_settings())
    texts = []
    for number in range(draw(st.integers(1, 2))):
        parsed = draw(documents)
        outline = Outline.of(f"d{number}", "", "", {}, parsed.sections, parsed.pages)
        texts.append(TreeText(outline, build_tree(parsed, settings), parsed.text.encode()))
    leaf_level = settings.embedding_level
    level = draw(st.integers(leaf_level, settings.top_level))
    chunks = [(n, i) for n, text in enumerate(texts) for i in range(text.tree.counts[level])]
    chosen = draw(st.permutations(chunks))[: draw(st.integers(1, 12))]
    labels = np.concatenate(
        [labels_of(n, text.tree.counts[leaf_level]) for n, text in enumerate(texts)]
    )
    children = []
    for number, index in chosen:
        below = texts[number].tree.descendants((level, index), leaf_level)
        leaves = sorted({draw(st.sampled_from(below)) for _ in range(2)})
        children.append(np.searchsorted(labels, [label(number, leaf) for leaf in leaves]))
    count = sum(map(len, children))
    groups = Groups(
        np.array([label(*chunk) for chunk in chosen], np.uint64),
        np.linspace(1, 0, len(chosen), dtype=np.float32),
        np.cumsum([0, *map(len, children)]).astype(np.uint32),
        np.concatenate(children).astype(np.uint32),
        np.linspace(1, 0, count, dtype=np.float32),
    )
    table: Any = Table(CollectionSettings(settings, "fake", 1), labels)
    return Documents(texts), AncestorGroups(table, groups, level, dense=groups.child_scores)


@hypothesis_settings(max_examples=60)
@given(searches(), st.integers(1, 12), st.booleans())
def test_passages_of_one_call_equal_those_of_drafts_that_are_chosen_one_by_one(
    search, limit, keep_overlap
):
    found, groups = search
    terms = TermLocator(None, np.empty(0, np.uint64), np.empty(0, np.float32))
    request = FindRequest(
        None, SearchMode.SMALL_TO_BIG, groups.ancestor_level, limit, 10, keep_overlap=keep_overlap
    )
    one_by_one = replace(request, token_budget=NO_BUDGET)
    passages, expected = (
        Fetch(found, each, ENCODED, terms, NEVER).read(groups)[0] for each in (request, one_by_one)
    )
    assert passages == expected
