"""Markers in a model's text: numbers of passages in brackets, by which the text cites passages.

Markers are, for example: [1], [1, 3], [1-3], [1][2], and the same numbers in 【】. `MarkerFilter`
reads a text in pieces. It returns text in which every marker names only passages that exist. It
delays text only while this text may become a marker. The result does not depend on how the text is
cut into pieces. A number that no passage has is removed from its marker. If no number remains in a
marker, the marker is removed together with the blanks before it.

A text may have very many markers, because a document can lead a model to write nothing else. So a
statement has at most MAX_STATEMENT_CITATIONS citations, and an answer at most MAX_ANSWER_CITATIONS.
A citation is one number of one marker. Further numbers are removed like numbers without a passage,
and counted.

A marker contains numbers from 1 to 999 and nothing else, so [note], [0] and [1990s] stay
unchanged. Markers in code between backticks stay unchanged too. Inline code ends at the end of its
line at the latest. A block of code begins with three or more backticks, and ends at a run of at
least as many backticks.

The output contains no control characters except newline and tab. It contains no markup that makes
a viewer load a file or link to an unknown host (see `markup_guard`).
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from hrag.text.plain_text import plain
from hrag.text.sentences import has_word, sentence_ends
from hrag.values.limits import MAX_ANSWER_CITATIONS, MAX_STATEMENT_CITATIONS
from retriever_svc.markup_guard import MarkupGuard

# A marker has at most this many characters. Longer text in brackets is no marker, because nobody
# cites so many passages at once.
MAX_MARKER_CHARS = 64

# The numbers of this many markers are remembered. A text that repeats a marker thousands of times
# is read in less than half of the time.
_REMEMBERED_MARKERS = 1024

# At most this many blanks before a possible marker are delayed.
_MAX_BLANKS = 1024

_CLOSER = {"[": "]", "【": "】"}
_BLANK = " \t"
_INSIDE = "0123456789 ,，、;-\N{EN DASH}"
_NUMBER = r"[1-9][0-9]{0,2}"
_ITEM = re.compile(rf"({_NUMBER})(?: ?[-\N{{EN DASH}}] ?({_NUMBER}))?")
_ITEMS = re.compile(rf" *{_ITEM.pattern}(?: *[,，、;] *{_ITEM.pattern})* *")
_ELLIPSIS = "…"
_FENCE = 3  # A run of at least this many backticks begins a block of code.
_OPEN = re.compile(rf"[{re.escape(''.join(_CLOSER))}][{re.escape(_INSIDE)}]*\Z")
_LIST_SIGNS = re.compile(r"[ \t*+•>#-]*")


@dataclass(frozen=True, slots=True)
class Marker:
    """A marker in the output of a MarkerFilter.

    `start` and `end` are its range of characters in the output. `numbers` are the passages that the
    marker names.
    """

    start: int
    end: int
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CitedStatement:
    """A statement of an answer, and the `number` of a passage that the statement cites.

    The statement is the range of characters from `start` to `end` of the answer's text.
    """

    start: int
    end: int
    number: int


class MarkerFilter:
    """Reads a text in pieces, and removes from its markers the numbers that no passage has.

    Also removes the numbers beyond the limits of citations. `removed` counts them.
    """

    def __init__(self, passages: int, hosts: frozenset[str] = frozenset()) -> None:
        """`passages` is the count of passages, which are numbered from 1.

        `hosts` are the hosts to which URLs in the text may lead.
        """
        self._passages = passages
        self._guard = MarkupGuard(hosts)
        # Blanks before a possible marker. They are not in the output yet, because they are removed
        # together with the marker if the marker is removed.
        self._blanks = ""
        self._marker = ""  # Text that may become a marker, and is not in the output yet.
        self._ticks = 0  # The length of the run of backticks that was read last.
        self._code = 0  # How many backticks began the code that is being read, or 0.
        self._output: list[str] = []
        self._tail = ""  # The last MAX_MARKER_CHARS characters of the output.
        self._length = 0
        self._markers: list[Marker] = []
        self.removed = 0
        # The citations of all markers, and of the markers since the last word.
        self._citations = self._statement_citations = 0

    @property
    def text(self) -> str:
        """The whole output so far, as one string."""
        return "".join(self._output)

    @property
    def markers(self) -> tuple[Marker, ...]:
        """The markers in `text`, in order."""
        return tuple(self._markers)

    def feed(self, piece: str) -> str:
        """Reads the next piece of the text; returns the text that can be output now, maybe ""."""
        before = len(self._output)
        for char in plain(piece):
            self._read(char)
        return "".join(self._output[before:])

    def finish(self) -> str:
        """Returns the text that is still delayed. Must be called once, after the last piece."""
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
            # A marker between two runs of backticks was removed. Without a character between
            # them, the two runs would become one longer run.
            self._show(_ELLIPSIS)
        self._ticks += 1
        self._show("`")

    def _turn_code(self) -> None:
        """Decides after a run of backticks whether code begins or ends there.

        A run of one or two backticks begins inline code, which ends at a run of the same length. A
        run of three or more backticks begins a block of code, which ends at a run of at least the
        same length.
        """
        if not self._code:
            self._code = self._ticks
        elif self._ticks == self._code or self._ticks > self._code >= _FENCE:
            self._code = 0
        self._ticks = 0

    def _begin(self, char: str) -> None:
        """Outputs the delayed text, which is not a marker, then outputs or delays `char`.

        `char` is delayed if it is a blank or begins a marker.
        """
        if self._marker:
            self._release()
        if char in _CLOSER:
            self._marker = char
        elif char in _BLANK:
            if len(self._blanks) == _MAX_BLANKS:
                self._release()
            self._blanks += char
        else:
            self._release()
            self._show(char)

    def _close(self, char: str) -> None:
        blanks, marker = self._blanks, self._marker + char
        self._blanks, self._marker = "", ""
        inside = marker[1:-1]
        listed = _known_numbers(inside, self._passages)
        if listed is None:
            self._show(blanks + marker)
            return
        known, has_unknown = listed
        numbers = known[: self._left_citations()]
        self.removed += len(known) - len(numbers)
        if not numbers:
            if any(map(self._tail.__contains__, _CLOSER)) and _OPEN.search(self._tail):
                # Without a character in place of the removed marker, the text before the marker
                # and the text after it could together form a marker.
                self._show(_ELLIPSIS)
            return
        self._show(blanks)
        is_changed = has_unknown or len(numbers) < len(known)
        shown = marker[0] + ", ".join(map(str, numbers)) + char if is_changed else marker
        self._show(shown, is_marker=True)
        start = self._length - len(shown)
        self._markers.append(Marker(start, self._length, numbers))
        self._citations += len(numbers)
        self._statement_citations += len(numbers)

    def _left_citations(self) -> int:
        """Returns how many more citations the limits allow at this place of the text."""
        return min(
            MAX_ANSWER_CITATIONS - self._citations,
            MAX_STATEMENT_CITATIONS - self._statement_citations,
        )

    def _release(self) -> None:
        self._show(self._blanks + self._marker)
        self._blanks, self._marker = "", ""

    def _show(self, text: str, *, is_marker: bool = False) -> None:
        if not is_marker and has_word(text):
            self._statement_citations = 0  # The next marker cites another statement.
        in_code = bool(self._code)
        guarded = "".join(
            f" {char}" if self._guard.breaks(char, in_code=in_code) else char for char in text
        )
        if guarded:
            self._output.append(guarded)
            self._tail = (self._tail + guarded)[-MAX_MARKER_CHARS:]
            self._length += len(guarded)


@lru_cache(_REMEMBERED_MARKERS)
def _known_numbers(inside: str, passages: int) -> tuple[tuple[int, ...], bool] | None:
    """Returns the distinct numbers of a marker that a passage has, and True if it has others too.

    Returns None if the text `inside` the brackets makes no marker. `passages` is the count of
    passages. A range contains all numbers from its first to its last number. A range whose second
    number is lower than its first number has no numbers.
    """
    if not _ITEMS.fullmatch(inside):
        return None
    ranges = [(int(first), int(last or first)) for first, last in _ITEM.findall(inside)]
    known = dict.fromkeys(
        number for first, last in ranges for number in range(first, min(last, passages) + 1)
    )
    return tuple(known), any(first <= last > passages for first, last in ranges)


def cited_statements(text: str, markers: Sequence[Marker]) -> list[CitedStatement]:
    """Returns the cited statement for each number of each marker of a text, in order.

    The first rule that applies to a marker decides:

    * The marker begins its line, and a word follows the marker in the same sentence: the statement
      is the text after the marker in this sentence.
    * There is a word between the previous marker (or the start of the text) and this marker: the
      statement is the last sentence with a word before this marker. If the previous marker is in
      this sentence, the statement begins after the previous marker.
    * In all other cases, the statement is that of the previous marker. For the first marker, it is
      an empty range.
    """
    starts = [0, *sentence_ends(text)]
    statements: list[CitedStatement] = []
    statement = range(0)
    previous_end = 0  # The end of the previous marker.
    for marker in markers:
        at = bisect_right(starts, marker.start)
        after = range(marker.end, starts[at])
        begins_line = _begins_line(text, previous_end, marker.start)
        if begins_line and has_word(text[after.start : after.stop]):
            statement = _trimmed(text, after)
        elif has_word(text[previous_end : marker.start]):
            statement = _trimmed(text, _last_sentence(text, starts, at, previous_end, marker.start))
        statements += [
            CitedStatement(statement.start, statement.stop, number) for number in marker.numbers
        ]
        previous_end = marker.end
    return statements


def _begins_line(text: str, previous_end: int, position: int) -> bool:
    """Returns True if only signs of a list are before a marker at `position` in its line.

    `previous_end` is the end of the previous marker; 0 if there is none.
    """
    line = text.rfind("\n", previous_end, position) + 1
    is_first = line > 0 or previous_end == 0
    return is_first and _LIST_SIGNS.fullmatch(text, line, position) is not None


def _last_sentence(text: str, starts: Sequence[int], at: int, begin: int, end: int) -> range:
    """Returns the range of the last sentence that has a word between `begin` and `end`.

    A sentence is cut at `begin` and `end`. `starts` has the positions at which sentences start,
    then the end of the last sentence; the sentence that contains `end` ends at `starts[at]`. There
    must be a word between `begin` and `end`.
    """
    sentences = (
        range(max(starts[number - 1], begin), min(starts[number], end))
        for number in range(at, 0, -1)
    )
    return next(
        sentence for sentence in sentences if has_word(text[sentence.start : sentence.stop])
    )


def _trimmed(text: str, statement: range) -> range:
    statement_text = text[statement.start : statement.stop]
    start = statement.start + len(statement_text) - len(statement_text.lstrip())
    return range(start, start + len(statement_text.strip()))
