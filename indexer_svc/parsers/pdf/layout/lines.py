"""Joins words into lines.

Words whose baselines are nearly the same make a row, whatever stands between them. A row is not yet
a line of text: on a page with two columns it contains words of both. A line is made of
the words of a row that belong to one column, or to one cell of a table.

Superscripts and subscripts have a baseline of their own. A small word that touches a larger word,
and whose baseline lies inside that word's box, is attached to it: as a power after a digit
(`10^6`), as a note mark after a word (`word [1]`), and without a sign if it is a subscript (`H2O`).
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence

from indexer_svc.parsers.pdf.layout.words import WORD_GAP, Word

# Two letters in different fonts are in different words if their distance is more than this share of
# the font size: the letters of one word touch each other, or are kerned by less.
_FONT_GAP = 0.09
# The baselines of one row differ by at most this share of the font size.
_ROW_TOLERANCE = 0.22
# A superscript or subscript is at most this large, relative to the word that it belongs to. Some
# programs print it at eight ninths.
_MAX_SCRIPT_SIZE = 0.9
# A script begins at most this far from its word, relative to that word's size.
_MAX_SCRIPT_GAP = 0.25
# A script that stands before its word is the mark of a footnote, after which there may be a space.
_MAX_MARK_GAP = 0.6
# Its baseline is at most so much above or below that of its word, relative to that word's size.
_MAX_RISE, _MAX_DROP = 0.75, 0.48
# A word is at most this much larger than its script.
_MAX_HOST_SIZE = 2.2
# A row with so few words may be letters of a logo like that of TeX, which are raised or lowered.
_MAX_SAME_SIZE_WORDS = 2
_MAX_LETTERS = 10
# So many words on both sides of a script, and so many rows near it, are examined.
_NEIGHBOURS = 4
_MAX_HOSTS = 12
_POWER_BASE = re.compile(r"(?:[\d)\]]|(?:^|[^\w])(?:[^\W\d_]{1,2}|sec))$")
_NOTE_MARK = re.compile(r"[\d*\u2020\u2021\u00a7\u00b6#,a-z]{1,6}")
_FOOTNOTE_MARK = re.compile(r"\d{1,3}|[*\u2020\u2021\u00a7\u00b6]")
_SIGNED = re.compile(r"[-+\u2212\u2013]?\d+|[a-zA-Z]{1,2}|[-+\u2212]")
_ORDINAL = re.compile(r"(?:st|nd|rd|th|er|re|e|\u00aa|\u00ba|a|o|TM|\u2122|\u00ae)")
_CJK = (
    "[\u2e80-\u303f\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uffef]"
)
_CJK_ENDS = re.compile(rf"{_CJK}$")
_CJK_STARTS = _CJK_SIGN = re.compile(_CJK)


# Most of a text in Chinese are Chinese characters. A line of code has fewer, or is a comment.
_MIN_CHINESE = 0.6
_COMMENT_SIGNS = "#/*-%;"


class TextRow:
    """Words with nearly the same baseline, from left to right.

    `size` is the size of the largest word, and `smallest` that of the smallest one.
    """

    __slots__ = ("baseline", "bottom", "size", "smallest", "top", "words")

    def __init__(self, words: list[Word]) -> None:
        words.sort(key=_left)
        self.words = words
        main = words[0]
        top, bottom = main.top, main.bottom
        smallest = main.size
        for word in words:
            if word.size > main.size:
                main = word
            elif word.size < smallest:
                smallest = word.size
            top = min(top, word.top)
            bottom = max(bottom, word.bottom)
        self.size = main.size
        self.smallest = smallest
        self.baseline = main.baseline
        self.top = top
        self.bottom = bottom

    @property
    def left(self) -> float:
        """The x of the first word."""
        return self.words[0].left

    @property
    def right(self) -> float:
        """The x at which the last word ends."""
        return max(word.right for word in self.words)


class TextLine:
    """A line of text in one column, with the style of most of its characters.

    Words of code in a line of text are often smaller than the text. Even if they are most of the
    line, its style is that of the larger words. A line of bold text is bold if its code is not.
    `first_width` and `first_size` are those of the first word. `is_italic` and `is_fixed` are True
    if all words are italic, and if all characters have the same width. Most fonts of Chinese have
    characters of the same width, so a line that is mostly Chinese is not fixed. `mark` is the
    number of the first marked content. `note_start` is True if the line begins with a superscript,
    as a footnote does. `heading_depth` is the depth of the heading that the line belongs to, or 0,
    and `heading_number` is the same for all lines of one heading. A line whose characters all have
    the same width has its `words`.
    """

    __slots__ = (
        *("text", "left", "top", "right", "bottom", "baseline", "size", "font", "is_bold"),
        *(
            "first_width",
            "first_size",
            "is_fixed",
            "is_italic",
            "mark",
            "note_start",
            "words",
            "heading_depth",
            "heading_number",
        ),
    )

    def __init__(self, words: Sequence[Word]) -> None:
        self.text = line_text(words)
        self.left = words[0].left
        self.right = max(word.right for word in words)
        self.top = min(word.top for word in words)
        self.bottom = max(word.bottom for word in words)
        self.first_width = words[0].right - words[0].left
        self.first_size = words[0].size
        styles: Counter[tuple[float, float, str]] = Counter()
        by_style = {}
        for word in words:
            key = word.size, word.baseline, word.font.name
            styles[key] += len(word.text)
            by_style[key] = word
        main = by_style[max(styles, key=styles.__getitem__)]
        if main.font.is_fixed:
            size = main.size
            larger = [
                key for key, word in by_style.items() if word.size > size and not word.font.is_fixed
            ]
            if larger:
                main = by_style[max(larger, key=styles.__getitem__)]
        self.baseline = main.baseline
        self.size = main.size
        self.font = main.font
        bold_chars = chars = 0
        for word in words:
            if main.font.is_fixed or not word.font.is_fixed:
                chars += len(word.text)
                bold_chars += len(word.text) if word.font.is_bold else 0
        self.is_bold = bold_chars >= 0.8 * chars
        self.mark = words[0].mark
        self.is_italic = all(word.font.is_italic for word in words)
        self.is_fixed = all(word.font.is_fixed for word in words) and not _is_chinese(self.text)
        self.words = tuple(words) if self.is_fixed else ()
        self.note_start = (
            words[0].size < _MAX_SCRIPT_SIZE * self.size
            and words[0].baseline < self.baseline - 0.1 * self.size
        )
        self.heading_depth = 0
        self.heading_number = 0

    def __repr__(self) -> str:
        return f"Line({self.text!r}, {self.left:.1f}, {self.baseline:.1f}, {self.size})"


def _is_chinese(text: str) -> bool:
    """Returns True if most characters are Chinese or Japanese, and it is no comment of code."""
    if text.isascii() or text[0] in _COMMENT_SIGNS:
        return False
    return len(_CJK_SIGN.findall(text)) >= _MIN_CHINESE * len(text)


def rows_of(words: Sequence[Word]) -> list[TextRow]:
    """Returns the rows of words, from the top down. Each word is in exactly one row."""
    rows: list[TextRow] = []
    current: list[Word] = []
    for word in sorted(words, key=_baseline):
        if current:
            first = current[0]
            reach = _ROW_TOLERANCE * (first.size if first.size > word.size else word.size)
            if word.baseline - first.baseline > reach:
                rows.append(TextRow(current))
                current = []
        current.append(word)
    if current:
        rows.append(TextRow(current))
    return _with_scripts(rows)


def _with_scripts(rows: list[TextRow]) -> list[TextRow]:
    """Returns the rows with superscripts and subscripts moved into the row of their word."""
    baselines = [row.baseline for row in rows]
    moves: dict[int, list[Word]] = {}
    moved: set[int] = set()
    for own, row in enumerate(rows):
        words = row.words
        if len(words) > _MAX_SAME_SIZE_WORDS and not _is_of_letters(words):
            limit = _MAX_SCRIPT_SIZE * row.size
            small = [word for word in words if word.size <= limit]
            # A row of small words is a row of scripts if no word of it is larger.
            words = small or words
        size = words[0].size
        low = bisect_left(baselines, row.baseline - _MAX_DROP * _MAX_HOST_SIZE * size)
        high = bisect_right(baselines, row.baseline + _MAX_RISE * _MAX_HOST_SIZE * size)
        low = max(low, own - _MAX_HOSTS // 2)
        hosts = [
            (index, rows[index])
            for index in range(low, min(high, low + _MAX_HOSTS))
            if index != own and _may_carry(rows[index], words, size)
        ]
        # A script between two lines belongs to the lower one, unless it is close to the upper one.
        hosts.sort(key=lambda host: _distance(row, host[1]))
        if not hosts:
            continue
        for word in words:
            for index, host in hosts:
                if _carries(host, word):
                    moves.setdefault(index, []).append(word)
                    moved.add(id(word))
                    break
    if not moves:
        return rows
    result = []
    for index, row in enumerate(rows):
        kept = [word for word in row.words if id(word) not in moved] + moves.get(index, [])
        if kept:
            result.append(TextRow(kept))
    return result


def _distance(script: TextRow, host: TextRow) -> float:
    """Returns how far scripts are from a row. Below a row, the distance counts twice."""
    rise = host.baseline - script.baseline
    return rise if rise > 0 else -2 * rise


def _may_carry(host: TextRow, words: Sequence[Word], size: float) -> bool:
    if size <= _MAX_SCRIPT_SIZE * host.size:
        return True
    return len(host.words) > _MAX_SAME_SIZE_WORDS and (
        len(words) <= _MAX_SAME_SIZE_WORDS or _is_of_letters(words)
    )


def _is_of_letters(words: Sequence[Word]) -> bool:
    return len(words) < _MAX_LETTERS and all(len(word.text) == 1 for word in words)


def _carries(row: TextRow, word: Word) -> bool:
    """Returns True if `word` is a superscript or subscript of a word of `row`.

    A single character of the same size that is only a little higher or lower belongs to a logo.
    """
    left, right, baseline, size = word.left, word.right, word.baseline, word.size
    max_gap = _MAX_MARK_GAP if _FOOTNOTE_MARK.fullmatch(word.text) else _MAX_SCRIPT_GAP
    # The words of a row are in order, so only the neighbours of the word can touch it.
    at = bisect_left(row.words, left, key=_left)
    for host in row.words[max(0, at - _NEIGHBOURS) : at + _NEIGHBOURS]:
        host_size = host.size
        if left - host.right > _MAX_SCRIPT_GAP * host_size or (
            host.left - right > max_gap * host_size
        ):
            continue
        offset = (host.baseline - baseline) / host_size
        if size > _MAX_SCRIPT_SIZE * host_size:
            if len(word.text) > 1 or size > 1.02 * host_size or abs(offset) > 0.3:
                continue
        elif not -_MAX_DROP <= offset <= _MAX_RISE or abs(offset) < 0.05:
            continue
        if left - host.right >= -0.45 * host_size or host.left - right >= -0.1 * host_size:
            return True
    return False


def mark_heading(lines: Sequence[TextLine], depth: int, number: int) -> None:
    """Makes lines the lines of one heading."""
    for line in lines:
        line.heading_depth = depth
        line.heading_number = number


def line_text(words: Sequence[Word]) -> str:
    """Returns the text of words of one line, with one space between words that stand apart."""
    host = before = words[0]
    parts = [host.text]
    if len(words) > 1 and _script(words[1], host) == "^" and _NOTE_MARK.fullmatch(host.text):
        parts = [f"[{host.text}] "]
    for word in words[1:]:
        gap = word.left - before.right
        separator = ""
        if parts[-1].endswith(" "):
            pass
        elif (
            gap > WORD_GAP * min(word.size, before.size)
            or not word.is_glued
            or _stands_apart(before, word, gap)
        ):
            separator = " "
            if (
                gap < 0.5 * word.size
                and _CJK_STARTS.match(word.text)
                and _CJK_ENDS.search(before.text)
            ):
                separator = ""
        script = _script(host, word)
        if script:
            base = parts[-1] if before is host else "".join(parts[-2:])
            parts.append(_script_text(script, base, word.text, gap, host.size))
        else:
            parts.append(separator + word.text)
            host = word
        before = word
    return "".join(parts)


def _stands_apart(before: Word, word: Word, gap: float) -> bool:
    """Returns True if a change of the font shows that a narrow gap divides two words."""
    return (
        gap > _FONT_GAP * before.size
        and word.font != before.font
        and before.text[-1].isalnum()
        and word.text[0].isalnum()
    )


def _script(host: Word, word: Word) -> str:
    """Returns "^" for a superscript of `host`, "_" for a subscript, or ""."""
    if word.size > _MAX_SCRIPT_SIZE * host.size:
        return ""
    offset = (host.baseline - word.baseline) / host.size
    if word.left - host.right > 2 * host.size or abs(offset) < 0.05:
        return ""
    return "^" if offset > 0 else "_"


def _script_text(script: str, base: str, text: str, gap: float, size: float) -> str:
    """Returns a script with the sign that keeps it apart from the word before it."""
    sign = " "
    if gap > WORD_GAP * 1.5 * size:
        pass
    elif "^" in base or base.endswith("]"):  # The script has several words.
        are_apart = base[-1:].isalnum() and base[-1:].isdigit() != text[:1].isdigit()
        sign = " " if are_apart and text[:1].isalnum() else ""
    elif script == "_":
        sign = "_" if base[-1:].isdigit() and text[:1].isdigit() else ""
    elif _ORDINAL.fullmatch(text) or (len(text) == 1 and text.isupper()):
        sign = ""
    elif _POWER_BASE.search(base) and _SIGNED.fullmatch(text):
        sign = "^"
    elif _NOTE_MARK.fullmatch(text):
        return f" [{text}]"
    return sign + text


def _left(word: Word) -> float:
    return word.left


def _size(word: Word) -> float:
    return word.size


def _baseline(word: Word) -> float:
    return word.baseline
