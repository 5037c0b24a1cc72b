"""Finds the headings of a document, and their depths.

Bookmarks are the best source: each of them names a heading and its depth, and only its lines have
to be found. The tags of a tagged PDF are the next one. Without both, a heading is a short block
whose style is not that of the text: it is larger, bold, in capitals, or numbered and apart from
other blocks. A table of contents confirms headings in a weaker style.

The styles of headings are ordered by size and weight, and the depth of a heading is the rank of its
style. Numbers of several parts (`2.1.3`) say the depth within a style.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from indexer_svc.parsers.pdf.layout.blocks import Block
from indexer_svc.parsers.pdf.layout.lines import TextLine, mark_heading
from indexer_svc.parsers.pdf.layout.words import Word
from indexer_svc.parsers.pdf.page_content import Bookmark

MAX_DEPTH = 9
_MAX_HEADING_CHARS = 220
_MAX_HEADING_LINES = 4
_MAX_TITLE_LINES = 5
# The title of a bookmark is searched for in so many lines of its page. A dense page has 200.
_MAX_PAGE_LINES = 600
_LARGER = 1.07
_MUCH_LARGER = 1.25
_SMALLER = 0.93
# A heading in the size and weight of the text is at most so long.
_MAX_PLAIN_CHARS = 95
_MIN_LETTERS = 0.45
# A paragraph of so many characters is no line of a cover.
_MIN_TEXT_CHARS = 200
_NUMBER = re.compile(
    r"(?:(?:chapter|section|part|article|appendix|annex|kapitel|teil|abschnitt|anhang|chapitre|partie)"
    r"\s+)?(?P<number>\d{1,3}(?:\.\d{1,3}){0,5}|[A-Z](?:\.\d{1,3}){1,5}|[A-Z](?=[.:)]\s)|[IVXLC]{1,6}(?=[.:)\s]))"
    r"[.:)]?\s+",
    re.IGNORECASE,
)
_NUMBERED = re.compile(rf"{_NUMBER.pattern}(?=\S*[^\W\d_])", re.IGNORECASE)
_KEYWORD = re.compile(
    r"(?:chapter|part|appendix|annex|kapitel|teil|anhang|chapitre)\s+(?:\d{1,3}|[A-Z]|[IVXLC]{1,6})\b",
    re.IGNORECASE,
)
_CAPTION = re.compile(
    r"(?:figure|fig\.|table|tab\.|listing|algorithm|abbildung|abb\.|tabelle|tableau|example|note|warning|"
    r"tip|caution|theorem|lemma|definition|proof)\s*[\d:.(]|\[|\u25a6",
    re.IGNORECASE,
)
_BAD_END = re.compile(r"[.,;:=\u3002\uff0c\uff1b\uff1a\-][\"'\u201d\u2019)]*$")
_SENTENCE_END = re.compile(r"[.!?\u3002\uff01\uff1f][)\]\"'\u201d\u2019]*$")
_CJK_NUMBERED = re.compile(
    "\u7b2c ?[\u4e00-\u9fff\\d]{1,4} ?[\u7ae0\u8282\u7bc0\u7de8\u7f16]"
    "|[\u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u4e03\u516b\u4e5d\u5341]{1,3}\u3001"
)


class BodyStyle(NamedTuple):
    """The style of most characters of a document."""

    size: float
    is_bold: bool
    is_fixed: bool
    is_italic: bool


def body_style(
    lines: Iterable[TextLine], tables: Mapping[BodyStyle, int] | None = None
) -> BodyStyle:
    """Returns the style of most characters of the text.

    `tables` has the number of characters in tables for each style. They count if the lines have no
    sentence in the style of most of them: a document may be a title above a table.
    """
    counts: Counter[BodyStyle] = Counter()
    with_sentences: set[BodyStyle] = set()
    for line in lines:
        style = BodyStyle(round(line.size * 2) / 2, line.is_bold, line.is_fixed, line.is_italic)
        counts[style] += len(line.text)
        if _ends_sentence(line.text):
            with_sentences.add(style)
    if tables and (not counts or max(counts, key=counts.__getitem__) not in with_sentences):
        counts.update(tables)
    return max(counts, key=counts.__getitem__) if counts else BodyStyle(10.0, False, False, False)


def table_styles(words: Iterable[Word]) -> Counter[BodyStyle]:
    """Returns the number of characters in each style of the words of a table."""
    counts: Counter[BodyStyle] = Counter()
    for word in words:
        font = word.font
        style = BodyStyle(round(word.size * 2) / 2, font.is_bold, font.is_fixed, font.is_italic)
        counts[style] += len(word.text)
    return counts


def normalised(text: str) -> str:
    """Returns the letters and digits of a title, in lower case, for a comparison."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(character for character in folded if character.isalnum())


class MissingHeading(NamedTuple):
    """A bookmark whose title is not on its page.

    `before` is the number of the last heading before it on the page, or 0.
    """

    bookmark: Bookmark
    before: int


def mark_bookmarks(
    pages: Sequence[Sequence[TextLine]], bookmarks: Sequence[Bookmark]
) -> list[MissingHeading]:
    """Marks the lines of the heading that each bookmark names; returns bookmarks without lines.

    `pages` are the lines of each page, in reading order.
    """
    missing = []
    by_page: dict[int, list[Bookmark]] = defaultdict(list)
    for bookmark in bookmarks:
        by_page[bookmark.page].append(bookmark)
    number = 0
    for page, page_bookmarks in by_page.items():
        lines = pages[page][:_MAX_PAGE_LINES]
        texts = [normalised(line.text) for line in lines]
        position = before = 0
        for bookmark in page_bookmarks:
            number += 1
            title = normalised(bookmark.title)
            found = _find_title(title, lines, texts, position) or _find_title(
                title, lines, texts, 0
            )
            if found is None and page + 1 < len(pages):
                # Some programs let a bookmark lead to the end of the page before.
                after = pages[page + 1][:3]
                found = _find_title(title, after, [normalised(line.text) for line in after], 0)
                if found is not None:
                    mark_heading(after[found[0] : found[1]], bookmark.depth, number)
                    continue
            if found is None:
                missing.append(MissingHeading(bookmark, before))
                continue
            mark_heading(lines[found[0] : found[1]], bookmark.depth, number)
            position = found[1]
            before = number
    return missing


def _find_title(
    title: str, lines: Sequence[TextLine], texts: Sequence[str], start: int
) -> tuple[int, int] | None:
    """Returns the first line of a title and the line after its last; None if it is not there."""
    if not title:
        return None
    for first in range(start, len(lines)):
        head = texts[first]
        # A first line of a numbered title has the number before the first words of the title.
        if not head or not (head in title or title in head or title[:2] in head):
            continue
        if lines[first].heading_number:
            continue
        whole = ""
        for after in range(first, min(first + _MAX_TITLE_LINES, len(lines))):
            whole += texts[after]
            # The number of a title is in the line of its first words. A number in a line of its
            # own may be the end of the paragraph above: `s.` after `5 m/`.
            if len(whole) - len(title) < len(head) and _is_title(whole, title):
                return first, after + 1
            if len(whole) > len(title) + 24:
                break
    return None


def _is_title(text: str, title: str) -> bool:
    """Returns True if both are equal, or differ only by a number before one of them."""
    if text == title:
        return True
    if text.endswith(title):
        return _is_number(text[: -len(title)])
    return title.endswith(text) and len(text) >= 3 and _is_number(title[: -len(text)])


def _is_number(prefix: str) -> bool:
    return bool(
        re.fullmatch(
            r"(?:chapter|section|part|article|appendix|annex|kapitel|teil|anhang)?(?:\d{1,8}|[a-z]\d{0,6}|[ivxlc]{1,7})",
            prefix,
        )
    )


class _HeadingStyle(NamedTuple):
    size: float
    is_bold: bool
    is_capital: bool


def mark_typographic(
    pages: Sequence[Sequence[Block]], body: BodyStyle, contents: Iterable[str], least_depth: int = 0
) -> None:
    """Sets the depth of blocks that look like headings.

    `contents` are the titles in the tables of contents. Headings get depths below `least_depth`.
    """
    titles = {normalised(title) for title in contents}
    candidates: list[Block] = []
    for blocks in pages:
        for index, block in enumerate(blocks):
            if block.heading_depth or block.is_footnote:
                continue
            before = blocks[index - 1] if index else None
            after = blocks[index + 1] if index + 1 < len(blocks) else None
            if _is_candidate(block, before, after, body, titles):
                candidates.append(block)
    chosen = _without_lists(pages, _without_cover(pages, candidates, body))
    for block, depth in _depths(chosen).items():
        block.heading_depth = min(MAX_DEPTH, least_depth + depth)


def _is_candidate(
    block: Block, before: Block | None, after: Block | None, body: BodyStyle, titles: set[str]
) -> bool:
    """Returns True if a block may be a heading. `titles` are those of the tables of contents."""
    text, first = block.text, block.styled
    is_larger = first.size >= _LARGER * body.size
    if not _may_be_heading(block, is_larger=is_larger) or (block.is_code and not is_larger):
        return False
    if titles and normalised(text) in titles:
        return True
    if first.size < _SMALLER * body.size:
        return False
    if _BAD_END.search(text) and first.size < _MUCH_LARGER * body.size:
        return False
    return _has_heading_style(block, body, is_larger=is_larger) or (
        _is_apart(block, before, after)
        and len(block.lines) <= 2
        and len(text) < _MAX_PLAIN_CHARS
        and _has_weak_style(block, body)
    )


def _may_be_heading(block: Block, *, is_larger: bool) -> bool:
    """Returns True if a block is short, has letters, and is no item and no caption.

    Most characters are letters, except in a numbered title in large letters: `2 Version 1.0.3`.
    """
    text = block.text
    letters = sum(map(str.isalpha, text))
    least = _MIN_LETTERS * len(text.replace(" ", ""))
    return (
        len(block.lines) <= _MAX_HEADING_LINES
        and len(text) <= _MAX_HEADING_CHARS
        and not block.marker
        and not _CAPTION.match(text)
        and letters >= 2
        and (letters >= least or (is_larger and bool(_NUMBERED.match(text))))
    )


def _has_heading_style(block: Block, body: BodyStyle, *, is_larger: bool) -> bool:
    """Returns True if a block is larger than the text, or bold in a text that is not bold."""
    text = block.text
    is_bold = block.styled.is_bold and not body.is_bold
    begins_title = text[0].isupper() or not text[0].isalpha() or bool(_CJK_NUMBERED.match(text))
    return is_larger or (is_bold and begins_title)


def _has_weak_style(block: Block, body: BodyStyle) -> bool:
    """Returns True if a block has a number, capitals or italics, as a heading in the text's size.

    A number without a dot inside may be that of an item of a list.
    """
    text = block.text
    number = _NUMBERED.match(text)
    if _CJK_NUMBERED.match(text) or (number and "." in number.group().strip()[:-1]):
        return True
    letters = [character for character in text if character.isalpha()]
    is_capital = len(letters) >= 4 and all(map(str.isupper, letters))
    is_italic = block.styled.is_italic and not body.is_italic
    return is_capital or (is_italic and (text[0].isupper() or number is not None))


def _is_apart(block: Block, before: Block | None, after: Block | None) -> bool:
    """Returns True if there is space above a block, and text below it."""
    first, last = block.lines[0], block.lines[-1]
    if before is not None and 0 < first.baseline - before.lines[-1].baseline < 1.4 * first.size:
        return False
    return after is None or after.first.baseline - last.baseline < 4 * last.size


def _without_cover(
    pages: Sequence[Sequence[Block]], candidates: list[Block], body: BodyStyle
) -> list[Block]:
    """Returns the candidates; of those before the text begins, only the titles.

    The first page often has the names of authors and other lines in large letters. The titles are
    the largest line, the last line if text follows, numbered lines in the style of a later heading
    or with a number that the next line continues (`1 Use` before `1.1 Safety`), and lines in the
    style of a later heading that are directly above the last line. Two of these that follow one
    another have different styles, because a section has text.
    """
    if not pages or not pages[0]:
        return candidates
    first_page = pages[0]
    begins = next(
        (index for index, block in enumerate(first_page) if _is_text(block, body)),
        len(first_page),
    )
    is_candidate = set(map(id, candidates))
    cover = [block for block in first_page[:begins] if id(block) in is_candidate]
    if len(cover) <= 2:
        return candidates
    largest = max(cover, key=lambda block: block.styled.size)
    last = cover[-1]
    kept = {id(largest), id(last)} if begins < len(first_page) else {id(largest)}
    styles = {_style(block) for block in candidates[len(cover) :]}
    kept |= {id(block) for block in cover if _is_numbered(block.text) and _style(block) in styles}
    kept |= {id(block) for block, after in pairwise(cover) if _continues_number(block, after)}
    if begins < len(first_page):
        below = last
        for block in reversed(first_page[: first_page.index(last)]):
            is_title = id(block) in is_candidate and _style(block) in styles
            if not is_title or _style(block) == _style(below):
                break
            kept.add(id(block))
            below = block
    dropped = {id(block) for block in cover if id(block) not in kept}
    return [block for block in candidates if id(block) not in dropped]


def _is_text(block: Block, body: BodyStyle) -> bool:
    """Returns True if a block is a paragraph, and no lines of a cover.

    It is long, or it is a sentence in the size of the text that fills its first lines. The lines of
    an address end early, and an abstract is often smaller.
    """
    size = block.styled.size
    if abs(size - body.size) >= 0.2 * body.size:
        return False
    is_filled = len(block.lines) > 1 and "\n" not in block.text
    is_sentence = is_filled and round(size * 2) / 2 == body.size and _ends_sentence(block.text)
    return len(block.text) > _MIN_TEXT_CHARS or is_sentence


def _ends_sentence(text: str) -> bool:
    return bool(_SENTENCE_END.search(text))


def _is_numbered(text: str) -> bool:
    return bool(_NUMBERED.match(text) or _CJK_NUMBERED.match(text))


def _continues_number(block: Block, after: Block) -> bool:
    """Returns True if the number of a block is the begin of that of the next one."""
    number, next_number = _NUMBERED.match(block.text), _NUMBERED.match(after.text)
    if number is None or next_number is None:
        return False
    return next_number["number"].startswith(f"{number['number']}.")


def _without_lists(pages: Sequence[Sequence[Block]], candidates: list[Block]) -> list[Block]:
    """Returns the candidates without runs of three or more of one style that have no text."""
    is_candidate = set(map(id, candidates))
    dropped: set[int] = set()
    for blocks in pages:
        run: list[Block] = []
        for block in [*blocks, None]:
            if (
                block is not None
                and id(block) in is_candidate
                and (not run or _style(run[-1]) == _style(block))
            ):
                run.append(block)
                continue
            if len(run) >= 3 and not all(_NUMBERED.match(item.text) for item in run):
                dropped.update(map(id, run))
            run = [block] if block is not None and id(block) in is_candidate else []
    return [block for block in candidates if id(block) not in dropped]


def _style(block: Block) -> _HeadingStyle:
    letters = [character for character in block.text if character.isalpha()]
    is_capital = len(letters) >= 4 and all(map(str.isupper, letters))
    return _HeadingStyle(round(block.styled.size * 2) / 2, block.styled.is_bold, is_capital)


def _depths(headings: Sequence[Block]) -> dict[Block, int]:
    """Returns the depth of each heading, from 1, by the rank of its style and its number."""
    keys: dict[Block, tuple[tuple[float, bool, bool], int]] = {}
    for block in headings:
        style = _style(block)
        number_depth = _number_depth(block.text)
        # The number says more than capitals: `2.1.6 NULL` is no other style than `2.1.5 Lists`.
        is_capital = style.is_capital and number_depth == 1
        keys[block] = (-style.size, not style.is_bold, not is_capital), number_depth
    ranks = {key: rank for rank, key in enumerate(sorted(set(keys.values())), start=1)}
    return {block: min(MAX_DEPTH, ranks[key]) for block, key in keys.items()}


def _number_depth(text: str) -> int:
    """Returns how many parts the number of a heading has; 1 if it has no number."""
    match = _NUMBER.match(text)
    if match is None or _KEYWORD.match(text):
        return 1
    return match["number"].count(".") + 1
