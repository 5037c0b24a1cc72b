"""Adds the underscores that a page draws as lines.

The fonts that LaTeX uses by default have no underscore. So LaTeX draws a short line on the baseline
in its place, and a name such as `max_size` would have two words.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from indexer_svc.parsers.pdf.layout.words import Word
from indexer_svc.parsers.pdf.page_content import RuledLine

# The length of the line, its distance from the words beside it, and how far it may be above and
# below the baseline, relative to the font size.
_MIN_LENGTH, _MAX_LENGTH = 0.2, 0.65
_MAX_GAP = 0.15
_MAX_RISE, _MAX_DROP = 0.08, 0.25
# No line that is longer than this is examined, and no page with more short lines than so many.
_MAX_POINTS = 16.0
_MAX_LINES = 2_000
_MAX_SLOPE = 0.5


def with_underscores(words: Sequence[Word], rules: Sequence[RuledLine]) -> list[Word]:
    """Returns the words, and a word `_` for each line that is an underscore of one of them."""
    short = sorted(
        rule
        for rule in rules
        if 0 < rule.right - rule.left <= _MAX_POINTS and rule.bottom - rule.top <= _MAX_SLOPE
    )
    result = list(words)
    if not 0 < len(short) <= _MAX_LINES:
        return result
    near: defaultdict[int, list[Word]] = defaultdict(list)
    for word in words:
        near[round(word.baseline)].append(word)
    # A line that begins at the end of another one is the side of a small box.
    corners = {
        (round(rule.left), round(y))
        for rule in rules
        if rule.right - rule.left <= _MAX_SLOPE < rule.bottom - rule.top
        for y in (rule.top, rule.bottom)
    }
    # An underscore may stand before another one, so the lines are tried from both sides.
    waiting = [rule for rule in short if (round(rule.left), round(rule.top)) not in corners]
    for _ in range(2):
        left = []
        for rule in waiting:
            underscore = _underscore(rule, near)
            if underscore is None:
                left.append(rule)
                continue
            near[round(underscore.baseline)].append(underscore)
            result.append(underscore)
        waiting = left[::-1]
    return result


def _underscore(rule: RuledLine, near: Mapping[int, Sequence[Word]]) -> Word | None:
    """Returns the word `_` for a line, or None if the line is no underscore.

    `near` are the words by the point at which their baseline is.
    """
    at = round(rule.top)
    level = [word for y in range(at - 4, at + 5) for word in near.get(y, ())]
    before = next((word for word in level if _touches(word, rule, word.right, rule.left)), None)
    after = next((word for word in level if _touches(word, rule, rule.right, word.left)), None)
    host = before or after
    if host is None:
        return None
    if after is not None:
        after.is_glued = True
    return Word(
        *("_", rule.left, host.top, rule.right, host.bottom, host.baseline, host.size),
        *(host.font, host.mark, before is not None),
    )


def _touches(word: Word, rule: RuledLine, left: float, right: float) -> bool:
    """Returns True if a line is an underscore in size and height, and `left` is close to `right`.

    One of both is an end of the line, and the other an end of the word.
    """
    size = word.size
    return (
        _MIN_LENGTH * size <= rule.right - rule.left <= _MAX_LENGTH * size
        and -_MAX_RISE * size <= rule.top - word.baseline <= _MAX_DROP * size
        and abs(right - left) <= _MAX_GAP * size
    )
