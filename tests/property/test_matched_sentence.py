"""A cited sentence is a part of its document, touches its leaf and names where it lies."""

import numpy as np
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from hrag.passages.matched_sentence import TermMatches, matched_sentence
from hrag.passages.outline import Outline
from hrag.passages.tree_text import TreeText
from hrag.tree import NONE
from indexer_svc.chunker import build_tree
from tests.property.strategies import documents, tree_settings


@hypothesis_settings(max_examples=100)
@given(documents, tree_settings(), st.data())
def test_a_cited_sentence_touches_its_leaf_and_names_its_place(parsed, settings, data):
    tree, text = build_tree(parsed, settings), parsed.text
    outline = Outline.of("d", "", "", {}, parsed.sections, parsed.pages)
    level = settings.embedding_level
    leaf = tree.record(level, data.draw(st.integers(0, tree.counts[level] - 1)))
    words = [at for at in range(leaf.char_start, leaf.char_end) if text[at].isalnum()]
    starts = data.draw(st.lists(st.sampled_from(words), max_size=5)) if words else []
    terms = np.array(starts, np.uint32)
    matches = TermMatches(terms, terms + 1, np.ones(len(terms), np.float32), terms)
    found = matched_sentence(TreeText(outline, tree, text.encode()), leaf, matches)
    span = found.span
    sentence = text[span.char_start : span.char_end]
    assert sentence == text.encode()[span.byte_start : span.byte_end].decode()
    if words:
        assert sentence == sentence.strip() != ""
        assert span.char_start < leaf.char_end
        assert leaf.char_start < span.char_end
    inner = [n for n, each in enumerate(parsed.sections) if each.char_start <= span.char_start]
    assert found.section_path == outline.section_path(inner[-1] if inner else NONE)
    assert not any(span.char_start < each.char_start < span.char_end for each in parsed.sections)
    pages = found.first_page, found.last_page
    assert pages == outline.page_range(span.char_start, span.char_end)
