"""Numbered markers in a model's text: [1], [1, 3], [1-3], [1][2], and the same in 【】.

Pieces of text in, text out in which every marker names passages that were given. Text is
held back only while it may become a marker, and the result does not depend on how the text
is cut into pieces. A number without a passage is dropped; a marker without any other number
is removed together with the blanks before it.

A marker holds numbers from 1 to 999 and nothing else, so [note], [0] and [1990s] stay as
they are. Code between backticks also stays as it is: inline code ends at the end of its
line at the latest, a block at as many backticks as it began with, three or more.

The output holds no control characters but newline and tab, and no markup that a viewer would act
on by itself, see `markup_guard`.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hrag.text.plain_text import plain
from hrag.text.sentences import has_word, sentence_ends
from retriever_svc.markup_guard import MarkupGuard

MAX_MARKER_CHARS = 64  # Longer brackets are not markers: nobody cites so much at once.

_CLOSER = {"[": "]", "【": "】"}
_BLANK = " \t"
_INSIDE = "0123456789 ,，、;-\N{EN DASH}"
_NUMBER = r"[1-9][0-9]{0,2}"
_ITEM = re.compile(rf"({_NUMBER})(?: ?[-\N{{EN DASH}}] ?({_NUMBER}))?")
_ITEMS = re.compile(rf" *{_ITEM.pattern}(?: *[,，、;] *{_ITEM.pattern})* *")
_ELLIPSIS = "…"
_FENCE = 3  # So many backticks, or more, begin a block of code.
_OPEN = re.compile(rf"[{re.escape(''.join(_CLOSER))}][{re.escape(_INSIDE)}]*\Z")
_LIST_SIGNS = re.compile(r"[ \t*+•>#-]*")


@dataclass(frozen=True, slots=True)
class Marker:
    """A marker in the output: its range in characters, and the passages that it names."""

    start: int
    end: int
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cited:
    """A statement, as a range of characters, and the number of a passage that it cites."""

    start: int
    end: int
    number: int


class MarkerFilter:
    """Reads one text, piece by piece."""

    def __init__(self, passages: int, hosts: frozenset[str] = frozenset()) -> None:
        """`passages` is how many there are; they are numbered from 1.

        `hosts` are those that the text may have addresses of.
        """
        self._passages = passages
        self._guard = MarkupGuard(hosts)
        self._blanks = ""  # Held back: removed together with a marker that is removed.
        self._marker = ""  # Held back: may become a marker.
        self._ticks = 0  # Backticks read in a row.
        self._code = 0  # Backticks that began the code this is in; 0 outside.
        self._output: list[str] = []
        self._tail = ""  # The last of what was shown.
        self._length = 0
        self._markers: list[Marker] = []

    @property
    def text(self) -> str:
        """All output so far."""
        return "".join(self._output)

    @property
    def markers(self) -> tuple[Marker, ...]:
        """The markers in `text`, in order."""
        return tuple(self._markers)

    def feed(self, piece: str) -> str:
        """Returns the output that `piece` completes; may be empty."""
        before = len(self._output)
        for char in plain(piece):
            self._read(char)
        return "".join(self._output[before:])

    def finish(self) -> str:
        """Returns what was still held back at the end of the text."""
        before = len(self._output)
        self._release()
        return "".join(self._output[before:])

    def _read(self, char: str) -> None:
        if char == "`":
            self._tick()
            return
        if self._ticks:
            self._turn_code()
        if char == "\n" and self._code < _FENCE:
            self._code = 0
        if self._code:
            self._show(char)
        elif self._marker and char == _CLOSER[self._marker[0]]:
            self._close(char)
        elif self._marker and char in _INSIDE and len(self._marker) < MAX_MARKER_CHARS:
            self._marker += char
        else:
            self._begin(char)

    def _tick(self) -> None:
        self._release()
        if not self._ticks and self._tail.endswith("`"):
            # In place of a removed marker: two runs of backticks must not join.
            self._show(_ELLIPSIS)
        self._ticks += 1
        self._show("`")

    def _turn_code(self) -> None:
        """After a run of backticks: code begins, or ends if the run is as long as the first."""
        if not self._code:
            self._code = self._ticks
        elif self._ticks == self._code or self._ticks > self._code >= _FENCE:
            self._code = 0
        self._ticks = 0

    def _begin(self, char: str) -> None:
        """What was held back is no marker; another may begin."""
        if self._marker:
            self._release()
        if char in _CLOSER:
            self._marker = char
        elif char in _BLANK:
            self._blanks += char
        else:
            self._release()
            self._show(char)

    def _close(self, char: str) -> None:
        blanks, marker = self._blanks, self._marker + char
        self._blanks, self._marker = "", ""
        inside = marker[1:-1]
        if not _ITEMS.fullmatch(inside):
            self._show(blanks + marker)
            return
        numbers = list(_numbers(inside))
        known = [number for number in numbers if number <= self._passages]
        if not known:
            if _OPEN.search(self._tail):
                self._show(_ELLIPSIS)  # Else the text around it could become a marker.
            return
        self._show(blanks)
        shown = marker if known == numbers else marker[0] + ", ".join(map(str, known)) + char
        self._show(shown)
        start = self._length - len(shown)
        self._markers.append(Marker(start, self._length, tuple(dict.fromkeys(known))))

    def _release(self) -> None:
        self._show(self._blanks + self._marker)
        self._blanks, self._marker = "", ""

    def _show(self, text: str) -> None:
        in_code = bool(self._code)
        guarded = "".join(
            f" {char}" if self._guard.breaks(char, in_code=in_code) else char for char in text
        )
        if guarded:
            self._output.append(guarded)
            self._tail = (self._tail + guarded)[-MAX_MARKER_CHARS:]
            self._length += len(guarded)


def _numbers(inside: str) -> Iterator[int]:
    """The numbers in a marker; a range that runs backwards holds none."""
    for first, last in _ITEM.findall(inside):
        yield from range(int(first), int(last or first) + 1)


def cited(text: str, markers: Sequence[Marker]) -> list[Cited]:
    """Returns the statement that each marker of a text belongs to, in order.

    A marker that begins a line belongs to the rest of its sentence. Any other marker belongs
    to the last sentence before it, from the previous marker on. If no word stands between
    two markers, both belong to the same statement. The range is empty if there is none.
    """
    starts = [0, *sentence_ends(text)]
    found: list[Cited] = []
    statement = range(0)
    before = 0  # Where the previous marker ends.
    for marker in markers:
        at = bisect_right(starts, marker.start)
        after = range(marker.end, starts[at])
        if _begins_line(text, marker.start) and has_word(text[after.start : after.stop]):
            statement = _trimmed(text, after)
        elif has_word(text[before : marker.start]):
            statement = _trimmed(text, _last_sentence(text, starts[: at + 1], before, marker.start))
        found += [Cited(statement.start, statement.stop, number) for number in marker.numbers]
        before = marker.end
    return found


def _begins_line(text: str, position: int) -> bool:
    line = text.rfind("\n", 0, position) + 1
    return _LIST_SIGNS.fullmatch(text, line, position) is not None


def _last_sentence(text: str, starts: Sequence[int], begin: int, end: int) -> range:
    """The last sentence between two positions that holds a word; there is one."""
    sentences = (
        range(max(start, begin), min(stop, end))
        for start, stop in zip(starts[-2::-1], starts[:0:-1], strict=True)
    )
    return next(each for each in sentences if has_word(text[each.start : each.stop]))


def _trimmed(text: str, statement: range) -> range:
    statement_text = text[statement.start : statement.stop]
    start = statement.start + len(statement_text) - len(statement_text.lstrip())
    return range(start, start + len(statement_text.strip()))
