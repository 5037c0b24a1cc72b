"""The fetch stage checks the deadline while it reads passages."""

import time
from typing import Any

import numpy as np
import pytest

from hrag.engine.common.ancestor_groups import AncestorGroups
from hrag.engine.common.fetch import Fetch
from hrag.engine.common.labels import labels_of
from hrag.engine.find import Encoded, FindRequest
from hrag.errors import Cancelled
from hrag.passages.cited_place import TermLocator
from hrag.types import CollectionSettings, SearchMode, TreeSettings
from hrag.values.deadline import Deadline
from hrag.values.tree import CHUNK, NONE, Tree
from hrag_fast import CitedDocument, Groups, PassageDocument

NOTHING: Any = None
REQUEST = FindRequest(None, SearchMode.STANDARD, 0, limit=10, candidates=10, keep_overlap=True)


class Leaves:
    """Ten leaves of one document, with the fields of a table of leaves."""

    settings = CollectionSettings(TreeSettings((32,), 0.0), "fake", 1)
    labels = labels_of(1, 10)
    ancestors = np.arange(10, dtype=np.uint32).reshape(1, -1)
    alive = np.ones(10, np.uint8)

    def groups(self) -> AncestorGroups:
        """Returns ancestor groups, of which each has one leaf."""
        scores = np.ones(10, np.float32)
        starts = np.arange(11, dtype=np.uint32)
        return AncestorGroups(self, Groups(self.labels, scores, starts, starts[:10], scores), 0)


class CountedDocuments:
    """A reader of documents that counts the passages for which it has verified text."""

    def __init__(self) -> None:
        self.encoded_count = 0

    def tree_text(self, ordinal: int) -> Any:
        raise AssertionError(ordinal)

    def passage_document(self, _fields: object, _ordinal: int) -> PassageDocument:
        spans = [(i, i + 1, i, i + 1, i, 1, NONE, 0, 0, NONE) for i in range(10)]
        tree = Tree.from_levels([np.array(spans, CHUNK)])
        return PassageDocument(CitedDocument(b"", b"d", NOTHING), tree.to_bytes(), b"0123456789")

    def verify(self, _ordinal: int, _start: int, _end: int) -> None:
        self.encoded_count += 1
        time.sleep(0.0015)  # The deadline is checked again after a millisecond.


def test_no_passage_is_encoded_for_a_caller_that_has_left() -> None:
    """The deadline is checked before each slow passage, because one passage alone may take long.

    The section headings around its matched sentence are searched.
    """
    documents = CountedDocuments()
    deadline = Deadline(is_waiting=lambda: documents.encoded_count < 3)
    terms = TermLocator(None, np.empty(0, np.uint64), np.empty(0, np.float32))
    fetch = Fetch(documents, REQUEST, Encoded(NOTHING, NOTHING), terms, deadline)
    with pytest.raises(Cancelled, match="while reading passages"):
        fetch.read(Leaves().groups())
    assert documents.encoded_count == 3
