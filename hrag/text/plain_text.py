"""Removes dangerous characters from untrusted text, for terminals, prompts and models' answers.

Titles and texts come from documents, and answers come from models. Both may contain characters that
move the cursor, end a line where none should end, or show text in another order. `quoted_lines`
puts `> ` before every line, so no line of a text can look like a line of the prompt around it.
"""

import re

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_BLANKS = "\t\n"
_CONTROLS = [code for code in (*range(32), *range(0x7F, 0xA0)) if chr(code) not in _BLANKS]
# The characters that reorder text (embeddings, overrides, isolates), and the tag characters, which
# are an invisible copy of ASCII.
_HIDING = [*range(0x202A, 0x202F), *range(0x2066, 0x206A), *range(0xE0000, 0xE0080)]
_REMOVED = dict.fromkeys((*_CONTROLS, *_HIDING))
_REPLACED = dict.fromkeys(_REMOVED, _REPLACEMENT) | {ord("\r"): " "}

_QUOTED = "> "
_OPENERS, _CLOSERS = "[\N{LEFT BLACK LENTICULAR BRACKET}", "]\N{RIGHT BLACK LENTICULAR BRACKET}"
_NUMBERS = re.compile(
    rf"[{re.escape(_OPENERS)}]([0-9\s,，、;\-\N{{EN DASH}}]*[0-9][0-9\s,，、;\-\N{{EN DASH}}]*)"
    rf"[{re.escape(_CLOSERS)}]"
)
_FULL_WIDTH = "\N{FULLWIDTH LEFT SQUARE BRACKET}\\1\N{FULLWIDTH RIGHT SQUARE BRACKET}"


def plain(text: str) -> str:
    """Returns `text` without control characters, except tab and newline.

    Also removes the characters that hide or reorder text.
    """
    return text.translate(_REMOVED)


def printable(text: str) -> str:
    """Returns `text` with a replacement for each character that `plain` removes.

    A carriage return becomes a space; every other such character becomes U+FFFD. The length of the
    text does not change, so offsets into the text stay valid.
    """
    return text.translate(_REPLACED)


def one_line(text: str) -> str:
    """Returns `text` on one line, without the characters that `plain` removes.

    Each run of white space becomes a single blank.
    """
    return plain(" ".join(text.split()))


def quoted_lines(text: str) -> str:
    """Returns `text` with `> ` before each line, as in Markdown and mail.

    The characters that `plain` removes are left out. A new line begins after every character that
    Unicode defines as a line end. So a reader can always distinguish the lines of `text` from the
    surrounding text.
    """
    return "\n".join(f"{_QUOTED}{plain(line)}".rstrip() for line in text.splitlines())


def without_markers(text: str) -> str:
    """Returns `text` with full-width brackets around numbers such as [3].

    A model's answer marks its citations as [3]. With other brackets, a reader does not mistake
    numbers in `text` for such markers.
    """
    return _NUMBERS.sub(_FULL_WIDTH, text)
