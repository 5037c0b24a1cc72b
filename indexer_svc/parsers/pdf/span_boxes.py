"""Finds the places on a page at which parts of the page's stored text are printed.

The stored text is not what PDFium reads: lines and hyphenated words are joined, columns follow each
other, tables are Markdown, and running heads are left out. So the page is laid out again, by the
same layout that has read it, into printed words in reading order. Then the words of the text are
aligned with the printed words (Ratcliff and Obershelp's matching of sequences). Where they differ,
for example in a hyphenated word, their characters are aligned.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from indexer_svc.parsers.pdf.layout.lines import TextLine
from indexer_svc.parsers.pdf.layout.page_layout import page_layout, page_rows
from indexer_svc.parsers.pdf.layout.tables import PdfTable
from indexer_svc.parsers.pdf.layout.words import Word
from indexer_svc.parsers.pdf.page_content import PageContent
from indexer_svc.parsers.recognised_words import Box, PrintedWord

# The alignment takes time in proportion to the pairs of equal words. Pages of prose have some
# thousands of such pairs. On a page with more than this limit, only rare words are aligned.
_MAX_PAIRS = 1_000_000
_MAX_RARE = 20
# Words that differ are aligned by their characters if they have at most so many.
_MAX_CHARACTERS = 2_000
# Any two texts have many single letters in the same order, so a single letter says nothing.
_MIN_BLOCK = 2
# A span has boxes if more than this share of its characters is found.
_MIN_FOUND = 0.5
# The ascent and the descent of letters, in font sizes. The box of a font is often higher, so that
# it would reach into the lines above and below.
_ASCENT, _DESCENT = 0.95, 0.3
CJK = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff"
# Chinese has no spaces, so each of its characters is a token.
_TOKEN = re.compile(rf"[{CJK}]|[^\W{CJK}]+")


class _Token(NamedTuple):
    """A token of a text or of a printed word: its bounds there, and the form to compare."""

    start: int
    end: int
    form: str
    word: int = -1


class _WordPart(NamedTuple):
    """A part of a printed word, from one share of its width to another.

    `shared` is how many of its characters are those of the token of the text.
    """

    word: int
    start: float
    end: float
    shared: int = 0


def printed_words(content: PageContent) -> list[PrintedWord]:
    """Returns the upright words of a page in reading order, with running heads."""
    return [
        PrintedWord(word.text, _letter_box(word), line) for word, line in ordered_words(content)
    ]


def ordered_words(content: PageContent) -> Iterator[tuple[Word, int]]:
    """Yields the upright words of a page in reading order, each with the number of its line."""
    page = page_rows(0, content)
    layout = page_layout(page, set(), 1, continues_contents=False, fixed_is_code=False)
    placed_ids: set[int] = set()
    line = 0
    for item in (item for region in layout.regions for item in region):
        for row in page.rows:
            words = [
                word for word in row.words if id(word) not in placed_ids and _is_inside(word, item)
            ]
            placed_ids.update(map(id, words))
            yield from ((word, line) for word in words)
            line += bool(words)


def _is_inside(word: Word, item: TextLine | PdfTable) -> bool:
    """Returns True if a word is a part of a line or a table."""
    if word.bottom <= item.top or word.top >= item.bottom:
        return False
    x, y = (word.left + word.right) / 2, (word.top + word.bottom) / 2
    return item.left <= x <= item.right and item.top <= y <= item.bottom


def _letter_box(word: Word) -> Box:
    top = max(word.top, word.baseline - _ASCENT * word.size)
    bottom = min(word.bottom, word.baseline + _DESCENT * word.size)
    return word.left, min(top, bottom), word.right, max(top, bottom)


def span_boxes(
    text: str, spans: Sequence[tuple[int, int]], words: Sequence[PrintedWord]
) -> list[list[Box]]:
    """Returns, for each span of a page's text, one box for each printed line that it covers.

    `spans` are pairs of offsets of characters in `text`. What is not printed has no box. A span of
    which most characters are not found has no box at all, because the few words that are found may
    be those of another sentence.
    """
    tokens = [_Token(m.start(), m.end(), _form(m.group())) for m in _TOKEN.finditer(text)]
    pieces = _aligned(tokens, list(_tokens_of(words)), words)
    return [
        _line_boxes(_pieces_of(span, tokens, pieces, words), words)
        if _is_found(span, tokens, pieces)
        else []
        for span in spans
    ]


def _is_found(
    span: tuple[int, int], tokens: Sequence[_Token], pieces: dict[int, list[_WordPart]]
) -> bool:
    """Returns True if most characters of a span's tokens are found on the page."""
    characters = found = 0
    for index, token in enumerate(tokens):
        if token.start < span[1] and token.end > span[0]:
            characters += len(token.form)
            shared = sum(piece.shared for piece in pieces.get(index, ()))
            found += min(shared, len(token.form))
    return found > _MIN_FOUND * characters


def _tokens_of(words: Sequence[PrintedWord]) -> Iterator[_Token]:
    for number, word in enumerate(words):
        for match in _TOKEN.finditer(word.text):
            yield _Token(match.start(), match.end(), _form(match.group()), number)


def _form(token: str) -> str:
    return unicodedata.normalize("NFKC", token).casefold()


def _aligned(
    tokens: Sequence[_Token], printed: Sequence[_Token], words: Sequence[PrintedWord]
) -> dict[int, list[_WordPart]]:
    """Returns the pieces of printed words of each token of the text, by the token's index.

    What a first alignment leaves is aligned again, because a footnote is at another place in the
    text than on the page.
    """
    pieces: dict[int, list[_WordPart]] = {}
    left = list(range(len(tokens))), list(range(len(printed)))
    for _ in range(2):
        aligned_tokens: set[int] = set()
        for ours, theirs, shared in _pairs(*left, tokens, printed):
            aligned_tokens.add(theirs)
            word = printed[theirs]
            width = len(words[word.word].text)
            piece = _WordPart(word.word, word.start / width, word.end / width, shared)
            pieces.setdefault(ours, []).append(piece)
        left = (
            [index for index in left[0] if index not in pieces],
            [index for index in left[1] if index not in aligned_tokens],
        )
    return pieces


def _pairs(
    ours: Sequence[int], theirs: Sequence[int], tokens: Sequence[_Token], printed: Sequence[_Token]
) -> Iterator[tuple[int, int, int]]:
    """Yields pairs of indexes of a token of the text and a printed token that belong together.

    The third number is how many characters they share.
    """
    ours, theirs = _comparable(ours, theirs, tokens, printed)
    left, right = [tokens[i].form for i in ours], [printed[i].form for i in theirs]
    matcher = SequenceMatcher(None, left, right, autojunk=False)
    for kind, start, end, other_start, other_end in matcher.get_opcodes():
        if kind == "equal":
            for index, other in zip(ours[start:end], theirs[other_start:other_end], strict=True):
                yield index, other, len(tokens[index].form)
        elif kind == "replace":
            yield from _character_pairs(
                ours[start:end], theirs[other_start:other_end], tokens, printed
            )


def _comparable(
    ours: Sequence[int], theirs: Sequence[int], tokens: Sequence[_Token], printed: Sequence[_Token]
) -> tuple[Sequence[int], Sequence[int]]:
    counts = Counter(printed[index].form for index in theirs)
    if sum(counts[tokens[index].form] for index in ours) <= _MAX_PAIRS:
        return ours, theirs
    return (
        [index for index in ours if counts[tokens[index].form] <= _MAX_RARE],
        [index for index in theirs if counts[printed[index].form] <= _MAX_RARE],
    )


def _character_pairs(
    ours: Sequence[int], theirs: Sequence[int], tokens: Sequence[_Token], printed: Sequence[_Token]
) -> Iterator[tuple[int, int, int]]:
    """Yields the pairs of tokens of which at least half of the characters belong together."""
    owners = [index for index in ours for _ in tokens[index].form]
    others = [index for index in theirs for _ in printed[index].form]
    if max(len(owners), len(others)) > _MAX_CHARACTERS:
        return
    left = "".join(tokens[index].form for index in ours)
    right = "".join(printed[index].form for index in theirs)
    shared: Counter[tuple[int, int]] = Counter()
    for block in SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks():
        if block.size < _MIN_BLOCK:
            continue
        for offset in range(block.size):
            shared[owners[block.a + offset], others[block.b + offset]] += 1
    for (token, printed_token), count in shared.items():
        if 2 * count >= min(len(tokens[token].form), len(printed[printed_token].form)):
            yield token, printed_token, count


def _pieces_of(
    span: tuple[int, int],
    tokens: Sequence[_Token],
    pieces: dict[int, list[_WordPart]],
    words: Sequence[PrintedWord],
) -> Iterator[_WordPart]:
    """Yields the parts of printed words that a span of the text covers.

    Punctuation before and after the words of a span belongs to it if the span contains it.
    """
    start, end = span
    for index, token in enumerate(tokens):
        if token.end <= start or token.start >= end:
            continue
        length = token.end - token.start
        first = max(0, start - token.start) / length
        last = min(length, end - token.start) / length
        for piece in pieces.get(index, ()):
            width = piece.end - piece.start
            left = piece.start + first * width
            right = piece.start + last * width
            edges = _TOKEN.findall(words[piece.word].text)
            if first == 0 and start < token.start and len(edges) == 1:
                left = 0.0
            if last == 1 and end > token.end and _is_last(piece, words[piece.word]):
                right = 1.0
            yield _WordPart(piece.word, left, right)


def _is_last(piece: _WordPart, word: PrintedWord) -> bool:
    return not _TOKEN.search(word.text, round(piece.end * len(word.text)))


def _line_boxes(pieces: Iterator[_WordPart], words: Sequence[PrintedWord]) -> list[Box]:
    """Returns one box for each line of the pieces, from the first to the last of its pieces."""
    lines: dict[int, Box] = {}
    for piece in pieces:
        left, top, right, bottom = words[piece.word].box
        width = right - left
        box = left + piece.start * width, top, left + piece.end * width, bottom
        line = words[piece.word].line
        before = lines.get(line, box)
        lines[line] = (
            *(min(before[0], box[0]), min(before[1], box[1])),
            *(max(before[2], box[2]), max(before[3], box[3])),
        )
    return list(lines.values())
