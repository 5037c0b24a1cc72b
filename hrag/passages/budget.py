"""Chooses which drafts become passages, and with which span.

A draft is a chunk that may become a passage; it represents a group of matched leaves (see
`hrag.passages.drafts`). Drafts are processed in the given order, best first, and a chosen draft is
never removed. So a larger token budget chooses all drafts that a smaller budget chooses, and then
adds more text.

The texts of the chosen drafts are a lower bound of the size of the reply. As soon as the reply
would be too large, no further draft is read, and an error says so.

Neighbouring chunks may overlap. Text that two drafts have in common is returned only once, except
if the request allows repeated text. Callers guarantee that no draft of a search lies completely
inside another draft. Windows of sentences are an exception: a window is skipped if a better passage
has its sentence.
"""

import sys
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from hrag.passages.drafts import MatchedLeaves, PassageDraft, SentenceWindow
from hrag.passages.sentence_window import widened
from hrag.passages.truncation import first_sentences, first_words, last_sentences, truncated
from hrag.values.reply_limit import SEARCH_ADVICE, UNLIMITED, ReplyLimit
from hrag.values.tree import ChunkRecord

NO_LIMIT = sys.maxsize


@dataclass(slots=True)
class PassageLimits:
    """The limits on the text that a search may return.

    `limit` is the maximum count of passages. If `token_budget` is 0, tokens are not limited.
    `merge_adjacent` joins passages of one document that overlap or touch; `limit` then applies to
    the joined passages.

    A draft is a chunk that may become a passage. With `cut_last`, the first draft that does not fit
    the budget is cut to whole sentences, and no further draft is chosen. If this draft touches a
    passage, the sentences next to the passage are kept, and extend the passage. Without `cut_last`,
    drafts that do not fit are skipped.

    A draft that would give a document more than `max_per_document` passages is skipped; 0 means no
    limit. With `keep_overlap`, a passage that is not joined keeps the text that a better passage
    also contains.
    """

    limit: int
    token_budget: int = 0
    merge_adjacent: bool = False
    cut_last: bool = False
    max_per_document: int = 0
    keep_overlap: bool = False


class ChosenDrafts(NamedTuple):
    """The drafts that become passages, best first.

    A draft is a chunk that may become a passage. `considered` is the count of drafts that were read
    to choose these. `left_out` is True if the limit or the budget caused a draft to be left out or
    cut. A draft does not count as left out if its document already has `max_per_document` passages,
    or if better passages contain its text.
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
    reply: ReplyLimit = UNLIMITED,
) -> ChosenDrafts:
    """Returns drafts whose text answers the query best and has at most `token_budget` tokens.

    A draft is a chunk that may become a passage; here the chunk is a leaf. `candidates` has one
    draft per matched leaf, best leaf first; only as many are read as needed. Leaves that overlap or
    touch become one passage, which has the rank of its best leaf. So no text is returned twice.

    The first leaf that does not fit is cut at the end of a sentence, and no further leaf is chosen.
    The rest of the budget stays unused. If worse leaves filled this rest, a larger budget would
    return better leaves in their place, and so would lack text that the smaller budget returns. If
    not even one sentence of the best leaf fits, the first words of this leaf are returned.

    Raises ReplyTooLarge if the drafts do not fit into `reply`.
    """
    remaining = iter(candidates)
    best = next(remaining, None)
    if best is None:
        return ChosenDrafts([], 0, left_out=False)
    limits = PassageLimits(
        limit,
        token_budget,
        merge_adjacent=True,
        cut_last=True,
        max_per_document=max_per_document,
    )
    chosen = choose_drafts_within_limits(chain([best], remaining), limits, matches, reply)
    if chosen.drafts:
        return chosen
    record = first_words(best.document, best.record, token_budget)
    return chosen if record is None else chosen._replace(drafts=[replace(best, record=record)])


def choose_drafts_within_limits(
    candidates: Iterable[PassageDraft],
    limits: PassageLimits,
    matches: MatchedLeaves,
    reply: ReplyLimit = UNLIMITED,
) -> ChosenDrafts:
    """Chooses which drafts become passages, within `limits`.

    A draft is a chunk that may become a passage; it represents a group of matched leaves.
    `candidates` has one draft per group, best group first; only as many are read as needed. Raises
    ReplyTooLarge as soon as the chosen drafts do not fit into `reply`.
    """
    passages = _ChosenPassages(limits)
    left_tokens = limits.token_budget
    considered, left_out = 0, False
    for candidate in candidates:
        considered += 1
        window = candidate.window
        if window is not None and passages.has_sentence(candidate, window):
            continue
        whole = widened(candidate)
        draft, touching = passages.join_or_trim(whole)
        if draft is not whole and _best_match(draft, matches) is None:
            continue
        if not touching and limits.max_per_document and passages.is_document_full(draft):
            continue
        if not touching and passages.is_full:
            left_out = True
            break
        tokens = _new_tokens(draft, touching) if limits.token_budget else 0
        if tokens <= left_tokens:
            left_tokens -= tokens
            passages.add(draft)
            reply.check(passages.least_bytes, SEARCH_ADVICE)
        else:
            left_out = True
            if limits.cut_last:
                part = _cut(draft, touching, matches, left_tokens)
                if part:
                    passages.add(part)
                break
        if passages.is_full and not limits.merge_adjacent:
            break
    return ChosenDrafts(passages.drafts(), considered, left_out)


@dataclass(slots=True)
class _Passage:
    """Chosen drafts (chunks) of one document that touch, and so form one passage.

    The drafts cover a range of the document's tokens and a range of its bytes.
    """

    members: list[PassageDraft]
    token_start: int
    token_end: int
    byte_start: int
    byte_end: int

    def absorb(self, other: "_Passage") -> None:
        """Adds the drafts (chunks) of another passage to this passage."""
        self.members += other.members
        self.token_start = min(self.token_start, other.token_start)
        self.token_end = max(self.token_end, other.token_end)
        self.byte_start = min(self.byte_start, other.byte_start)
        self.byte_end = max(self.byte_end, other.byte_end)

    def draft(self) -> PassageDraft:
        """Joins the drafts (chunks) of the passage to one draft.

        The chunks in it are ordered best first, and so are the groups of their matched leaves.
        """
        if len(self.members) == 1:
            return self.members[0]
        best, *others = sorted(self.members, key=_groups)
        return best.joined(others)


_token_start = attrgetter("token_start")
_token_end = attrgetter("token_end")
_byte_end = attrgetter("byte_end")
_groups = attrgetter("groups")


class _ChosenPassages:
    """The passages chosen so far: for each document, a list in order of the text.

    A draft (a chunk that may become a passage) touches a passage if they overlap or if one ends
    where the other begins. Passages of one document do not overlap, except with `keep_overlap`. So
    the passages that a draft touches stand next to each other in the list, and bisection finds
    them.
    """

    def __init__(self, limits: PassageLimits) -> None:
        self._limits = limits
        self._by_document: defaultdict[str, list[_Passage]] = defaultdict(list)
        self._count = 0
        # A lower bound of the encoded size of all passages. It grows with each draft. It has the
        # fields of each document once, because drafts of a document may be joined to one passage.
        self.least_bytes = 0

    @property
    def is_full(self) -> bool:
        """True if there are as many passages as the limit allows."""
        return self._count >= self._limits.limit

    def is_document_full(self, draft: PassageDraft) -> bool:
        """Returns True if a draft's document has as many passages as `max_per_document` allows.

        The limit must not be 0, which means no limit.
        """
        return self._limits.max_per_document <= len(self._by_document[draft.document_id])

    def has_sentence(self, draft: PassageDraft, window: SentenceWindow) -> bool:
        """Returns True if a chosen passage has the sentence of a draft's window.

        Then the window adds nothing. Returns False with `keep_overlap`.
        """
        passages = self._by_document.get(draft.document_id)
        if not passages or self._limits.keep_overlap:
            return False
        byte = window.byte_start
        index = bisect_right(passages, byte, key=_byte_end)
        return index < len(passages) and passages[index].byte_start <= byte

    def join_or_trim(self, draft: PassageDraft) -> tuple[PassageDraft, list[_Passage]]:
        """Returns a draft, perhaps trimmed, and the chosen passages with which it must be joined.

        A draft is a chunk that may become a passage. There are three cases:

        * With `merge_adjacent`, the draft is unchanged, and the list has the passages that the
          draft touches, in order of the text.
        * With `keep_overlap`, the draft is unchanged, and the list is empty.
        * Otherwise, the text of the passages that the draft touches is removed from the draft, and
          the list is empty.
        """
        passages = self._by_document.get(draft.document_id)
        if not passages or self._limits.keep_overlap:
            return draft, []
        touched = passages[self._touched(draft)]
        if self._limits.merge_adjacent:
            return draft, touched
        return _without_text_of(draft, touched), []

    def add(self, draft: PassageDraft) -> None:
        """Adds a draft (a chunk) as a passage.

        With `merge_adjacent`, joins it with the passages that it touches.
        """
        passages, record = self._by_document[draft.document_id], draft.record
        new = _Passage(
            [draft], record.token_start, record.token_end, record.byte_start, record.byte_end
        )
        self._count += 1
        if not passages:
            self.least_bytes += draft.document.outline.encoded_bytes
        if not self._limits.merge_adjacent:
            self.least_bytes += draft.content_bytes
            insort(passages, new, key=_token_start)
            return
        touched = self._touched(draft)
        self.least_bytes += _growth(
            (record.byte_start, record.byte_end),
            [(passage.byte_start, passage.byte_end) for passage in passages[touched]],
        )
        # The passage with the most drafts absorbs the others, so that each draft is moved only a
        # few times.
        passages_to_join = [*passages[touched], new]
        whole, *others = sorted(passages_to_join, key=lambda passage: -len(passage.members))
        for other in others:
            whole.absorb(other)
        passages[touched] = [whole]
        self._count -= len(others)

    def drafts(self) -> list[PassageDraft]:
        """Returns a draft for each chosen passage, best first.

        A draft is a chunk, or several joined chunks, whose text has not been read yet.
        """
        drafts = (passage.draft() for passage in chain(*self._by_document.values()))
        return sorted(drafts, key=_groups)

    def _touched(self, draft: PassageDraft) -> slice:
        """Finds the chosen passages that a draft (a chunk) touches.

        Returns a slice of the list of chosen passages of the draft's document. If the draft touches
        no passage, the slice is empty and starts where the draft must be inserted.
        """
        passages, record = self._by_document[draft.document_id], draft.record
        first = bisect_left(passages, record.token_start, key=_token_end)
        return slice(first, bisect_right(passages, record.token_end, first, key=_token_start))


def _without_text_of(draft: PassageDraft, passages: Iterable[_Passage]) -> PassageDraft:
    """Returns a draft (a chunk or a window) without the text of the passages that it touches.

    The passages are in order of the text. The remaining text of a chunk is contiguous: passages
    can contain the beginning or the end of the chunk, but not only its middle, because no chunk
    lies completely inside another chunk. A window can contain whole passages: then the text between
    passages remains that has the start of its sentence, which must be in no passage.
    """
    record = draft.record
    for passage in passages:
        other = passage.draft().record
        is_before = draft.window is not None and other.byte_end <= draft.window.byte_start
        if other.token_start > record.token_start and not is_before:
            record = _part_before(record, other)
            break
        record = _part_after(record, other)
    return draft if record is draft.record else draft.spanning(record)


def _best_match(draft: PassageDraft, matches: MatchedLeaves) -> ChunkRecord | None:
    """Returns the best matched leaf of a draft (a chunk), cut to the draft's span.

    Ignores leaves that lie completely outside of the span. Returns None if no matched leaf remains,
    if the sentence of a window does not remain, or if the text of the draft consists only of white
    space.
    """
    if draft.record.token_count <= 0 or draft.is_blank or not draft.has_sentence:
        return None
    leaves = matches.leaves(draft.groups)
    records = (draft.document.tree.record(matches.level, match.leaf) for match in leaves)
    return next(filter(None, (record.within(draft.record) for record in records)), None)


def _new_tokens(draft: PassageDraft, touching: Sequence[_Passage]) -> int:
    """Returns how many tokens a draft (a chunk) adds to the passages that it touches."""
    record = draft.record
    ranges = [(passage.token_start, passage.token_end) for passage in touching]
    return _growth((record.token_start, record.token_end), ranges)


def _growth(new: tuple[int, int], touching: Sequence[tuple[int, int]]) -> int:
    """Returns how many numbers a new range adds to the ranges that it touches.

    A range has its first number, and the number after its last one.
    """
    start = min(first for first, _ in (new, *touching))
    end = max(after for _, after in (new, *touching))
    return end - start - sum(after - first for first, after in touching)


def _cut(
    draft: PassageDraft, touching: Sequence[_Passage], matches: MatchedLeaves, token_budget: int
) -> PassageDraft | None:
    """Cuts a draft (a chunk) to the sentences that fit the token budget; None if no sentence fits.

    If the draft touches passages, the sentences continue one of them: the passage before the draft
    in the text or, if there is none, the passage after the draft. If the draft touches no passage,
    the sentences begin at the start of the draft. Exception: if these sentences would end before
    the best matched leaf of the draft, the returned sentences begin with the sentence in which this
    leaf begins. In a window of sentences, the sentence to cite stands in place of this sentence.
    """
    if touching:
        return _continuation(draft, touching, token_budget)
    best = _best_match(draft, matches)
    if best is None:
        return None
    kept_char = best.char_start if draft.window is None else draft.window.char_start
    record = truncated(draft.document, draft.record, kept_char, token_budget)
    return None if record is None else replace(draft, record=record)


def _continuation(
    draft: PassageDraft, touching: Sequence[_Passage], token_budget: int
) -> PassageDraft | None:
    """Cuts a draft (a chunk) to the sentences that extend a passage which the draft touches.

    If a passage before the draft touches it, the first sentences of the draft that are not in this
    passage are kept. Otherwise a passage after the draft touches it, and the last sentences that
    are not in that passage are kept. Returns None if no sentence fits the token budget.
    """
    new = draft.record
    before, after = touching[0].draft().record, touching[-1].draft().record
    follows = before.token_start <= new.token_start
    if follows:
        new = _part_after(new, before)
    if after.token_end >= new.token_end:
        new = _part_before(new, after)
    cut = first_sentences if follows else last_sentences
    record = cut(draft.document, new, token_budget)
    return None if record is None else replace(draft, record=record)


def _part_after(record: ChunkRecord, before: ChunkRecord) -> ChunkRecord:
    """Returns the part of a span after the end of another span."""
    return record._replace(
        byte_start=before.byte_end,
        char_start=before.char_end,
        token_start=before.token_end,
        token_count=record.token_end - before.token_end,
    )


def _part_before(record: ChunkRecord, after: ChunkRecord) -> ChunkRecord:
    """Returns the part of a span before the start of another span."""
    return record._replace(
        byte_end=after.byte_start,
        char_end=after.char_start,
        token_count=after.token_start - record.token_start,
    )
