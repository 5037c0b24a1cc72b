"""Which drafts become passages, with which span: limits, a token budget, joining, cutting.

Drafts are taken in the order given, best first, and what was taken is never taken back. So a
larger budget gives what a smaller one does, and more: the same groups first, and around their
text only more text. Neighbouring chunks overlap; unless asked for, no text comes twice.

The drafts of one search are chunks of which none lies inside another.
"""

import sys
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from hrag.passages.drafts import MatchedLeaves, PassageDraft
from hrag.passages.truncation import first_sentences, first_words, last_sentences, truncated
from hrag.values.tree import ChunkRecord

NO_LIMIT = sys.maxsize


@dataclass(frozen=True, slots=True)
class PassageLimits:
    """How much text a search may return.

    `limit` counts passages; a `token_budget` of 0 is none. `merge_adjacent` joins passages
    of one document that overlap or touch, as long as no more than `limit` remain.
    `cut_last` ends with the first draft that does not fit the budget, cut to whole sentences:
    where it touches a passage, that grows towards it; without `cut_last`, what does not fit is
    passed over. So is what would give a document more than `max_per_document` passages; 0 is
    no such limit. With `keep_overlap`, a passage that is not joined keeps the text that a
    better one has too.
    """

    limit: int
    token_budget: int = 0
    merge_adjacent: bool = False
    cut_last: bool = False
    max_per_document: int = 0
    keep_overlap: bool = False


class Selected(NamedTuple):
    """The drafts that become passages, best first, of the first `considered` candidates.

    `left_out`: limit or budget did not allow all of these; one was left out or cut. A document
    that has given as many passages as it may is not such a reason, nor is text that better
    passages have.
    """

    drafts: list[PassageDraft]
    considered: int
    left_out: bool


def fill_budget(
    candidates: Iterable[PassageDraft],
    token_budget: int,
    matches: MatchedLeaves,
    *,
    limit: int = NO_LIMIT,
    max_per_document: int = 0,
) -> Selected:
    """Returns the text that answers best, of at most `token_budget` tokens, as drafts.

    `candidates` are the leaves in rank order; it is read no further than needed. Leaves that
    overlap or touch become one passage at the place of the best of them, so no text comes
    twice. The last leaf is cut at a sentence; what remains of the budget then is left, since
    worse leaves would take it from better ones of a larger budget. If not even the first
    sentence of the first leaf fits, its first words are returned.
    """
    rest = iter(candidates)
    best = next(rest, None)
    if best is None:
        return Selected([], 0, left_out=False)
    limits = PassageLimits(
        limit,
        token_budget,
        merge_adjacent=True,
        cut_last=True,
        max_per_document=max_per_document,
    )
    selected = select_drafts(chain([best], rest), limits, matches)
    if selected.drafts:
        return selected
    record = first_words(best.document, best.record, token_budget)
    return selected if record is None else selected._replace(drafts=[replace(best, record=record)])


def select_drafts(
    candidates: Iterable[PassageDraft], limits: PassageLimits, matches: MatchedLeaves
) -> Selected:
    """Returns the drafts that become passages.

    `candidates` is one draft a group, in order of the groups; it is read no further than
    needed.
    """
    chosen = _Chosen(limits)
    left = limits.token_budget or sys.maxsize
    considered, left_out = 0, False
    for candidate in candidates:
        considered += 1
        draft, touching = chosen.met_by(candidate)
        if draft is not candidate and _best_match(draft, matches) is None:
            continue
        if not touching and chosen.has_enough_of(draft.document_id):
            continue
        if not touching and chosen.is_full:
            left_out = True
            break
        tokens = _new_tokens(draft, touching)
        if tokens <= left:
            left -= tokens
            chosen.add(draft)
        else:
            left_out = True
            if limits.cut_last:
                part = _cut(draft, touching, matches, left)
                if part:
                    chosen.add(part)
                break
        if chosen.is_full and not limits.merge_adjacent:
            break
    return Selected(chosen.drafts(), considered, left_out)


@dataclass(slots=True)
class _Passage:
    """Drafts of one document with no token between them, and the tokens that they cover."""

    parts: list[PassageDraft]
    token_start: int
    token_end: int

    def absorb(self, other: "_Passage") -> None:
        self.parts += other.parts
        self.token_start = min(self.token_start, other.token_start)
        self.token_end = max(self.token_end, other.token_end)

    def draft(self) -> PassageDraft:
        """Returns all of it as one draft, the parts best first."""
        if len(self.parts) == 1:
            return self.parts[0]
        best, *others = sorted(self.parts, key=_groups)
        return best.joined(others)


_token_start = attrgetter("token_start")
_token_end = attrgetter("token_end")
_groups = attrgetter("groups")


class _Chosen:
    """The passages so far, by document, in order of the text.

    Unless overlap is kept, those of a document share no token; so those that a draft touches
    are consecutive, and bisection finds them.
    """

    def __init__(self, limits: PassageLimits) -> None:
        self._limits = limits
        self._of_document: defaultdict[str, list[_Passage]] = defaultdict(list)
        self._count = 0

    @property
    def is_full(self) -> bool:
        """Whether there are as many passages as the limit allows."""
        return self._count >= self._limits.limit

    def has_enough_of(self, document_id: str) -> bool:
        """Whether the document has given as many passages as it may."""
        return 0 < self._limits.max_per_document <= len(self._of_document[document_id])

    def met_by(self, draft: PassageDraft) -> tuple[PassageDraft, list[_Passage]]:
        """Returns the passages that `draft` is to be joined with, in order of the text.

        If passages are not joined, these are none, and the draft is without their text.
        """
        passages = self._of_document.get(draft.document_id)
        if not passages or self._limits.keep_overlap:
            return draft, []
        touched = passages[self._touched(draft)]
        if self._limits.merge_adjacent:
            return draft, touched
        return _without(draft, touched), []

    def add(self, draft: PassageDraft) -> None:
        """Adds a passage, or joins those that the draft touches, and the draft, into one."""
        passages = self._of_document[draft.document_id]
        new = _Passage([draft], draft.record.token_start, draft.record.token_end)
        self._count += 1
        if not self._limits.merge_adjacent:
            insort(passages, new, key=_token_start)
            return
        touched = self._touched(draft)
        # The one with most parts takes up the others, so that each part moves a few times only.
        whole, *others = sorted([*passages[touched], new], key=lambda each: -len(each.parts))
        for each in others:
            whole.absorb(each)
        passages[touched] = [whole]
        self._count -= len(others)

    def drafts(self) -> list[PassageDraft]:
        """Returns the passages, best first."""
        drafts = (each.draft() for each in chain(*self._of_document.values()))
        return sorted(drafts, key=_groups)

    def _touched(self, draft: PassageDraft) -> slice:
        """Which of its document's passages the draft touches; else where it belongs."""
        passages, record = self._of_document[draft.document_id], draft.record
        first = bisect_left(passages, record.token_start, key=_token_end)
        return slice(first, bisect_right(passages, record.token_end, first, key=_token_start))


def _without(draft: PassageDraft, passages: Iterable[_Passage]) -> PassageDraft:
    """The draft without the text of passages that it touches, which are in order of the text.

    Each passage is a chunk without what others have, and no chunk lies inside another: so
    what they leave of the draft is in one piece.
    """
    record = draft.record
    for each in passages:
        other = each.draft().record
        if other.token_start > record.token_start:
            record = _until(record, other)
            break
        record = _from(record, other)
    return draft if record is draft.record else draft.spanning(record)


def _best_match(draft: PassageDraft, matches: MatchedLeaves) -> ChunkRecord | None:
    """The part that a draft has of the best of its leaves; None if it has no text of any."""
    if draft.record.token_count <= 0 or draft.is_blank:
        return None
    leaves = matches.leaves(draft.groups)
    records = (draft.document.tree.record(matches.level, each.leaf) for each in leaves)
    return next(filter(None, (each.within(draft.record) for each in records)), None)


def _new_tokens(draft: PassageDraft, touching: Sequence[_Passage]) -> int:
    """The tokens that a draft adds to the passages that it touches."""
    if not touching:
        return draft.record.token_count
    start = min([draft.record.token_start, *map(_token_start, touching)])
    end = max([draft.record.token_end, *map(_token_end, touching)])
    return int(end - start - sum(each.token_end - each.token_start for each in touching))


def _cut(
    draft: PassageDraft, touching: Sequence[_Passage], matches: MatchedLeaves, token_budget: int
) -> PassageDraft | None:
    """The sentences of a draft that fit; None if none do.

    Those of a draft that touches passages continue one of them: the one before it in the
    text, else the one behind it. Those of another begin at its start or, if its best leaf
    would not be reached, with the sentence in which that begins.
    """
    if touching:
        return _continuation(draft, touching, token_budget)
    best = _best_match(draft, matches)
    record = best and truncated(draft.document, draft.record, best, token_budget)
    return None if record is None else replace(draft, record=record)


def _continuation(
    draft: PassageDraft, touching: Sequence[_Passage], token_budget: int
) -> PassageDraft | None:
    """The sentences of a draft next to a passage that it touches; None if none fit."""
    new = draft.record
    before, behind = touching[0].draft().record, touching[-1].draft().record
    follows = before.token_start <= new.token_start
    if follows:
        new = _from(new, before)
    if behind.token_end >= new.token_end:
        new = _until(new, behind)
    cut = first_sentences if follows else last_sentences
    record = cut(draft.document, new, token_budget)
    return None if record is None else replace(draft, record=record)


def _from(record: ChunkRecord, before: ChunkRecord) -> ChunkRecord:
    """The part of a span behind the end of another one."""
    return record._replace(
        byte_start=before.byte_end,
        char_start=before.char_end,
        token_start=before.token_end,
        token_count=record.token_end - before.token_end,
    )


def _until(record: ChunkRecord, behind: ChunkRecord) -> ChunkRecord:
    """The part of a span before the start of another one."""
    return record._replace(
        byte_end=behind.byte_start,
        char_end=behind.char_start,
        token_count=behind.token_start - record.token_start,
    )
