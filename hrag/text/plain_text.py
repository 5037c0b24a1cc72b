"""Untrusted text made plain: for terminals, for prompts and for what a model writes.

Titles and texts come from documents, answers from models; both may hold characters that move a
cursor, end a line where none should end, or show text in another order than it has. Lines that
pose as something else are quoted.
"""

import re

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_BLANKS = "\t\n"
_CONTROLS = [code for code in (*range(32), *range(0x7F, 0xA0)) if chr(code) not in _BLANKS]
# What reorders text (embeddings, overrides, isolates), and the invisible copy of ASCII (tags).
_HIDING = [*range(0x202A, 0x202F), *range(0x2066, 0x206A), *range(0xE0000, 0xE0080)]
_REMOVED = dict.fromkeys((*_CONTROLS, *_HIDING))
_REPLACED = dict.fromkeys(_REMOVED, _REPLACEMENT) | {ord("\r"): " "}

_QUOTED = "> "
_OPENERS, _CLOSERS = "[\N{LEFT BLACK LENTICULAR BRACKET}", "]\N{RIGHT BLACK LENTICULAR BRACKET}"
_NUMBERS = re.compile(
    rf"[{re.escape(_OPENERS)}]([0-9\s,，、;\-\N{{EN DASH}}]*[0-9][0-9\s,，、;\-\N{{EN DASH}}]*)"
    rf"[{re.escape(_CLOSERS)}]"
)
_DEFUSED = "\N{FULLWIDTH LEFT SQUARE BRACKET}\\1\N{FULLWIDTH RIGHT SQUARE BRACKET}"


def plain(text: str) -> str:
    """Returns `text` without control characters but tab and newline, and without hiding ones."""
    return text.translate(_REMOVED)


def printable(text: str) -> str:
    """Returns `text` with such characters replaced one for one, so offsets stay valid."""
    return text.translate(_REPLACED)


def one_line(text: str) -> str:
    """Returns `text` on one line and plain; white space becomes single blanks."""
    return plain(" ".join(text.split()))


def quoted_lines(text: str) -> str:
    """Returns `text` plain, each line behind `> ` as in Markdown and mail.

    Whatever Unicode calls the end of a line begins a new one. So no line of the text can pass
    for one of what surrounds it.
    """
    return "\n".join(f"{_QUOTED}{plain(line)}".rstrip() for line in text.splitlines())


def without_markers(text: str) -> str:
    """Returns `text` with numbers such as [3] in other brackets, so that they cite nothing."""
    return _NUMBERS.sub(_DEFUSED, text)
