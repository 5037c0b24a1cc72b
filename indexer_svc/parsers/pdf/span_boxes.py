"""Finds the places on a page at which parts of the page's stored text are printed.

The stored text is not what PDFium reads: lines and hyphenated words are joined, columns follow each
other, tables are Markdown, and running heads are left out. So the page is laid out again, by the
same layout that has read it, into printed words in reading order. Then the words of the text are
aligned with the printed words (`token_alignment`).
"""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from indexer_svc.parsers.pdf.layout.lines import TextLine
from indexer_svc.parsers.pdf.layout.page_layout import page_layout, page_rows
from indexer_svc.parsers.pdf.layout.tables import PdfTable
from indexer_svc.parsers.pdf.layout.words import Word
from indexer_svc.parsers.pdf.page_content import PageContent
from indexer_svc.parsers.pdf.token_alignment import aligned_tokens
from indexer_svc.parsers.recognised_words import Box, PrintedWord

# A span has boxes if more than this share of its characters is found.
_MIN_FOUND = 0.5
# The ascent and the descent of letters, in font sizes. The box of a font is often higher, so that
# it would reach into the lines above and below.
_ASCENT, _DESCENT = 0.95, 0.3
CJK = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff"
# The hyphens at the ends of lines.
_HYPHENS = "-\u2010\u00ad"
# The rest of a broken word is searched for in so many lines. A column has some fifty lines.
_MAX_LINES_BETWEEN = 60
# Chinese has no spaces, so each of its characters is a token.
_TOKEN = re.compile(rf"[{CJK}]|[^\W{CJK}]+")


class _Token(NamedTuple):
    """A token of a text: its bounds, and the form to compare."""

    start: int
    end: int
    form: str


class _WordPart(NamedTuple):
    """A part of a printed word, from one share of its width to another.

    `shared` is how many of its characters are those of the token of the text.
    """

    word: int
    start: float
    end: float
    shared: float = 0.0


class _PrintedToken(NamedTuple):
    """A token of the page: the form to compare, and its parts; two if a line end breaks it."""

    form: str
    parts: tuple[_WordPart, ...]


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
            if row.bottom <= item.top or row.top >= item.bottom:
                continue
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
    pieces = _pieces(tokens, _joined_tokens(words, {token.form for token in tokens}))
    aligned = {piece.word for parts in pieces.values() for piece in parts}
    starts, ends = [token.start for token in tokens], [token.end for token in tokens]

    def boxes(span: tuple[int, int]) -> list[Box]:
        covered = range(bisect_right(ends, span[0]), bisect_left(starts, span[1]))
        if not _is_found(covered, tokens, pieces):
            return []
        return _line_boxes(_pieces_of(span, covered, tokens, pieces, words), words, aligned)

    return [boxes(_to_the_edges(span, text)) for span in spans]


def _to_the_edges(span: tuple[int, int], text: str) -> tuple[int, int]:
    """Returns a span that includes what is printed before or after all text of the page.

    This is the hyphen of a word whose end is on the next page.
    """
    start, end = span
    return start - (start == 0), end + (end == len(text))


def _is_found(covered: range, tokens: Sequence[_Token], pieces: dict[int, list[_WordPart]]) -> bool:
    """Returns True if most characters of a span's tokens are found on the page."""
    characters, found = 0, 0.0
    for index in covered:
        length = len(tokens[index].form)
        characters += length
        found += min(sum(piece.shared for piece in pieces.get(index, ())), length)
    return found > _MIN_FOUND * characters


def _joined_tokens(words: Sequence[PrintedWord], known: set[str]) -> list[_PrintedToken]:
    """Returns the tokens of the page. A word that is broken at the end of a line is one token.

    `known` are the forms of the text. The rest of a broken word begins the first of the lines after
    it with which the word is known. This need not be the next line, because footnotes, for example,
    may be between the columns of a page.
    """
    tokens = [token for number, word in enumerate(words) for token in _tokens_of(number, word)]
    firsts = _line_starts(tokens, words)
    joined: dict[int, _PrintedToken] = {}
    rests: set[int] = set()
    for place, first in enumerate(firsts[1:], start=1):
        begin = tokens[first - 1]
        if words[begin.parts[-1].word].text[-1] not in _HYPHENS:
            continue
        for rest in firsts[place : place + _MAX_LINES_BETWEEN]:
            form = begin.form + tokens[rest].form
            if form in known and rest not in rests:
                joined[first - 1] = _PrintedToken(form, begin.parts + tokens[rest].parts)
                rests.add(rest)
                break
    return [joined.get(at, token) for at, token in enumerate(tokens) if at not in rests]


def _tokens_of(number: int, word: PrintedWord) -> Iterator[_PrintedToken]:
    width = len(word.text)
    for match in _TOKEN.finditer(word.text):
        form = _form(match.group())
        part = _WordPart(number, match.start() / width, match.end() / width, len(form))
        yield _PrintedToken(form, (part,))


def _line_starts(tokens: Sequence[_PrintedToken], words: Sequence[PrintedWord]) -> list[int]:
    """Returns the indexes of the first token of each line."""
    lines = [words[token.parts[0].word].line for token in tokens]
    return [at for at, line in enumerate(lines) if not at or line != lines[at - 1]]


def _form(token: str) -> str:
    return unicodedata.normalize("NFKC", token).casefold()


def _pieces(
    tokens: Sequence[_Token], printed: Sequence[_PrintedToken]
) -> dict[int, list[_WordPart]]:
    """Returns the parts of printed words of each token of the text, by the token's index."""
    pieces: dict[int, list[_WordPart]] = {}
    forms = [token.form for token in tokens], [token.form for token in printed]
    for pair in aligned_tokens(*forms):
        parts = printed[pair.theirs].parts
        whole = sum(part.shared for part in parts)
        pieces.setdefault(pair.ours, []).extend(
            part._replace(shared=part.shared * pair.shared / whole) for part in parts
        )
    return pieces


def _pieces_of(
    span: tuple[int, int],
    covered: range,
    tokens: Sequence[_Token],
    pieces: dict[int, list[_WordPart]],
    words: Sequence[PrintedWord],
) -> Iterator[_WordPart]:
    """Yields the parts of printed words that a span of the text covers.

    `covered` are the indexes of the tokens that the span covers, in whole or in part.
    Punctuation before and after the words of a span belongs to it if the span contains it.
    """
    start, end = span
    for index in covered:
        token = tokens[index]
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


def _line_boxes(
    pieces: Iterable[_WordPart], words: Sequence[PrintedWord], aligned: set[int]
) -> list[Box]:
    """Returns one box for each line of the pieces, from the first to the last of its pieces.

    A box does not contain a word that belongs to other text: one of the words `aligned` that is
    none of the pieces. If there is one between two pieces of a line, the line has two boxes.
    """
    parts = sorted(pieces)
    own = {piece.word for piece in parts}
    boxes: list[Box] = []
    last = _WordPart(-1, 0.0, 0.0)
    for piece in parts:
        left, top, right, bottom = words[piece.word].box
        width = right - left
        box = left + piece.start * width, top, left + piece.end * width, bottom
        is_same_line = last.word >= 0 and words[last.word].line == words[piece.word].line
        between = range(last.word + 1, piece.word)
        if is_same_line and not any(word in aligned and word not in own for word in between):
            box = _joined(boxes.pop(), box)
        boxes.append(box)
        last = piece
    return boxes


def _joined(one: Box, other: Box) -> Box:
    return (
        *(min(one[0], other[0]), min(one[1], other[1])),
        *(max(one[2], other[2]), max(one[3], other[3])),
    )
