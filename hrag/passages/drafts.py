"""From groups of matched leaves to passages: joining neighbours, filling a token budget.

An engine groups the leaves that matched by the chunk that represents them, best group
first, and makes a draft of each. `select_drafts` decides which drafts become passages and
with which span; `passage_of` turns a draft into the value.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from hrag.passages.cited_place import CitedPlace
from hrag.passages.tree_text import LeafMatch, TreePosition, TreeText
from hrag.passages.truncation import truncated
from hrag.tree import ChunkRecord
from hrag.types import Passage


class MatchedLeaves(Protocol):
    """The leaves that matched, in groups numbered from 0, best group first."""

    @property
    def level(self) -> int:
        """The level of the leaves in their trees."""

    def score(self, group: int) -> float:
        """Returns the group's score."""

    def leaves(self, groups: Sequence[int]) -> Sequence[LeafMatch]:
        """Returns the leaves of groups of one document, best first."""


@dataclass(frozen=True, slots=True)
class PassageLimits:
    """How much text a search may return.

    `limit` counts passages; a `token_budget` of 0 is none. `merge_adjacent` joins passages
    of one document that overlap or touch, as long as no more than `limit` remain.
    `cut_last` ends with the first passage that does not fit the budget, cut to whole
    sentences; without it, what does not fit is passed over.
    """

    limit: int
    token_budget: int = 0
    merge_adjacent: bool = False
    cut_last: bool = False


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

    @property
    def position(self) -> TreePosition:
        """The best of its chunks."""
        return self.positions[0]

    def touches(self, other: "PassageDraft") -> bool:
        """Returns True if both are of one document with no token between them."""
        return (
            self.document.outline.document_id == other.document.outline.document_id
            and other.record.token_start <= _token_end(self.record)
            and self.record.token_start <= _token_end(other.record)
        )

    def joined(self, others: "Sequence[PassageDraft]") -> "PassageDraft":
        """Returns the draft that covers all of them; the others score no higher than this."""
        drafts = (self, *others)
        return replace(
            self,
            record=_covering([each.record for each in drafts]),
            groups=tuple(group for each in drafts for group in each.groups),
            positions=tuple(position for each in drafts for position in each.positions),
        )

    def merged_positions(self) -> list[TreePosition]:
        """Returns the chunks it was joined from, in order of the text; [] if there is one."""
        if len(self.positions) == 1:
            return []
        return sorted(self.positions, key=lambda position: self.document.tree.record(*position))


def select_drafts(
    candidates: Iterable[PassageDraft], limits: PassageLimits, matches: MatchedLeaves
) -> list[PassageDraft]:
    """Returns the drafts that become passages, best first.

    `candidates` is one draft a group, in order of the groups; it is read no further than
    needed.
    """
    chosen: list[PassageDraft] = []
    left = limits.token_budget or sys.maxsize
    for one in candidates:
        touching = [each for each in chosen if each.touches(one)] if limits.merge_adjacent else []
        if len(chosen) == limits.limit and not touching:
            break
        whole = touching[0].joined([*touching[1:], one]) if touching else one
        more = whole.record.token_count - sum(each.record.token_count for each in touching)
        if more <= left:
            left -= more
            chosen = _with(chosen, touching, whole)
        elif limits.cut_last:
            part = None if touching else _cut(one, matches, left)
            return [*chosen, part] if part else chosen
        if len(chosen) == limits.limit and not limits.merge_adjacent:
            break
    return chosen


def _with(
    chosen: list[PassageDraft], touching: Sequence[PassageDraft], whole: PassageDraft
) -> list[PassageDraft]:
    """Returns the drafts with `whole` in place of those it touches; appended if there are none."""
    if not touching:
        return [*chosen, whole]
    first, rest = touching[0], touching[1:]
    return [whole if each is first else each for each in chosen if each not in rest]


def _cut(draft: PassageDraft, matches: MatchedLeaves, token_budget: int) -> PassageDraft | None:
    """The sentences that fit, among them the one in which the best leaf begins; or None."""
    best = matches.leaves(draft.groups)[0]
    keep = draft.document.tree.record(matches.level, best.leaf)
    record = truncated(draft.document.content(draft.record), draft.record, keep, token_budget)
    return None if record is None else replace(draft, record=record)


def passage_of(
    draft: PassageDraft, matches: MatchedLeaves, place: CitedPlace | None = None
) -> Passage:
    """Returns the passage with its text, scores and matched leaves.

    Of `place` it takes the sentence to cite, with its section, and the spans of terms.
    """
    document = draft.document
    leaves = matches.leaves(draft.groups)
    children = (
        document.matched_child((matches.level, each.leaf), each, draft.record) for each in leaves
    )
    chunk = document.chunk(draft.position, draft.record)
    if place is not None:
        chunk = replace(chunk, section_path=place.sentence.section_path)
    return Passage(
        chunk,
        matches.score(draft.groups[0]),
        tuple(child for child in children if child),
        tuple(document.chunk_id(position) for position in draft.merged_positions()),
        leaves[0].lexical,
        leaves[0].dense,
        () if place is None else place.term_spans,
        None if place is None else place.sentence,
    )


def _token_end(record: ChunkRecord) -> int:
    return record.token_start + record.token_count


def _covering(records: Sequence[ChunkRecord]) -> ChunkRecord:
    """The span of all; every other field is the first one's."""
    token_start = min(record.token_start for record in records)
    return records[0]._replace(
        byte_start=min(record.byte_start for record in records),
        byte_end=max(record.byte_end for record in records),
        char_start=min(record.char_start for record in records),
        char_end=max(record.char_end for record in records),
        token_start=token_start,
        token_count=max(map(_token_end, records)) - token_start,
    )
