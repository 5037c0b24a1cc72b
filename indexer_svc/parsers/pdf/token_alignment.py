"""Aligns the words of a page's stored text with the words that are printed on the page.

The words are compared by their forms. Ratcliff and Obershelp's matching of sequences (Python's
`difflib`) finds blocks of equal words that follow each other on both sides. Prose has the same few
words everywhere, so a short block may be a coincidence. It counts only if it occurs once on either
side, or if it is close to a long block on both sides. What a first alignment leaves is aligned
again, because a footnote is at another place in the text than on the page, and so are the columns
of a page that was read as a table. Words that differ between two blocks are aligned by their
characters.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

# The alignment takes time in proportion to the pairs of equal words. Pages of prose have some
# thousands of such pairs. On a page with more than this limit, only rare words are aligned.
_MAX_PAIRS = 1_000_000
_MAX_RARE = 20
# After so many alignments, what is left is in no order.
_PASSES = 4
# A block of so many words is no coincidence.
_CERTAIN_WORDS = 4
# A shorter block is a continuation of another if at most so many words are between them, and not
# more than it has letters.
_MAX_GAP = 8
# Words that differ are aligned by their characters if they have at most so many.
_MAX_CHARACTERS = 200
# Any two texts have many single letters in the same order, so a single letter says nothing.
_MIN_SHARED = 2


class TokenPair(NamedTuple):
    """The indexes of a word of the text and of a printed word, and how many letters they share."""

    ours: int
    theirs: int
    shared: int


def aligned_tokens(ours: Sequence[str], theirs: Sequence[str]) -> Iterator[TokenPair]:
    """Yields the pairs of words that belong together, by their forms."""
    counts = _sequence_counts(ours), _sequence_counts(theirs)
    left, right = list(range(len(ours))), list(range(len(theirs)))
    for _ in range(_PASSES):
        left, right = _comparable(left, right, ours, theirs)
        pairs = list(_pairs(left, right, ours, theirs, counts))
        yield from pairs
        left_out = {pair.ours for pair in pairs}, {pair.theirs for pair in pairs}
        left = [index for index in left if index not in left_out[0]]
        right = [index for index in right if index not in left_out[1]]
        if not pairs or not left or not right:
            return


_Counts = Counter[tuple[str, ...]]


def _sequence_counts(forms: Sequence[str]) -> _Counts:
    """Returns how often each sequence of fewer than _CERTAIN_WORDS words occurs."""
    counts: _Counts = Counter()
    for size in range(1, _CERTAIN_WORDS):
        counts.update(zip(*(forms[start:] for start in range(size)), strict=False))
    return counts


def _comparable(
    left: list[int], right: list[int], ours: Sequence[str], theirs: Sequence[str]
) -> tuple[list[int], list[int]]:
    counts = Counter(theirs[index] for index in right)
    if sum(counts[ours[index]] for index in left) <= _MAX_PAIRS:
        return left, right
    return (
        [index for index in left if counts[ours[index]] <= _MAX_RARE],
        [index for index in right if counts[theirs[index]] <= _MAX_RARE],
    )


class _Block(NamedTuple):
    """Words that follow each other on both sides, and where they begin and end there."""

    left: int
    right: int
    size: int

    @property
    def left_end(self) -> int:
        return self.left + self.size

    @property
    def right_end(self) -> int:
        return self.right + self.size


def _pairs(
    left: Sequence[int],
    right: Sequence[int],
    ours: Sequence[str],
    theirs: Sequence[str],
    counts: tuple[_Counts, _Counts],
) -> Iterator[TokenPair]:
    forms = [ours[index] for index in left]
    matcher = SequenceMatcher(None, forms, [theirs[index] for index in right], autojunk=False)
    blocks = [_Block(*block) for block in matcher.get_matching_blocks()]

    def is_certain(block: _Block) -> bool:
        sequence = tuple(forms[block.left : block.left_end])
        return block.size >= _CERTAIN_WORDS or all(count[sequence] == 1 for count in counts)

    def is_near(one: _Block, other: _Block, short: _Block) -> bool:
        """Returns True if few words of the page are between a block and a later one.

        `short` is the one of them that is not certain.
        """
        gaps = (
            left[other.left] - left[one.left_end - 1],
            right[other.right] - right[one.right_end - 1],
        )
        letters = sum(map(len, forms[short.left : short.left_end]))
        return max(gaps) <= min(letters, _MAX_GAP)

    blocks.pop()  # The last block is always empty.
    certain = [is_certain(block) for block in blocks]
    following = _following(blocks, certain)
    found: list[_Block] = []
    for block, is_block_certain, later in zip(blocks, certain, following, strict=True):
        if (
            is_block_certain
            or (found and is_near(found[-1], block, block))
            or (later and is_near(block, later, block))
        ):
            found.append(block)
    yield from _paired(found, left, right, ours, theirs)


def _following(blocks: Sequence[_Block], certain: Sequence[bool]) -> list[_Block | None]:
    """Returns, for each block, the first certain block after it, or None."""
    following: list[_Block | None] = []
    later = None
    for block, is_certain in zip(reversed(blocks), reversed(certain), strict=True):
        following.append(later)
        later = block if is_certain else later
    return following[::-1]


def _paired(
    blocks: Sequence[_Block],
    left: Sequence[int],
    right: Sequence[int],
    ours: Sequence[str],
    theirs: Sequence[str],
) -> Iterator[TokenPair]:
    """Yields the pairs of blocks, and of the words between them."""
    before = _Block(0, 0, 0)
    is_whole = len(left) == len(ours) and len(right) == len(theirs)
    for block in (*blocks, _Block(len(left), len(right), 0)):
        between = left[before.left_end : block.left], right[before.right_end : block.right]
        # Without a block, or in what an alignment has left, nothing says that they belong together.
        if blocks and is_whole and all(between):
            yield from _character_pairs(*between, ours, theirs)
        for offset in range(block.size):
            index = left[block.left + offset]
            yield TokenPair(index, right[block.right + offset], len(ours[index]))
        before = block


def _character_pairs(
    left: Sequence[int], right: Sequence[int], ours: Sequence[str], theirs: Sequence[str]
) -> Iterator[TokenPair]:
    """Yields the pairs of words of which at least half of the characters belong together."""
    owners = [index for index in left for _ in ours[index]]
    others = [index for index in right for _ in theirs[index]]
    if max(len(owners), len(others)) > _MAX_CHARACTERS:
        return
    texts = "".join(ours[index] for index in left), "".join(theirs[index] for index in right)
    shared: Counter[tuple[int, int]] = Counter()
    for block in SequenceMatcher(None, *texts, autojunk=False).get_matching_blocks():
        if block.size >= _MIN_SHARED:
            for offset in range(block.size):
                shared[owners[block.a + offset], others[block.b + offset]] += 1
    for (index, other), count in shared.items():
        if 2 * count >= min(len(ours[index]), len(theirs[other])):
            yield TokenPair(index, other, count)
