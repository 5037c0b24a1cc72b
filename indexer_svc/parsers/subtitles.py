"""Parses subtitles (SRT) and web captions (WebVTT): each cue is a page, numbered by its time.

A cue is a text that is shown from one time to another. The number of its page is the second at
which it begins, counted from the start of the recording. A cue of the first second has the number
1, because the numbers of pages begin with 1. Cues are in the order of their times. A cue begins on
a new line. It begins a new paragraph after a pause of _PAUSE_MS, or if another speaker begins.

Markup is left out: styles, classes, positions, and the times of single words. A voice of WebVTT
names the speaker; the name is written before the first cue of each turn, for example `Ann: Hello`.

Rolling captions show a line again below or above the next line, so that most lines are in several
cues. Such a line is written once. A cue that repeats the words of the cue before it, but is shown
after it in a file without rolling captions, is kept, because its words are spoken twice.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import unescape
from itertools import pairwise

from hrag.values.document_limits import MAX_PAGES
from hrag.values.errors import TooLarge, UnreadableDocument
from hrag.values.read_report import PageUnit
from indexer_svc.parsers.parsed_file import PageRange, ParsedFile
from indexer_svc.parsers.text_lines import LINE_END, utf8_text
from indexer_svc.parsers.text_writer import check_text_bytes
from indexer_svc.titles import metadata_title

_FIELD = "content"
_TIME = r"(?:(\d{1,4}):)?(\d{1,2}):(\d{1,2})[.,](\d{1,3})"
_TIMES = re.compile(rf"[ \t]*{_TIME}[ \t]*--+>[ \t]*{_TIME}(?:[ \t].*)?")
_VTT = re.compile(r"WEBVTT(?:[ \t]+(.*))?")
_LANGUAGE = re.compile(r"Language:[ \t]*([\w-]{2,35})[ \t]*", re.IGNORECASE)
_HEADER_LINES = 20  # The header of a file of captions has a few lines.
_VOICE = re.compile(r"<v(?:\.[^\s<>]*+)?[ \t]++([^<>\n]{1,200})>")
# These are the elements of WebVTT, and the elements of HTML that subtitles use. Another text in
# angle brackets belongs to the words. In SRT, a position stands in braces: {\an8}.
_MARKUP = re.compile(
    r"</?(?:c|i|b|u|s|v|lang|ruby|rt|font|span|em|strong)(?:[.\s][^<>]*)?>"
    r"|<(?:\d+:)?\d+:\d+[.,]\d+>"
    r"|\{\\[^{}\n]*\}",
    re.IGNORECASE,
)
_REFERENCE = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z]{1,31});")

# A new paragraph begins after a pause of this length. Speakers breathe in less than a second;
# longer pauses separate thoughts or scenes.
_PAUSE_MS = 2_000
# A cue follows another one directly if it begins at most this time after its end. The captions of
# video sites leave gaps of up to 10 ms, and some programs leave one picture of 40 ms.
_GAP_MS = 50
# The captions of a file are rolling if at least this share of the cues repeat a line of the cue
# before. In rolling captions almost all cues do; in others, it happens by chance.
_ROLLING_SHARE = 0.2
# At most this many lines are compared as a whole, so that cues of very many lines cost little. A
# screen shows up to four lines.
_MAX_REPEATED_LINES = 8


@dataclass(frozen=True, slots=True)
class _Cue:
    """A text that is shown from `start_ms` to `end_ms`, as lines without markup."""

    start_ms: int
    end_ms: int
    lines: tuple[str, ...]
    speaker: str = ""


def parse_subtitles(content: bytes, max_text_bytes: int) -> ParsedFile:
    """Returns the words of UTF-8 subtitles or captions, with one page for each cue.

    The title is the one in the first line of WebVTT. The language that a header names becomes
    metadata. Raises UnreadableDocument for a text without a cue, or TooLarge.
    """
    lines = LINE_END.split(utf8_text(content))
    header = _VTT.fullmatch(lines[0].strip())
    cues = sorted(_cues(lines, is_vtt=header is not None), key=lambda cue: cue.start_ms)
    if not cues:
        raise UnreadableDocument(
            "content has no subtitles: no line has the two times of a cue, for example "
            "00:00:01,000 --> 00:00:04,000",
            field=_FIELD,
        )
    text, pages = _joined(_without_repetition(cues), max_text_bytes)
    title = metadata_title((header[1] or "").lstrip("-\u2013\u2014 ")) if header else ""
    return ParsedFile(
        text, pages, title=title, page_unit=PageUnit.SECOND, metadata=_metadata(lines, header)
    )


def _metadata(lines: Sequence[str], header: re.Match[str] | None) -> dict[str, str | list[str]]:
    """Returns the language that the header of WebVTT names, as metadata."""
    if header is None:
        return {}
    for line in lines[1:_HEADER_LINES]:
        if not line.strip():
            break
        if match := _LANGUAGE.fullmatch(line):
            return {"language": match[1]}
    return {}


def _cues(lines: Sequence[str], *, is_vtt: bool) -> Iterator[_Cue]:
    """Yields the cues that have words, in the order of the file.

    In WebVTT, a cue ends at the first empty line. In SRT, the lines up to the next cue belong to
    it, except the number of the next cue, because some programs write blank lines in a cue.
    """
    times = [(at, match) for at, line in enumerate(lines) if (match := _TIMES.fullmatch(line))]
    ends = [*(at for at, _ in times), len(lines)][1:]
    for (at, match), end in zip(times, ends, strict=True):
        words = lines[at + 1 : end]
        if is_vtt:
            blank = next((index for index, line in enumerate(words) if not line), None)
            words = words[:blank]
        elif end < len(lines) and words and words[-1].strip().isdecimal():
            words = words[:-1]
        speaker, shown = _shown(words)
        if shown:
            start_ms, end_ms = _milliseconds(match, 1), _milliseconds(match, 5)
            yield _Cue(start_ms, max(start_ms, end_ms), shown, speaker)


def _milliseconds(match: re.Match[str], first: int) -> int:
    """Returns a time of a cue; `first` is the index of the group of its hours."""
    hours, minutes, seconds, fraction = (match[first + index] or "0" for index in range(4))
    whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    return whole * 1000 + int(fraction.ljust(3, "0"))


def _shown(lines: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Returns the speaker of a cue and its lines without markup. Blank lines are left out.

    If several speakers have a voice in the cue, each line begins with the name of its speaker.
    """
    voices = {match[1].strip() for line in lines for match in _VOICE.finditer(line)}
    if len(voices) > 1:
        lines = [_VOICE.sub(r"\1: ", line) for line in lines]
    plain = (" ".join(_plain(line).split()) for line in lines)
    return next(iter(voices), "") if len(voices) == 1 else "", tuple(filter(None, plain))


def _plain(line: str) -> str:
    return _REFERENCE.sub(lambda match: unescape(match[0]), _MARKUP.sub("", line))


def _without_repetition(cues: Sequence[_Cue]) -> Iterator[_Cue]:
    """Yields the cues with the lines that the cue before them has not shown already."""
    pairs = [(before, cue) for before, cue in pairwise(cues) if _follows(before, cue)]
    rolling = sum(1 for before, cue in pairs if _new_lines(before, cue) != cue.lines)
    is_rolling = rolling >= _ROLLING_SHARE * len(cues)
    yield cues[0]
    for before, cue in pairwise(cues):
        overlaps = cue.start_ms < before.end_ms
        if overlaps or (is_rolling and _follows(before, cue)):
            lines = _new_lines(before, cue)
            if lines:
                yield replace(cue, lines=lines)
        else:
            yield cue


def _follows(before: _Cue, cue: _Cue) -> bool:
    return cue.start_ms <= before.end_ms + _GAP_MS


def _new_lines(before: _Cue, cue: _Cue) -> tuple[str, ...]:
    """Returns the lines of a cue that `before` does not show.

    Lines at the beginning that are the last lines of `before` are left out, and lines at the end
    that are the first lines of `before`. If the first line only continues the last line of
    `before`, its beginning is left out.
    """
    longest = min(len(before.lines), len(cue.lines), _MAX_REPEATED_LINES)
    for count in range(longest, 0, -1):
        if before.lines[-count:] == cue.lines[:count]:
            return cue.lines[count:]
        if before.lines[:count] == cue.lines[-count:]:
            return cue.lines[:-count]
    beginning = f"{before.lines[-1]} "
    if cue.lines[0].startswith(beginning):
        return (cue.lines[0].removeprefix(beginning), *cue.lines[1:])
    return cue.lines


def _joined(cues: Iterator[_Cue], max_text_bytes: int) -> tuple[str, tuple[PageRange, ...]]:
    """Returns the text of all cues, and the range of each cue in it. Raises TooLarge."""
    parts: list[str] = []
    pages: list[PageRange] = []
    chars = text_bytes = 0
    before = None
    for cue in cues:
        separator, name = _separator(before, cue)
        words = name + "\n".join(cue.lines)
        before = cue
        parts += (separator, words)
        start = chars + len(separator)
        chars = start + len(words)
        text_bytes += len(separator) + len(words.encode())
        pages.append(PageRange(start, chars, max(1, cue.start_ms // 1000)))
        check_text_bytes(text_bytes, max_text_bytes)
        _check_count(len(pages))
    return "".join(parts), tuple(pages)


def _separator(before: _Cue | None, cue: _Cue) -> tuple[str, str]:
    """Returns the separator before a cue, and the name that introduces its speaker, or nothing."""
    if before is None:
        return "", f"{cue.speaker}: " if cue.speaker else ""
    if cue.speaker != before.speaker:
        return "\n\n", f"{cue.speaker}: " if cue.speaker else ""
    return "\n\n" if cue.start_ms >= before.end_ms + _PAUSE_MS else "\n", ""


def _check_count(page_count: int) -> None:
    if page_count > MAX_PAGES:
        raise TooLarge(
            f"content has more than {MAX_PAGES} cues; at most {MAX_PAGES} are allowed",
            field=_FIELD,
            limit="document_pages",
        )
