"""Drafts of passages: chunks with their matched leaves, before their text is read.

Depending on the mode of a search, a matched leaf is represented by itself or by an ancestor. An
engine groups the matched leaves by the chunk that represents them, best group first, and creates a
draft of each group. `hrag.passages.budget` chooses which drafts become passages, and with which
span. `passage_of` converts a draft into a passage.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from hrag.passages.cited_place import CitedPlace
from hrag.passages.tree_text import LeafMatch, TreePosition, TreeText
from hrag.values.reply_limit import field_bytes
from hrag.values.search import Passage, TermSpan
from hrag.values.tree import ChunkRecord, covering

# `is_blank` first decodes only this many bytes of a text, because they nearly always contain a
# visible character. Then the rest of the text need not be decoded.
_FIRST_BYTES = 64


class MatchedLeaves(Protocol):
    """The matched leaves of a search, in groups. The index of the best group is 0.

    A group consists of the matched leaves that one chunk represents in the result.
    """

    @property
    def level(self) -> int:
        """The level of the matched leaves in the trees of their documents."""

    def score(self, group: int) -> float:
        """Returns the score of the group with the index `group`."""

    def rerank_score(self, group: int) -> float | None:
        """Returns the reranker's score of a group, or None if the reranker has not scored it."""

    def leaves(self, groups: Sequence[int]) -> Sequence[LeafMatch]:
        """Returns the matched leaves of several groups of one document, best leaf first."""


class SentenceWindow(NamedTuple):
    """A sentence of a leaf, and how many sentences before and after it become the passage.

    The sentence is given by its start and end in bytes, then in code points of the document.
    """

    byte_start: int
    byte_end: int
    char_start: int
    char_end: int
    margin: int


@dataclass(frozen=True, slots=True, eq=False)
class PassageDraft:
    """A chunk that may become a passage, or several chunks that touch and were joined.

    `record` is the span of all these chunks. `groups` are the indexes of the groups of leaves that
    the chunks represent, best first. `positions` are the positions of the chunks, best first.
    If the chunk is a leaf that a window of its sentences replaces, `window` is this window.
    """

    document: TreeText
    record: ChunkRecord
    groups: tuple[int, ...]
    positions: tuple[TreePosition, ...]
    window: SentenceWindow | None = None

    @classmethod
    def of(cls, document: TreeText, position: TreePosition, group: int) -> "PassageDraft":
        """Creates the draft of a passage from the chunk that represents a group of matched leaves.

        `position` is the position of the chunk, and `group` is the index of the group.
        """
        return cls(document, document.tree.record(*position), (group,), (position,))

    def spanning(self, record: ChunkRecord) -> "PassageDraft":
        """Returns a copy of this draft of a passage, with `record` as its span."""
        return replace(self, record=record)

    @property
    def has_sentence(self) -> bool:
        """True if the sentence of the window begins in the span, or if there is no window."""
        if self.window is None:
            return True
        return self.record.char_start <= self.window.char_start < self.record.char_end

    @property
    def is_blank(self) -> bool:
        """True if the text of this possible passage consists only of white space."""
        start, end = self.record.byte_start, self.record.byte_end
        first = self.document.part(start, min(end, start + _FIRST_BYTES))
        # The bytes may end inside a character, so decoding ignores errors.
        if str(first, "utf-8", "ignore").strip():
            return False
        return not self.document.content(self.record).strip()

    @property
    def document_id(self) -> str:
        """The id of the document that contains the chunks of this possible passage."""
        return self.document.outline.document_id

    @property
    def content_bytes(self) -> int:
        """The length of the text of this possible passage, in UTF-8 bytes."""
        return self.record.byte_end - self.record.byte_start

    @property
    def least_bytes(self) -> int:
        """The minimum size, in bytes, of the encoded passage that the draft may become.

        It is the size of the passage's text and of its document's fields.
        """
        return field_bytes(self.content_bytes) + self.document.outline.encoded_bytes

    @property
    def position(self) -> TreePosition:
        """The level and the index of the best chunk of this possible passage."""
        return self.positions[0]

    def joined(self, others: "Sequence[PassageDraft]") -> "PassageDraft":
        """Returns one draft of a passage with the chunks of this draft and of `others`.

        Its span covers all these chunks. None of `others` may have a higher score than this draft.
        """
        drafts = (self, *others)
        return replace(
            self,
            record=covering([draft.record for draft in drafts]),
            groups=tuple(group for draft in drafts for group in draft.groups),
            positions=tuple(position for draft in drafts for position in draft.positions),
        )

    def merged_positions(self) -> list[TreePosition]:
        """Returns the positions of the joined chunks in order of the text; [] for a single chunk.

        A position is the level and the index of a chunk.
        """
        if len(self.positions) == 1:
            return []
        return sorted(self.positions, key=lambda position: self.document.tree.record(*position))


def passage_of(draft: PassageDraft, matches: MatchedLeaves, place: CitedPlace) -> Passage:
    """Converts a draft, which is a chunk or several joined chunks, into a passage.

    The passage has the text, the scores, the matched leaves and the sentence to cite.
    """
    document = draft.document
    leaves = matches.leaves(draft.groups)
    section = document.outline.section_at(place.sentence[2])
    children = (
        document.matched_child((matches.level, match.leaf), match, draft.record) for match in leaves
    )
    return Passage(
        document.chunk(draft.position, draft.record._replace(section=section)),
        matches.score(draft.groups[0]),
        tuple(child for child in children if child),
        tuple(document.chunk_id(position) for position in draft.merged_positions()),
        leaves[0].lexical,
        leaves[0].dense,
        tuple(TermSpan(*span) for span in place.term_spans),
        document.cited_sentence(*place.sentence),
        matches.rerank_score(draft.groups[0]),
    )
