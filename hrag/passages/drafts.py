"""Drafts of passages: chunks with their matched leaves, before their text is read.

An engine groups the leaves that matched by the chunk that represents them, best group
first, and makes a draft of each. `hrag.passages.budget` decides which drafts become passages
and with which span; `passage_of` turns a draft into the value.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from hrag.passages.cited_place import CitedPlace
from hrag.passages.tree_text import LeafMatch, TreePosition, TreeText
from hrag.values.reply_limit import field_bytes
from hrag.values.search import Passage, TermSpan
from hrag.values.tree import ChunkRecord, covering

_FIRST_BYTES = 64  # Where most texts show that they are not blank.


class MatchedLeaves(Protocol):
    """The leaves that matched, in groups numbered from 0, best group first."""

    @property
    def level(self) -> int:
        """The level of the leaves in their trees."""

    def score(self, group: int) -> float:
        """Returns the group's score."""

    def leaves(self, groups: Sequence[int]) -> Sequence[LeafMatch]:
        """Returns the leaves of groups of one document, best first."""


@dataclass(frozen=True, slots=True, eq=False)
class PassageDraft:
    """A chunk that may become a passage, or several that touch, joined to the best of them.

    `record` is the span of all; `groups` numbers the groups of leaves it stands for, best
    first; `positions` are the chunks it is made of, best first.
    """

    document: TreeText
    record: ChunkRecord
    groups: tuple[int, ...]
    positions: tuple[TreePosition, ...]

    @classmethod
    def of(cls, document: TreeText, position: TreePosition, group: int) -> "PassageDraft":
        """Returns the draft of one group's chunk."""
        return cls(document, document.tree.record(*position), (group,), (position,))

    def spanning(self, record: ChunkRecord) -> "PassageDraft":
        """Returns the same draft with another span."""
        return PassageDraft(self.document, record, self.groups, self.positions)

    @property
    def is_blank(self) -> bool:
        """Whether its text is white space alone."""
        start, end = self.record.byte_start, self.record.byte_end
        first = self.document.part(start, min(end, start + _FIRST_BYTES))
        if str(first, "utf-8", "ignore").strip():  # A character may be cut off at the end.
            return False
        return not self.document.content(self.record).strip()

    @property
    def document_id(self) -> str:
        """The id of its document."""
        return self.document.outline.document_id

    @property
    def content_bytes(self) -> int:
        """Length of its text in UTF-8."""
        return self.record.byte_end - self.record.byte_start

    @property
    def least_bytes(self) -> int:
        """How many bytes its encoded passage takes at least: its text and its document's fields."""
        return field_bytes(self.content_bytes) + self.document.outline.encoded_bytes

    @property
    def position(self) -> TreePosition:
        """The best of its chunks."""
        return self.positions[0]

    def joined(self, others: "Sequence[PassageDraft]") -> "PassageDraft":
        """Returns the draft that covers all of them; the others score no higher than this."""
        drafts = (self, *others)
        return replace(
            self,
            record=covering([each.record for each in drafts]),
            groups=tuple(group for each in drafts for group in each.groups),
            positions=tuple(position for each in drafts for position in each.positions),
        )

    def merged_positions(self) -> list[TreePosition]:
        """Returns the chunks it was joined from, in order of the text; [] if there is one."""
        if len(self.positions) == 1:
            return []
        return sorted(self.positions, key=lambda position: self.document.tree.record(*position))


def passage_of(draft: PassageDraft, matches: MatchedLeaves, place: CitedPlace) -> Passage:
    """Returns the passage with its text, scores, matched leaves and the place to cite."""
    document = draft.document
    leaves = matches.leaves(draft.groups)
    section = document.outline.section_at(place.sentence[2])
    children = (
        document.matched_child((matches.level, each.leaf), each, draft.record) for each in leaves
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
    )
